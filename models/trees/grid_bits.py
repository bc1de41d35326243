"""Comparison bits of a public grid: the client encrypts one for every grid point, and the program picks those of its thresholds.

The input of the program depends on the grid alone; wires that no look-up reads are dropped unseen. Features of more points than one piece has
are sent in two digits of the number of failing comparisons, c = 2^d c1 + c0, in thermometer code each. With t = 2^d t1 + t0 the comparison c <= t is
the majority of A, c1 <= t1 - 1, of B, c1 <= t1, and of C, c0 <= t0: one look-up on A + B + C for each threshold that is used, or none where the
indices that use it have room for the sum (digit_sums.py). Thresholds at the ends of a digit, where one of the three is a constant, take the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Compare, InputStep, Positions, Thermometer
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.trees.ensemble import Edges, TreeEnsemble, between_singles
from cloakwork.models.trees.public_grid import FeatureGrid

# Sources of a program's comparison bits: the client (here), or look-ups (grid_bits.py, position_bits.py).


@dataclass(frozen=True, eq=False)
class Bit:
    """bit = sum of the wires' values + constant + always.

    Args:
        wires: of the graph; others than these (below 0) are zero and keep their place among the weights.
        steps: of an index in the phase of a flag that is up; None: a comparison.
        always: that tables are turned by, so that rows do not show it.
    """

    wires: tuple[int, ...]
    constant: float
    steps: int | None = None
    always: int = 0

    def weight(self, weight: int, factor: int) -> int:
        """Returns the weight on the wires' phases, for one on the bit. Args: factor: of comparisons."""
        return weight * factor if self.steps is None else weight // self.steps


class BitSource(Protocol):
    """A source of a program's bits."""

    @property
    def step(self) -> InputStep:
        """The client's last step before encryption."""

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        """Adds nodes; the bit of every edge."""


@dataclass(frozen=True, eq=False)
class ClientBits:
    """The client compares and encrypts each bit as 1 / units of the torus: exactly what the bins say, with hardly any noise."""

    edges: Edges
    used: Indices
    units: int
    strict: bool
    single: bool

    @property
    def step(self) -> InputStep:
        edges, used = self.edges, self.used
        return Compare(edges.feature[used], edges.threshold[used], edges.missing[used], self.strict, self.single)

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        wires = builder.input(len(self.used), WireEncoding(1 / self.units, 0.0, 1.0), "comparisons")
        return {int(edge): Bit((int(wire),), 0.0) for edge, wire in zip(self.used, wires, strict=True)}


MOST_IN_ONE_PIECE: Final = (1 << 8) - 1  # points
MOST_BITS: Final = 1 << 17  # of a sample, some 0.9 MB
_MAJORITY: Final = 2


