"""Comparison bits of a public grid: the client encrypts one for every grid point, and the program picks those of its thresholds.

The input of the program depends on the grid alone; wires that no look-up reads are dropped unseen. Features of more points than one piece has
are sent in two digits of the number of failing comparisons, c = 2^d c1 + c0, in thermometer code each. With t = 2^d t1 + t0 the comparison c <= t is
the majority of A, c1 <= t1 - 1, of B, c1 <= t1, and of C, c0 <= t0: one look-up on A + B + C for each threshold that is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Positions, Thermometer
from cloakwork.models.errors import CompileError
from cloakwork.models.trees.comparison_bits import Bit
from cloakwork.models.trees.edges import Edges, between_singles
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.graph_builder import Facts, GraphBuilder, Row
from cloakwork.models.trees.public_grid import FeatureGrid

MOST_IN_ONE_PIECE: Final = (1 << 8) - 1  # points
MOST_BITS: Final = 1 << 17  # of a sample, some 0.9 MB
_MAJORITY: Final = 2


def grid_step(ensemble: TreeEnsemble, grids: Sequence[FeatureGrid], bits: int) -> Thermometer:
    """The client's comparisons. CompileError: more bits than a sample should have."""
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
            f"comparisons='grid': the public grid of {len(grids)} features at {bits} bits has {total} bits for a sample, at most {MOST_BITS} are "
            "sent; use fewer grid_bits, or leave out features before training. comparisons='client' sends those of the model's thresholds "
            "alone, and tells every client all of them"
        )
    return step


def grid_points(edges: Edges, used: Indices, step: Thermometer | Positions) -> dict[int, tuple[int, int]]:
    """The feature of every used edge and the number of its grid point."""
    found: dict[int, tuple[int, int]] = {}
    features = edges.feature[used]
    for feature in np.unique(features):
        grid, own = step.grid(int(feature)), used[features == feature]
        if step.single:
            grid = between_singles(grid, step.strict)
        places = np.searchsorted(grid, edges.threshold[own])
        assert (grid[np.minimum(places, len(grid) - 1)] == edges.threshold[own]).all(), "edges are on the grid"
        found |= {int(edge): (int(feature), int(place)) for edge, place in zip(own, places, strict=True)}
    return found


@dataclass(frozen=True, eq=False)
class GridBits:
    """Edges on grid points. Bits are 1 / units of the torus; where there are digits 1 / 2M, as those that come from look-ups."""

    edges: Edges
    used: Indices
    step: Thermometer
    units: int
    slots: int

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        wide = bool(self.step.digit.any())
        scale = 1 / (2 * self.slots if wide else self.units)
        wires = builder.input(int(self.step.widths.sum()), Facts(scale, 0.0, 1.0), "grid")
        points = grid_points(self.edges, self.used, self.step)
        compared = self._majorities(builder, wires, sorted(set(points.values())))
        found = {}
        for edge, (feature, point) in points.items():
            first, width = int(self.step.starts[feature]), int(self.step.widths[feature])
            digits = int(self.step.digit[feature]) > 0
            wire, constant = compared[feature, point] if digits else (int(wires[first + point]), 0.0)
            nan = (int(wires[first + width - 1]),) if self.step.missing and self.edges.missing[edge] else ()
            found[edge] = Bit((wire, *nan), constant)
        return found

    def _majorities(
        self, builder: GraphBuilder, wires: Indices, points: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], tuple[int, float]]:
        """Wire and constant of the comparisons with points of features in two digits."""
        found, rows, looked_up = {}, [], []
        for feature, point in points:
            digit = int(self.step.digit[feature])
            if digit == 0:
                continue
            first, high_bits = int(self.step.starts[feature]), int(self.step.count[feature]) >> digit
            high, low = divmod(point, 1 << digit)
            below = int(wires[first + high - 1]) if high else None  # A, else never
            equal = int(wires[first + high]) if high < high_bits else None  # B, else always
            lower = int(wires[first + high_bits + low]) if low < (1 << digit) - 1 else None  # C, else always
            if lower is None and equal is not None:
                found[feature, point] = (equal, 0.0)
                continue
            # the last point of a feature has a full last digit only where B is sent
            assert lower is not None
            row = dict.fromkeys((wire for wire in (below, equal, lower) if wire is not None), 1)
            rows.append(Row(row, float(equal is None)))
            looked_up.append((feature, point))
        if rows:
            turn, centre = 2.0 * self.slots, (self.slots - 1) / 2
            indices = builder.linear(rows, Facts(1 / turn, 0.0, turn - 1, centre), "digits")
            half = np.where(np.arange(self.slots) >= _MAJORITY, 0.5, -0.5)
            table = np.tile(np.concatenate([half, -half]), (len(rows), 1))
            outputs = builder.lookup(indices, table, Facts(1 / turn, -0.5, 0.5), "comparisons")
            found |= {place: (int(wire), 0.5) for place, wire in zip(looked_up, outputs, strict=True)}
        return found
