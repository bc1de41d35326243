"""Properties of nodes: whether one is affine, how its blocks split, who reads it, whether it is an output."""

from __future__ import annotations

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup, Node

# Positions that need different weights get blocks of their own, up to this many weights in a node.
MAX_WEIGHTS = 1 << 24


def affine_of(node: Node) -> tuple[Reals, Reals] | None:
    """Returns scale and offset of each element when the node is a look-up of affine steps alone."""
    if not isinstance(node, Lookup) or any(step.operator not in ("Affine", "Identity") for step in node.steps):
        return None
    scale, offset = np.ones(node.size), np.zeros(node.size)
    for step in node.steps:
        if step.operator == "Affine":
            a, b = (parameter[node.function] for parameter in step.parameters)
            scale, offset = scale * a, offset * a + b
    return scale, offset


def regroup(node: Linear, *details: Reals) -> tuple[Indices, Indices] | None:
    """Splits blocks until `details` [P, ..] are constant in each: old block and first position of each new one, new block of each position.

    None when that takes more than MAX_WEIGHTS weights.
    """
    rows = np.concatenate([node.block[:, None].astype(np.float64), *details], axis=1)
    _, first, block = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(first) * node.weights.shape[1] * node.weights.shape[2] > MAX_WEIGHTS:
        return None
    return first.astype(np.int64), block.reshape(-1).astype(np.int64)


def readers(graph: Graph, node: Node) -> list[Node]:
    """Returns nodes that read any wire of this one."""
    first, last = node.first_wire, node.first_wire + node.size
    return [other for other in graph.nodes if bool(((other.gather >= first) & (other.gather < last)).any())]


def reader_counts(graph: Graph) -> Indices:
    """Returns [nodes]: how many nodes read each, the output counting as one more."""
    owner, counts = graph.owners(), np.zeros(len(graph.nodes), dtype=np.int64)
    for gather in (*(node.gather for node in graph.nodes), graph.output):
        read = np.unique(owner[gather])
        counts[read[read >= 0]] += 1
    return counts


def is_output(graph: Graph, node: Node) -> bool:
    first, last = node.first_wire, node.first_wire + node.size
    return bool(((graph.output >= first) & (graph.output < last)).any())
