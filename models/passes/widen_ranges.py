"""Room for values beyond a range: just beyond it, where a look-up would make nonsense of them, and further out, for inputs unlike the samples.

A table continues with the opposite sign (beyond_ranges.py): beyond the upper end by d it reads f(high) - (f(low + d) - f(low)). That lies between
the value of the end and the true one, or about there, for what is flat at the other end (ReLU, sigmoid) or is mirrored there (a square). Roots,
logarithms and quotients move fast at one end and hardly at the other: what is a little too large reads as if it were far smaller. Ranges end where
one value in ten thousand lies beyond, which is one sample in a hundred or two of a layer with as many numbers: such rows get a quarter of their
width more. Look-ups with a line beside them stay: how much of it passes was chosen by what they read beyond.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup, check, wires
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.passes.bound_ranges import lookup_bounds, of_blocks
from cloakwork.models.passes.carry_lines import beside_line, function_values, reachable
from cloakwork.models.runtime.interpreter import samples_at_once, wire_values

_ROOM: Final = 0.25  # of the width of a range, beyond an end
_NEAR: Final = 0.06  # of the width, beyond an end: as far as values get that tails did not foresee
_NONSENSE: Final = 0.2  # of how far values over the range lie apart: so far from both the end's value and the true one
_HELD: Final = 0.25  # of the width, beyond an end, that values of inputs unlike the samples get no room for
_PARTS: Final = np.linspace(0, 1, 17)[:, None]
_GROWS: Final = 1.0  # times that distance, which values in the room may lie outside of the others


def widen_ranges(graph: Graph) -> Graph:
    """Returns the same graph where no range is too narrow. Args: graph: with ranges (bound_ranges), levelled. Those of inputs and outputs stay."""
    assert graph.lower is not None and graph.upper is not None
    lower, upper = graph.lower.copy(), graph.upper.copy()
    below, above = _nonsense(graph)
    if not (below | above).any():
        return graph
    for node in graph.nodes[1:]:
        node_wires = wires(node)
        if isinstance(node, Linear):
            width = graph.upper[node_wires] - graph.lower[node_wires]
            lower[node_wires], upper[node_wires] = of_blocks(
                node,
                lower[node_wires] - _ROOM * width * below[node_wires],
                upper[node_wires] + _ROOM * width * above[node_wires],
            )
        elif isinstance(node, Lookup) and (below | above)[node.gather].any():
            lower[node_wires], upper[node_wires] = lookup_bounds(node, lower, upper)
    return check(replace(graph, lower=lower, upper=upper))


def reach_far(graph: Graph, inputs: Reals, most: float) -> Graph:
    """Widens ranges with room for what rows reach for inputs unlike the samples, all but a quarter of a width, which reads about as the end does.

    Args:
        graph: as `widen_ranges` takes it.
        inputs: [inputs, ..], of far_inputs.mixed_inputs.
        most: of the width, that either end may move.
    """
    assert graph.lower is not None and graph.upper is not None
    lower, upper = graph.lower.copy(), graph.upper.copy()
    low, high = _extremes(graph, inputs)
    for node in graph.nodes[1:]:
        node_wires = wires(node)
        if isinstance(node, Linear) and not is_output(graph, node):
            width = graph.upper[node_wires] - graph.lower[node_wires]
            below = np.clip(graph.lower[node_wires] - low[node_wires] - _HELD * width, 0, most * width)
            above = np.clip(high[node_wires] - graph.upper[node_wires] - _HELD * width, 0, most * width)
            lower[node_wires], upper[node_wires] = of_blocks(node, lower[node_wires] - below, upper[node_wires] + above)
        elif isinstance(node, Lookup):
            lower[node_wires], upper[node_wires] = lookup_bounds(node, lower, upper)
    return check(replace(graph, lower=lower, upper=upper))


def _extremes(graph: Graph, inputs: Reals) -> tuple[Reals, Reals]:
    """Returns least and largest value [wires] for inputs [inputs, ..]."""
    low, high = np.full(graph.wire_count, np.inf), np.full(graph.wire_count, -np.inf)
    size = samples_at_once(graph)
    for start in range(0, len(inputs), size):
        values = wire_values(graph, inputs[start : start + size])[:, : graph.wire_count]
        low, high = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
    return low, high


def _nonsense(graph: Graph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns [wires]: whether a look-up makes nonsense of what lies a little below the range of a row, or above it, and room for that costs it
    little."""
    assert graph.lower is not None and graph.upper is not None
    reach = reachable(graph)
    below, above = np.zeros((2, graph.wire_count), dtype=bool)
    for node in graph.lookups:
        if node.shifts is not None or node.is_exact:
            continue
        low, high = graph.lower[node.gather], graph.upper[node.gather]
        width = high - low
        inside = function_values(node, low + _PARTS * width)
        for wrong, end, other, beyond in (
            (above, high, low, np.minimum(reach[1][node.gather] - high, _NEAR * width)),
            (below, low, high, -np.minimum(low - reach[0][node.gather], _NEAR * width)),
        ):
            near = _PARTS * np.where(beyond * (end - other) > 0, beyond, 0.0)
            room = function_values(node, end + _PARTS * np.sign(beyond) * _ROOM * width)
            true, moved = function_values(node, end + near), function_values(node, other + near)
            wrong[node.gather] |= _is_nonsense(inside, true, moved) & _is_tame(inside, room) & ~beside_line(node)
    return below, above


def _is_nonsense(inside: Reals, true: Reals, moved: Reals) -> NDArray[np.bool_]:
    """[look-ups]. Args, [points, look-ups]: inside: values over the range; true: beyond its end, from there on; moved: from the other end on."""
    read = true[0] - (moved - moved[0])
    off = np.maximum(read - np.maximum(true[0], true), np.minimum(true[0], true) - read)
    return np.asarray((off > _NONSENSE * np.ptp(inside, axis=0)).any(axis=0))


def _is_tame(inside: Reals, room: Reals) -> NDArray[np.bool_]:
    """Returns [look-ups]: whether values in the room are finite, and not much larger than the others."""
    least, most = inside.min(axis=0), inside.max(axis=0)
    grows = _GROWS * (most - least)
    return np.asarray(((room >= least - grows) & (room <= most + grows)).all(axis=0))
