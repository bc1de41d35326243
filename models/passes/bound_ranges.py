"""Bounds every wire: by tails fitted to what calibration data shows, or its extremes and a margin, and no more than interval arithmetic allows.

Rows that share weights share a range. A value outside of it reads the value of its end while it is in the guard of the table, some standard
deviations of noise wide; what lies beyond that is close to the value of the end as well (equalise_lookups).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.approximate.integer_rows import holds_integers
from cloakwork.models.arrays import Reals
from cloakwork.models.calibration import Calibration, far_answers, observe
from cloakwork.models.errors import CompileError, some
from cloakwork.models.graph.ir import Graph, Linear, Lookup, check, wires
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.graph.steps import Step, apply_steps

_LEAST_SHARE = 2.0**-6  # of the range of interval arithmetic that a row gets at least
_MARGIN = 0.1  # where tails are unknown
_ROOM = 1.5  # times what an output is expected to reach
_NO_CHANCE = 8  # weights in a row that are not integers of one step by chance
_GRID = 257  # points at which a look-up is evaluated for the range of its values


def bound_ranges(graph: Graph, calibration: ArrayLike | Calibration, margin: float | None = None) -> Graph:
    """Sets the ranges of all rows.

    Args:
        calibration: [samples, ..], or what was observed of it.
        margin: part of the calibrated half range added on either side of the extremes; None: fitted tails, where they are known.
    """
    seen = calibration if isinstance(calibration, Calibration) else observe(graph, calibration)
    seen.check(graph)
    lower, upper = np.zeros(graph.wire_count), np.zeros(graph.wire_count)
    lower[wires(graph.input)], upper[wires(graph.input)] = seen.input_range
    fitted = margin is None and seen.reach is not None
    margin = 0.0 if fitted else _MARGIN if margin is None else margin
    rows = iter(seen.reach if fitted and seen.reach is not None else seen.rows)
    for node in graph.nodes[1:]:
        if isinstance(node, Linear):
            lower[wires(node)], upper[wires(node)] = _linear_bounds(node, *next(rows), lower, upper, margin)
        elif isinstance(node, Lookup):
            lower[wires(node)], upper[wires(node)] = lookup_bounds(node, lower, upper)
    return check(replace(graph, lower=lower, upper=upper))


def room_for_answers(graph: Graph, samples: Reals | None = None) -> Graph:
    """Adds room to ranges of outputs on either side: no table holds them at their end, and an answer too far outside comes back on the other side.

    An output gets one and a half times its range, and as many times what its terms make when they are at their ends independently of each other,
    no more than interval arithmetic allows; and all that it reaches for inputs far from the samples, where terms that have to do with each other
    are at their ends together (far_inputs). Weights that are integers already, as quantised training leaves them, stay so at their own scale.
    """
    return room_for_far_answers(_with_ends(graph, partial(_with_room, graph)), samples)


def room_for_far_answers(graph: Graph, samples: Reals | None = None) -> Graph:
    """Returns ranges of outputs with all that they reach for inputs far from the samples."""
    low, high = np.full(graph.wire_count + 1, np.inf), np.full(graph.wire_count + 1, -np.inf)
    low[graph.output.reshape(-1)], high[graph.output.reshape(-1)] = far_answers(graph, samples)

    def ends(node: Linear) -> tuple[Reals, Reals]:
        assert graph.lower is not None and graph.upper is not None
        node_wires = wires(node)
        return np.minimum(graph.lower[node_wires], low[node_wires]), np.maximum(
            graph.upper[node_wires], high[node_wires]
        )

    return _with_ends(graph, ends)


def _with_ends(graph: Graph, ends: Callable[[Linear], tuple[Reals, Reals]]) -> Graph:
    """With other ranges of outputs. Args: ends: of a node's rows [wires of the node], at least those that it has."""
    assert graph.lower is not None and graph.upper is not None
    lower, upper = graph.lower.copy(), graph.upper.copy()
    for node in graph.linears:
        if is_output(graph, node):
            lower[wires(node)], upper[wires(node)] = of_blocks(node, *ends(node))
    return check(replace(graph, lower=lower, upper=upper))


