"""Folds affine look-ups (batch normalisation, biases, scaling) into the linear node that they follow.

y = scale (W x + b) + offset  ->  y = (scale W) x + (scale b + offset)

Source: [JKC+18] folding of batch normalisation. Ours: any affine look-up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.graph.affine import affine_of, reader_counts, regroup
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, identity_renaming, wire_numbers, wires


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
    return _folded(source, lookup, *factors)


def _folded(source: Linear, lookup: Lookup, scale: np.ndarray, offset: np.ndarray) -> Linear | None:
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
