"""A node without the numbers that nothing reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.ir import Input, Lookup, Node, Product


def shrunk(node: Node, read: NDArray[np.bool_]) -> tuple[Node | None, Indices]:
    """Returns the node with what is read of it, and the old numbers of its wires; None when nothing is."""
    node_wires = np.arange(node.first_wire, node.first_wire + node.size, dtype=np.int64)
    if isinstance(node, Input):
        return node, node_wires
    if not bool(read.any()):
        return None, node_wires[:0]
    if isinstance(node, Product):
        return replace(node, gather=node.gather[read]), node_wires[read]
    if isinstance(node, Lookup):
        elements = read.reshape(len(node.gather), -1).any(axis=1)
        smaller = replace(node, gather=node.gather[elements], function=node.function[elements])
        return smaller, node_wires.reshape(len(node.gather), -1)[elements].reshape(-1)
    grid = read.reshape(len(node.gather), -1)
    positions, rows = grid.any(axis=1), grid.any(axis=0)
    blocks, block = np.unique(node.block[positions], return_inverse=True)
    linear = replace(
        node,
        gather=node.gather[positions],
        block=block.reshape(-1).astype(np.int64),
        weights=np.ascontiguousarray(node.weights[blocks][:, rows]),
        bias=np.ascontiguousarray(node.bias[blocks][:, rows]),
    )
    return linear, node_wires.reshape(grid.shape)[np.ix_(positions, rows)].reshape(-1)
