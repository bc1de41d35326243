"""Folds affine look-ups (batch normalisation, biases, scaling) into the linear node that they follow.

y = scale (W x + b) + offset  ->  y = (scale W) x + (scale b + offset)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.ir import Graph, Linear, Lookup, identity_renaming, rename, wire_numbers, wires
from cloakwork.models.passes.affine import affine_of, is_output, readers, regroup


def fold_normalisation(graph: Graph) -> Graph:
    for lookup in graph.lookups:
        graph = _fold(graph, lookup.first_wire)
    return graph


def _fold(graph: Graph, first_wire: int) -> Graph:
    """The look-up at this wire, when it reads every wire of one linear node exactly once and nobody else does."""
    lookup = next(node for node in graph.nodes if node.first_wire == first_wire)
    factors = affine_of(lookup)
    source = next((node for node in graph.linears if node.first_wire == int(lookup.gather.min())), None)
    if factors is None or source is None or not isinstance(lookup, Lookup):
        return graph
    if not np.array_equal(np.sort(lookup.gather), wire_numbers(source)):
        return graph
    if len(readers(graph, source)) > 1 or is_output(graph, source):
        return graph
    folded = _folded(source, lookup, *factors)
    if folded is None:
        return graph
    renaming = identity_renaming(graph)
    renaming[wires(lookup)] = lookup.gather
    nodes = [folded if node is source else node for node in graph.nodes if node is not lookup]
    return rename(graph, renaming, nodes)


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
