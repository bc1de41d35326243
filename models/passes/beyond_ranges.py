"""Results of look-ups for values beyond the range of their row, with and without a straight part beside them.

A table covers half the torus and continues with the opposite sign, T(phase + 1/2) = -T(phase); it is centred between the values at the two ends of
its range, low and high, so that the continuation has no jump (equalise_lookups). With L = high - low, of what the readers get as f,

    h(high + d) = f(high) + 2 a d - (f(low + d) - f(low)),    h(low - d) = f(low) - 2 a d + (f(high) - f(high - d)),    0 <= d <= L,

for f(x) = g(x) + a x with g in the table. Without a line, a = 0, that is the value of the end where f is flat at the other end, and off by as
much as f moves there. A line is a help where f is about straight, ReLUs that are always active, and harm where f is flat outside:
`greatest_lines` keeps of it what leaves values beyond the range no further from f than they are without a line, or than the value of the end is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup, wires
from cloakwork.models.graph.steps import apply_steps
from cloakwork.models.passes.bound_ranges import interval

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