def grid_step(ensemble: TreeEnsemble, grids: Sequence[FeatureGrid], bits: int) -> Thermometer:
    """Returns the client's comparisons. CompileError: more bits than a sample should have."""
    count = np.array([grid.count for grid in grids], dtype=np.int64)
    step = Thermometer(
        np.arange(len(grids), dtype=np.int64),
        count,
        np.array([grid.low for grid in grids]),
        np.array([grid.step for grid in grids]),
        np.concatenate([np.zeros(0), *(grid.explicit for grid in grids)]),
        np.where(count > MOST_IN_ONE_PIECE, (bits + 1) // 2, 0),
        ensemble.takes_missing,
        ensemble.strict,
        ensemble.single,
    )
    total = int(step.widths.sum())
    if total > MOST_BITS:
        raise CompileError(
            f"thresholds='grid': the public grid of {len(grids)} features at {bits} bits has {total} bits for a sample, at most {MOST_BITS} are "
            "sent; use fewer grid_bits, or leave out features before training. thresholds='client' sends those of the model's thresholds "
            "alone, and tells every client all of them"
        )
    return step


def grid_points(edges: Edges, used: Indices, step: Thermometer | Positions) -> dict[int, tuple[int, int]]:
    """Returns the feature of every used edge and the number of its grid point."""
    points: dict[int, tuple[int, int]] = {}
    features = edges.feature[used]
    for feature in np.unique(features):
        grid, feature_edges = step.grid(int(feature)), used[features == feature]
        if step.single:
            grid = between_singles(grid, step.strict)
        places = np.searchsorted(grid, edges.threshold[feature_edges])
        assert (grid[np.minimum(places, len(grid) - 1)] == edges.threshold[feature_edges]).all(), (
            "edges are on the grid"
        )
        points |= {int(edge): (int(feature), int(place)) for edge, place in zip(feature_edges, places, strict=True)}
    return points


@dataclass(frozen=True, eq=False)
class GridBits:
    """Edges on grid points. Bits are 1 / units of the torus; where there are digits 1 / 2M, as those that come from look-ups."""

    edges: Edges
    used: Indices
    step: Thermometer
    units: int
    slots: int
    digit_sums: frozenset[int] = frozenset()

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        wide = bool(self.step.digit.any())
        scale = 1 / (2 * self.slots if wide else self.units)
        wires = builder.input(int(self.step.widths.sum()), WireEncoding(scale, 0.0, 1.0), "grid")
        points = grid_points(self.edges, self.used, self.step)
        digits = {edge: self.step.digit[feature] > 0 for edge, (feature, _) in points.items()}
        looked_up = {points[edge] for edge in points if digits[edge] and edge not in self.digit_sums}
        compared = self._majorities(builder, wires, sorted(looked_up))
        bits = {}
        for edge, (feature, point) in points.items():
            first, width = int(self.step.starts[feature]), int(self.step.widths[feature])
            nan = (int(wires[first + width - 1]),) if self.step.missing and self.edges.missing[edge] else ()
            if edge in self.digit_sums:
                summed, always = self._digit_sum(wires, feature, point)
                bits[edge] = Bit((*summed, *nan * _MAJORITY), 0.0, always=always)
            elif digits[edge]:
                bits[edge] = Bit((compared[feature, point], *nan), 0.5)
            else:
                bits[edge] = Bit((int(wires[first + point]), *nan), 0.0)
        return bits

    def _digit_sum(self, wires: Indices, feature: int, point: int) -> tuple[tuple[int, int, int], int]:
        """Returns a, B and C of a feature in two digits, and how many of them always hold, of which there is no wire."""
        digit, first = int(self.step.digit[feature]), int(self.step.starts[feature])
        high_bits = int(self.step.count[feature]) >> digit
        high, low = divmod(point, 1 << digit)
        never = -2 * ((feature << 16) + point) - 2  # numbers of its own, below 0
        always = never - 1
        below = int(wires[first + high - 1]) if high else never
        equal = int(wires[first + high]) if high < high_bits else always
        lower = int(wires[first + high_bits + low]) if low < (1 << digit) - 1 else always
        # the last point of a feature has a full last digit only where B is sent
        assert equal != always or lower != always
        return (below, equal, lower), (equal, lower).count(always)

    def _majorities(
        self, builder: GraphBuilder, wires: Indices, points: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], int]:
        """Returns the wires, at +-1/2, of the comparisons with points of features in two digits."""
        if not points:
            return {}
        sums = [self._digit_sum(wires, feature, point) for feature, point in points]
        rows = [Row(dict.fromkeys(three, 1), 0.0) for three, _ in sums]
        turn, centre = 2.0 * self.slots, (self.slots - 1) / 2
        indices = builder.linear(rows, WireEncoding(1 / turn, 0.0, turn - 1, centre), "digits")
        seen = np.arange(self.slots) + np.array([always for _, always in sums])[:, None]
        half = np.where(seen >= _MAJORITY, 0.5, -0.5)
        table = np.concatenate([half, -half], axis=1)
        outputs = builder.lookup(indices, table, WireEncoding(1 / turn, -0.5, 0.5), "comparisons")
        return dict(zip(points, outputs.tolist(), strict=True))