def _with_room(graph: Graph, node: Linear) -> tuple[Reals, Reals]:
    """Ranges [wires of the node] of an output, by what its terms reach independently of each other."""
    assert graph.lower is not None and graph.upper is not None
    lower, upper = graph.lower[wires(node)], graph.upper[wires(node)]
    if node.weights.shape[2] >= _NO_CHANCE and holds_integers(node):
        return lower, upper
    low, high = (side.reshape(-1) for side in interval(node, graph.lower, graph.upper))
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    spread = _independent(node, (graph.upper - graph.lower) / 2).reshape(-1)
    least = np.minimum(middle - _ROOM * half, (low + high) / 2 - _ROOM * spread)
    most = np.maximum(middle + _ROOM * half, (low + high) / 2 + _ROOM * spread)
    return np.minimum(lower, np.maximum(least, low)), np.maximum(upper, np.minimum(most, high))


def of_blocks(node: Linear, low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Returns ranges [wires of the node] that all positions of a block share."""
    least, most = np.full(node.bias.shape, np.inf), np.full(node.bias.shape, -np.inf)
    np.minimum.at(least, node.block, low.reshape(len(node.gather), -1))
    np.maximum.at(most, node.block, high.reshape(len(node.gather), -1))
    return least[node.block].reshape(-1), most[node.block].reshape(-1)


def _independent(node: Linear, half: Reals) -> Reals:
    """Returns [P, R]: root of the sum of squares of what the terms of each row reach. Args: half: half ranges [wires]."""
    square = np.square(np.append(half, 0.0))[node.gather]
    result = np.empty((len(node.gather), node.weights.shape[1]))
    for block in np.unique(node.block):
        chosen = node.block == block
        result[chosen] = np.sqrt(square[chosen] @ np.square(node.weights[block]).T)
    return result


def _linear_bounds(
    node: Linear, observed_low: Reals, observed_high: Reals, lower: Reals, upper: Reals, margin: float
) -> tuple[Reals, Reals]:
    """Args: observed_low, observed_high [blocks, rows]."""
    low, high = interval(node, lower, upper)
    least, most = np.full(node.bias.shape, np.inf), np.full(node.bias.shape, -np.inf)
    np.minimum.at(least, node.block, low)
    np.maximum.at(most, node.block, high)
    # A row that calibration saw (almost) constant still varies: pixels that were always 0, say.
    possible = np.where(np.isfinite(most - least), most - least, 0)
    width = (1 + margin) * (observed_high - observed_low)
    slack = (np.maximum(width, _LEAST_SHARE * possible) - (observed_high - observed_low)) / 2
    least = np.maximum(observed_low - slack, least)[node.block].reshape(-1)
    most = np.minimum(observed_high + slack, most)[node.block].reshape(-1)
    return least, np.maximum(least, most)


def interval(node: Linear, lower: Reals, upper: Reals) -> tuple[Reals, Reals]:
    """Returns least and largest values [P, R] for values of the wires between lower and upper [wires]."""
    low, high = np.empty((2, len(node.gather), node.weights.shape[1]))
    below, above = np.append(lower, 0.0)[node.gather], np.append(upper, 0.0)[node.gather]
    for block in range(len(node.weights)):
        chosen = node.block == block
        positive, negative = np.maximum(node.weights[block], 0), np.minimum(node.weights[block], 0)
        low[chosen] = below[chosen] @ positive.T + above[chosen] @ negative.T + node.bias[block]
        high[chosen] = above[chosen] @ positive.T + below[chosen] @ negative.T + node.bias[block]
    return low, high


def lookup_bounds(node: Lookup, lower: Reals, upper: Reals) -> tuple[Reals, Reals]:
    low, high = np.append(lower, 0.0)[node.gather], np.append(upper, 0.0)[node.gather]
    steps = node.steps
    if steps and steps[0].operator == "Gate":  # whether it is open is no matter of the range
        high = steps[0].parameters[2][node.function]
        low, steps = -high, steps[1:]
    grid = low + np.linspace(0, 1, _GRID)[:, None] * (high - low)
    y = apply_steps(steps, grid, node.function)
    if any(step.operator == "Equal" for step in steps):  # which holds at points that a grid does not meet
        y = np.concatenate([y, apply_steps([_holding(step) for step in steps], grid, node.function)])
    if not np.isfinite(y).all():
        names = some(step.operator for step in node.steps)
        raise CompileError(
            f"look-up '{node.origin}' ({names}): not finite somewhere in its calibrated range; clip its input to where it is defined"
        )
    return y.min(axis=0), y.max(axis=0)


def _holding(step: Step) -> Step:
    """Returns what always holds in place of an equality."""
    if step.operator != "Equal":
        return step
    return replace(step, operator="GreaterOrEqual", parameters=tuple(np.full_like(p, -np.inf) for p in step.parameters))
