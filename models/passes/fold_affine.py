"""Folds the affine look-ups that are left into the linear nodes that read them; what nobody can take becomes a linear node of width 1.

y = W (scale x + offset) + b  ->  y = (W scale) x + (b + W offset)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import (
    Graph,
    Input,
    Linear,
    Lookup,
    Node,
    identity_renaming,
    wire_numbers,
    wires,
    without_dead_nodes,
)
from cloakwork.models.graph.merge_equal import affine_of, reader_counts, regroup


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


# Folds affine look-ups (batch normalisation, biases, scaling) into the linear node that they follow.
#
# y = scale (W x + b) + offset  ->  y = (scale W) x + (scale b + offset)
#
# Source: [JKC+18] folding of batch normalisation. Ours: any affine look-up.


def fold_normalisation(graph: Graph) -> Graph:
    """Folds normalisation in one sweep: nodes are replaced where they stand, and later ones read through the renaming."""
    owner, counts = graph.owners(), reader_counts(graph)
    renaming = identity_renaming(graph)
    nodes: dict[int, Node] = {}
    for position, node in enumerate(graph.nodes):
        if not isinstance(node, Input):
            node = replace(node, gather=renaming[node.gather])
        nodes[position] = node
        source = int(owner[node.gather[0]]) if isinstance(node, Lookup) else -1
        folded = _fold(nodes.get(source), node) if source >= 0 and counts[source] == 1 else None
        if folded is None:
            continue
        nodes[source] = folded
        renaming[wires(node)] = node.gather
        counts[source] = counts[position]  # who read the look-up reads the linear node now
        del nodes[position]
    return replace(graph, nodes=tuple(nodes.values()), output=renaming[graph.output])


def _fold(source: Node | None, lookup: Node) -> Linear | None:
    """Returns the linear node with the look-up in it, when that is affine and reads every wire of the node exactly once."""
    factors = affine_of(lookup)
    if factors is None or not isinstance(source, Linear) or not isinstance(lookup, Lookup):
        return None
    if not np.array_equal(np.sort(lookup.gather), wire_numbers(source)):
        return None
    return _folded_before(source, lookup, *factors)


def _folded_before(source: Linear, lookup: Lookup, scale: np.ndarray, offset: np.ndarray) -> Linear | None:
    order = lookup.gather - source.first_wire
    shape = (len(source.gather), source.weights.shape[1])
    scale_of_wire, offset_of_wire = np.empty(source.size), np.empty(source.size)
    scale_of_wire[order], offset_of_wire[order] = scale, offset
    scales, offsets = scale_of_wire.reshape(shape), offset_of_wire.reshape(shape)
    groups = regroup(source, scales, offsets)
    if groups is None:
        return None
    first, block = groups
    old = source.block[first]
    return replace(
        source,
        weights=source.weights[old] * scales[first][:, :, None],
        bias=source.bias[old] * scales[first] + offsets[first],
        block=block,
    )
