"""Lets what is straight in a function pass beside its look-up.

    f(x) = g(x) + a x,   W f(x) = W g(x) + (W a) x

x is a row of weights on what came before, so that readers can take a x from there, without a look-up between: the noise of the look-up's input
then acts through f' - a alone, and the table holds g, whose values reach less far. With a the mean slope, the share mean(f')^2 / mean(f'^2) of that
noise's variance is gone: all of it where a ReLU is always active, as in networks on raw columns whose layers take large sums from each other,
most of it where a sigmoid or tanh hardly bends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Linear, Lookup, Node, check, wire_numbers, wires
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.graph.steps import Step
from cloakwork.models.passes.beyond_ranges import greatest_lines, reachable
from cloakwork.models.passes.equalise_lookups import shared_rows
from cloakwork.models.passes.integer_rows import holds_integers
from cloakwork.models.passes.separate_levels import WEIGHTS_PER_BOOTSTRAP, separate_levels
from cloakwork.models.passes.statistics import Statistics, slopes

_LEAST_GAIN: Final = 0.5  # of the noise's variance that has to go
_MOST_POSITIONS: Final = (
    8  # of a reader; the windows of convolutions on convolutions would be wider, in many patterns of padding
)
_MOST_PRODUCTS: Final = WEIGHTS_PER_BOOTSTRAP // 4  # more, for each look-up: a quarter of the time that it takes


def carry_lines(graph: Graph, stats: Statistics) -> Graph | None:
    """Returns the graph without ranges, its look-ups holding what is not straight; None where nothing is to be gained.

    Args:
        graph: with ranges (bound_ranges), levelled.
        stats: of samples, for this graph.
    """
    share = _straight_parts(graph, stats)
    if not share.any():
        return None
    nodes: list[Node] = []
    next_wire = graph.wire_count
    for node in graph.nodes:
        slope = share[wires(node)]
        if isinstance(node, Lookup) and slope.any():
            bent = replace(_less(node, slope), first_wire=next_wire)
            next_wire += bent.size
            nodes += [bent, _sum(node, bent, slope)]
        else:
            nodes.append(node)
    bare = replace(graph, nodes=tuple(nodes), lower=None, upper=None)
    try:
        result = merge_equal(separate_levels(check(bare)))
    except CompileError:  # too many weights
        return None
    if result.bootstraps > graph.bootstraps or _products(result) > _products(graph) + _MOST_PRODUCTS * graph.bootstraps:
        return None
    return result


def _straight_parts(graph: Graph, stats: Statistics) -> Reals:
    """Returns [wires]: the slope a of what passes beside a look-up; 0 where little is gained, for readers with many positions, and where integers
    should stay what they are."""
    assert stats.values is not None
    result = np.zeros(graph.wire_count)
    origin, reach = shared_rows(graph), reachable(graph)
    for node in graph.lookups:
        if node.shifts is not None or not node.steps:  # without steps: what refreshes
            continue
        slope = slopes(graph, node, stats.values)
        first, second = slope.mean(axis=0), np.square(slope).mean(axis=0)
        _, row = np.unique(origin[node.gather], return_inverse=True)  # positions of one row have one slope
        row, count = row.reshape(-1), np.bincount(row.reshape(-1))
        first, second = ((np.bincount(row, weights=moment) / count)[row] for moment in (first, second))
        share = greatest_lines(graph, node, first, reach)
        least = np.ones(len(count))
        np.minimum.at(least, row, share)
        line = least[row] * first
        result[wires(node)] = np.where((2 * first - line) * line > _LEAST_GAIN * second, line, 0.0)
    for linear in graph.linears:
        if holds_integers(linear) or len(linear.gather) > _MOST_POSITIONS:
            read = np.unique(linear.gather)
            result[read[read >= 0]] = 0.0
    return result


def _less(node: Lookup, slope: Reals) -> Lookup:
    """Returns f(x) - slope x"""
    keys = np.stack([node.function.astype(np.float64), -slope], axis=1)
    distinct, function = np.unique(keys, axis=0, return_inverse=True)
    old, count = distinct[:, 0].astype(np.int64), len(distinct)
    last = Step("Sum", (np.ones(count), distinct[:, 1].copy(), np.zeros(count)), (1, len(node.steps) + 1))
    steps = (*(step.select(old) for step in node.steps), last)
    return replace(node, steps=steps, function=function.reshape(-1).astype(np.int64))


def beside_line(node: Lookup) -> NDArray[np.bool_]:
    """Returns [look-ups]: whether each holds what is not straight of a function, f(x) - slope x."""
    last = node.steps[-1] if node.steps else None
    if last is None or last.operator != "Sum" or last.reads != (1, len(node.steps)):
        return np.zeros(len(node.gather), dtype=bool)
    return np.asarray(last.parameters[1][node.function] != 0)


def _sum(node: Lookup, bent: Lookup, slope: Reals) -> Linear:
    """On the wires of the look-up as it was."""
    distinct, block = np.unique(slope, return_inverse=True)
    straight = np.where(slope != 0, node.gather, ZERO_WIRE)
    weights = np.stack([np.ones_like(distinct), distinct], axis=1)[:, None, :]
    gather = np.stack([wire_numbers(bent), straight], axis=1)
    return Linear(
        node.first_wire, gather, block.reshape(-1).astype(np.int64), weights, np.zeros((len(distinct), 1)), node.origin
    )


def _products(graph: Graph) -> int:
    return sum(len(node.gather) * node.weights.shape[1] * node.weights.shape[2] for node in graph.linears)
