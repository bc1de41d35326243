"""Lets what is straight in a function pass beside its look-up.

    f(x) = g(x) + a x,   W f(x) = W g(x) + (W a) x

x is a row of weights on what came before, so that readers can take a x from there, without a look-up between: the noise of the look-up's input
then acts through f' - a alone, and the table holds g, whose values reach less far. With a the mean slope, the share mean(f')^2 / mean(f'^2) of that
noise's variance is gone: all of it where a ReLU is always active, as in networks on raw columns whose layers take large sums from each other,
most of it where a sigmoid or tanh hardly bends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.approximate.integer_rows import holds_integers
from cloakwork.models.approximate.statistics import Statistics, slopes
from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Linear, Lookup, Node, check, wire_numbers, wires
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.graph.steps import Step, apply_steps
from cloakwork.models.passes.bound_ranges import interval
from cloakwork.models.passes.equalise_lookups import shared_rows
from cloakwork.models.passes.separate_levels import WEIGHTS_PER_BOOTSTRAP, separate_levels

# Results of look-ups for values beyond the range of their row, with and without a straight part beside them.
#
# A table covers half the torus and continues with the opposite sign, T(phase + 1/2) = -T(phase); it is centred between the values at the two ends of
# its range, low and high, so that the continuation has no jump (equalise_lookups). With L = high - low, of what the readers get as f,
#
#     h(high + d) = f(high) + 2 a d - (f(low + d) - f(low)),    h(low - d) = f(low) - 2 a d + (f(high) - f(high - d)),    0 <= d <= L,
#
# for f(x) = g(x) + a x with g in the table. Without a line, a = 0, that is the value of the end where f is flat at the other end, and off by as
# much as f moves there. A line is a help where f is about straight, ReLUs that are always active, and harm where f is flat outside:
# `greatest_lines` keeps of it what leaves values beyond the range no further from f than they are without a line, or than the value of the end is.

_POINTS: Final = 33  # of the range and of each side of it
_FAR: Final = 0.75  # of the width of the range, beyond either end
_SHARES: Final = (1.0, 0.75, 0.5)  # of a line that are tried
_NEGLIGIBLE: Final = 0.02  # of how far f's values over the range lie apart


def reachable(graph: Graph) -> tuple[Reals, Reals]:
    """Returns least and largest value [wires] of every row for inputs within their range: interval arithmetic, of look-ups at some points."""
    assert graph.lower is not None and graph.upper is not None
    low, high = graph.lower.copy(), graph.upper.copy()
    for node in graph.nodes[1:]:
        node_wires = wires(node)
        if isinstance(node, Linear):
            least, most = interval(node, low, high)
            low[node_wires], high[node_wires] = least.reshape(-1), most.reshape(-1)
        elif isinstance(node, Lookup) and node.shifts is None:
            grid = np.linspace(low[node.gather], high[node.gather], _POINTS)
            values = function_values(node, grid)
            low[node_wires] = np.fmin(low[node_wires], np.fmin.reduce(values))
            high[node_wires] = np.fmax(high[node_wires], np.fmax.reduce(values))
    return low, high


def greatest_lines(graph: Graph, node: Lookup, slope: Reals, reach: tuple[Reals, Reals]) -> Reals:
    """Returns [look-ups]: the share of `slope` that may pass beside each look-up; 0 where none may.

    Args:
        graph: with ranges (bound_ranges).
        slope: [look-ups], of the line f(x) - g(x).
        reach: of `reachable`.
    """
    assert graph.lower is not None and graph.upper is not None
    low, high = graph.lower[node.gather], graph.upper[node.gather]
    width = high - low
    parts = np.linspace(0, 1, _POINTS)[:, None]
    inside = function_values(node, low + parts * width)
    above = parts * np.clip(reach[1][node.gather] - high, 0, _FAR * width)
    below = parts * np.clip(low - reach[0][node.gather], 0, _FAR * width)
    sides = (
        _Side(function_values(node, high + above), inside[-1], function_values(node, low + above) - inside[0], above),
        _Side(function_values(node, low - below), inside[0], function_values(node, high - below) - inside[-1], -below),
    )
    least = _NEGLIGIBLE * (inside.max(axis=0) - inside.min(axis=0))
    share = np.zeros(len(low))
    for tried in _SHARES:
        fits = np.logical_and.reduce([side.stays(tried * slope, least) for side in sides])
        share = np.where((share == 0) & fits, tried, share)
    return share


@dataclass(frozen=True, eq=False)
class _Side:
    """Values beyond one end of the range, [points, look-ups] from the end outwards.

    Args:
        reference: f.
        end: [look-ups]: f at the end.
        moves: by how much f moves from the other end on, over the same distance.
        distance: from the end, signed.
    """

    reference: Reals
    end: Reals
    moves: Reals
    distance: Reals

    def stays(self, line: Reals, least: Reals) -> NDArray[np.bool_]:
        """Returns [look-ups]: whether, as far out as any point, the error is at most what it is without a line, or with the value of the end. Args:
        line: slopes [look-ups]; least: errors that do not count."""
        error, bare = self._error(self.end + 2 * line * self.distance - self.moves), self._error(self.end - self.moves)
        held = self._error(np.broadcast_to(self.end, self.reference.shape))
        return np.asarray((error <= np.maximum(np.maximum(bare, held), least)).all(axis=0))

    def _error(self, read: Reals) -> Reals:
        return np.asarray(np.maximum.accumulate(np.abs(read - self.reference), axis=0))


def function_values(node: Lookup, x: Reals) -> Reals:
    with np.errstate(all="ignore"):
        return np.asarray(apply_steps(node.steps, x, node.function))


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
