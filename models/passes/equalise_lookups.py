"""Gives every look-up's result an offset and a factor of its own, so that one scale suits all that a layer reads and no value wraps far.

    u = (f(x) - centre) factor,   W f(x) = (W / factor) u + W centre

Both are free: tables hold any function, and what they are undone by goes into the weights and the bias of the readers.

The table of a look-up covers half the torus and continues with the opposite sign, T(phase + 1/2) = -T(phase). With the centre halfway between
the values at its ends the continuation is without a jump: a value beyond the upper end by d reads 2 centre - f(low + d), which for a function
that is flat at the low end (ReLU, sigmoid) is the value at the upper end, and in general is off by as little as the function moves over d.

The factor equalises across the look-up. With s the scale of a wire, the error of a reader's row is noise sigma W / s and rounding s x / S,
S the scale of the row; over all rows the sum of squares A / s^2 + B s^2 is least at s = (A / B)^(1/4).
Cross-layer equalisation has the same form without the noise.

Source: [NBBW19]. Ours: weighs by sensitivity, with the noise of encryption; look-ups may have any function.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.approximate.integer_rows import holds_integers
from cloakwork.models.approximate.statistics import Statistics
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup, Node, check, wires
from cloakwork.models.graph.merge_equal import regroup
from cloakwork.models.graph.steps import Step, apply_steps

_WIDEST = 64.0  # factors stay within this of their median, either way


def equalise_lookups(graph: Graph, stats: Statistics) -> tuple[Graph, Statistics]:
    """Returns the graph and what is known of it. Args: graph: with ranges (bound_ranges), levelled. Wires keep their numbers."""
    groups = _groups(graph)
    centre, factor = _centres(graph, groups), _factors(graph, groups, stats)
    for chosen in (centre, np.zeros_like(centre)):
        moved = _applied(graph, chosen, factor)
        if moved is not None:
            return moved, stats.moved(chosen, factor)
    return graph, stats


def _applied(graph: Graph, centre: Reals, factor: Reals) -> Graph | None:
    """Args: centre, factor [wires + 1], 0 and 1 but for results of look-ups. None when it takes too many weights."""
    assert graph.lower is not None and graph.upper is not None
    lower, upper = graph.lower.copy(), graph.upper.copy()
    nodes: list[Node] = []
    for node in graph.nodes:
        node_wires = wires(node)
        if isinstance(node, Lookup):
            lower[node_wires] = (lower[node_wires] - centre[node_wires]) * factor[node_wires]
            upper[node_wires] = (upper[node_wires] - centre[node_wires]) * factor[node_wires]
            nodes.append(_shifted(node, centre[node_wires], factor[node_wires]))
        elif isinstance(node, Linear):
            moved = undone(node, centre, factor)
            if moved is None:
                return None
            nodes.append(moved)
        else:
            nodes.append(node)
    return check(replace(graph, nodes=tuple(nodes), lower=lower, upper=upper))


def _shifted(node: Lookup, centre: Reals, factor: Reals) -> Lookup:
    if not centre.any() and bool((factor == 1).all()):
        return node
    keys = np.stack([node.function.astype(np.float64), factor, -centre * factor], axis=1)
    distinct, function = np.unique(keys, axis=0, return_inverse=True)
    old = distinct[:, 0].astype(np.int64)
    last = Step("Affine", (distinct[:, 1].copy(), distinct[:, 2].copy()))
    steps = (*(step.select(old) for step in node.steps), last)
    return replace(node, steps=steps, function=function.reshape(-1).astype(np.int64))


def undone(node: Linear, centre: Reals, factor: Reals) -> Linear | None:
    """Returns the reader of moved and scaled wires. Positions with padding, which is zero and not the centre, get a bias of their own; None when that
    takes too many weights."""
    columns = np.ones((len(node.weights), node.gather.shape[1]))
    moved = np.zeros((len(node.gather), node.weights.shape[1]))
    for block in np.unique(node.block):
        chosen = np.flatnonzero(node.block == block)
        gather = node.gather[chosen]
        seen = np.where(gather >= 0, factor[gather], 0.0).max(axis=0)  # the same for all, but for padding
        columns[block] = np.where(seen > 0, seen, 1.0)
        moved[chosen] = centre[gather] @ node.weights[block].T
    weights = node.weights / columns[:, None, :]
    if not moved.any():
        return replace(node, weights=weights)
    split = regroup(node, moved)
    if split is None:
        return None
    first, block = split
    old = node.block[first]
    return replace(node, weights=weights[old], bias=node.bias[old] + moved[first], block=block)


def _groups(graph: Graph) -> Indices:
    """Returns [wires + 1]: wires with the same number have the same centre and factor: those that one column of weights reads, and those that
    look-ups make from one row; -1 for other wires than results of look-ups."""
    elements, keys, origin = [], [], shared_rows(graph)
    count = sum(node.bias.size for node in graph.linears)
    is_result = np.zeros(graph.wire_count + 1, dtype=bool)
    for lookup in graph.lookups:
        node_wires = wires(lookup)
        is_result[node_wires] = True
        elements.append(np.arange(node_wires.start, node_wires.stop))
        keys.append(np.repeat(origin[lookup.gather], lookup.size // len(lookup.gather)))
    for node in graph.linears:
        width = node.gather.shape[1]
        key = count + node.block[:, None] * width + np.arange(width)
        read = is_result[node.gather] & (node.gather >= 0)
        elements.append(node.gather[read])
        keys.append(np.broadcast_to(key, node.gather.shape)[read])
        count += len(node.weights) * width
    result = np.where(is_result, np.arange(graph.wire_count + 1), -1)
    if not elements:
        return result
    wire, key = np.concatenate(elements), np.concatenate(keys)
    while True:
        least = np.full(count, graph.wire_count, dtype=np.int64)
        np.minimum.at(least, key, result[wire])
        smaller = result.copy()
        np.minimum.at(smaller, wire, least[key])
        if bool((smaller == result).all()):
            return result
        result = smaller


def shared_rows(graph: Graph) -> Indices:
    """Returns [wires]: a number for each row of weights, of which results at several positions come."""
    result, count = np.zeros(graph.wire_count, dtype=np.int64), 0
    for node in graph.linears:
        rows = node.weights.shape[1]
        result[wires(node)] = (count + node.block[:, None] * rows + np.arange(rows)).reshape(-1)
        count += node.bias.size
    return result


def _centres(graph: Graph, groups: Indices) -> Reals:
    """Returns [wires + 1]: halfway between the values at the ends of the look-ups' ranges, the mean of a group."""
    assert graph.lower is not None and graph.upper is not None
    ends = np.zeros(graph.wire_count + 1)
    for node in graph.lookups:
        low, high = graph.lower[node.gather], graph.upper[node.gather]
        first, last = (apply_steps(node.steps, end[None], node.function)[0] for end in (low, high))
        ends[wires(node)] = np.repeat((first + last) / 2, node.size // len(node.gather))
    return _mean_of_groups(ends, groups)


def _mean_of_groups(values: Reals, groups: Indices) -> Reals:
    result = np.zeros_like(values)
    inside = groups >= 0
    _, index = np.unique(groups[inside], return_inverse=True)
    index = index.reshape(-1)
    total, count = np.bincount(index, weights=values[inside]), np.bincount(index)
    result[inside] = (total / np.maximum(count, 1))[index]
    return result


def _factors(graph: Graph, groups: Indices, stats: Statistics) -> Reals:
    """Returns [wires + 1]: (A / B)^(1/4) of each group, within bounds; 1 where a reader's weights are integers that should stay."""
    noise, rounding = np.zeros((2, graph.wire_count + 1))
    kept = np.zeros(graph.wire_count + 1, dtype=bool)
    assert graph.lower is not None and graph.upper is not None
    half = np.maximum((graph.upper - graph.lower) / 2, 0.0)
    for node in graph.linears:
        read = (groups[node.gather] >= 0) & (node.gather >= 0)
        if not read.any():
            continue
        if holds_integers(node):
            kept[node.gather[read]] = True
        weight = np.square(stats.row_sensitivity(node))
        shape = (len(node.gather), node.weights.shape[1])
        reach = np.zeros(node.bias.shape)  # half range of a row: 1 / S but for a constant
        np.maximum.at(reach, node.block, half[wires(node)].reshape(shape))
        _, variance = stats.column_moments(graph, node)
        gain = np.einsum("gr,grk->gk", weight, np.square(node.weights))
        load = variance * np.einsum("gr,gr->g", weight, np.square(reach))[:, None]
        for block in np.unique(node.block):  # once: sensitivities are of all its positions
            column = node.gather[node.block == block].max(axis=0)
            grouped = (column >= 0) & (groups[column] >= 0)
            np.add.at(noise, column[grouped], gain[block][grouped])
            np.add.at(rounding, column[grouped], load[block][grouped])
    return _bounded_factors(groups, noise, rounding, kept)


def _bounded_factors(groups: Indices, noise: Reals, rounding: Reals, kept: np.ndarray) -> Reals:
    result = np.ones(len(groups))
    inside = groups >= 0
    names, index = np.unique(groups[inside], return_inverse=True)
    index = index.reshape(-1)
    a, b = np.bincount(index, weights=noise[inside]), np.bincount(index, weights=rounding[inside])
    fixed = np.bincount(index, weights=kept[inside]) > 0
    known = (a > 0) & (b > 0) & ~fixed
    if not known.any():
        return result
    factor = np.ones(len(names))
    factor[known] = (a[known] / b[known]) ** 0.25
    factor[known] = np.clip(factor[known] / float(np.median(factor[known])), 1 / _WIDEST, _WIDEST)
    result[inside] = factor[index]
    return result
