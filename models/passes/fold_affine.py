"""Folds the affine look-ups that are left into the linear nodes that read them; what nobody can take becomes a linear node of width 1.

y = W (scale x + offset) + b  ->  y = (W scale) x + (b + W offset)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.affine import affine_of, regroup
from cloakwork.models.graph.ir import Graph, Linear, Lookup, Node, identity_renaming, wires, without_dead_nodes


def fold_affine(graph: Graph) -> Graph:
    scale, offset = np.ones(graph.wire_count + 1), np.zeros(graph.wire_count + 1)
    source = identity_renaming(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        factors = affine_of(node)
        if isinstance(node, Lookup) and factors is not None:
            scale[wires(node)] = factors[0] * scale[node.gather]
            offset[wires(node)] = factors[0] * offset[node.gather] + factors[1]
            source[wires(node)] = source[node.gather]
            nodes.append(_as_linear(node, source[wires(node)], scale[wires(node)], offset[wires(node)]))
        elif isinstance(node, Linear):
            nodes.append(_folded(node, scale[node.gather], offset[node.gather], source) or node)
        else:
            nodes.append(node)
    return without_dead_nodes(replace(graph, nodes=tuple(nodes)))


def _folded(node: Linear, scale: Reals, offset: Reals, source: np.ndarray) -> Linear | None:
    if bool((scale == 1).all() and (offset == 0).all()):
        return replace(node, gather=source[node.gather])
    groups = regroup(node, scale, offset)
    if groups is None:
        return None
    first, block = groups
    weights = node.weights[node.block[first]]
    return replace(
        node,
        gather=source[node.gather],
        weights=weights * scale[first][:, None, :],
        bias=node.bias[node.block[first]] + np.einsum("grk,gk->gr", weights, offset[first]),
        block=block,
    )


def _as_linear(node: Lookup, source: Indices, scale: Reals, offset: Reals) -> Linear:
    """Returns a row for each number, on what the first of a chain of affine look-ups reads."""
    distinct, block = np.unique(np.stack([scale, offset], axis=1), axis=0, return_inverse=True)
    return Linear(
        node.first_wire,
        source[:, None],
        block.reshape(-1).astype(np.int64),
        np.ascontiguousarray(distinct[:, :1, None]),
        np.ascontiguousarray(distinct[:, 1:]),
        node.origin,
    )
