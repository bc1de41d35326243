"""Values against a public grid: one bit for each grid point, so that whoever picks bits on the server has thresholds that no client knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, demand

MOST_GRID_POINTS: Final = (1 << 16) - 1  # of one feature


@dataclass(frozen=True, eq=False)
class Thermometer:
    """Bit i of a feature: whether its column is <= (< when strict) grid point i, in thermometer code.

    Points are low + spacing * i, i < count; where spacing is 0 they are the next `count` of `points`. A feature with digit[f] = d > 0 is sent in two
    digits: of how many comparisons fail, c, the bits c // 2^d <= i for every i < count // 2^d and then c mod 2^d <= i for every i < 2^d - 1.
    With `missing` one more bit of every feature says whether it is missing (NaN); no other bit is then 1.
    """

    feature: Indices
    count: Indices
    low: Reals
    spacing: Reals
    points: Reals
    digit: Indices
    missing: bool
    strict: bool = False
    single: bool = False  # columns are rounded to float32 first

    def __post_init__(self) -> None:
        shape = (len(self.feature),)
        columns = (self.feature, self.count, self.low, self.spacing, self.digit)
        demand(all(column.shape == shape for column in columns), "a column, a grid and its digits for each feature")
        demand(bool((self.feature >= 0).all() and (self.spacing >= 0).all()), "features that exist and ascending grids")
        demand(bool(((self.count > 0) & (self.count <= MOST_GRID_POINTS)).all()), f"1 to {MOST_GRID_POINTS} points")
        demand(bool(((self.digit >= 0) & (self.digit <= 8)).all()), "digits of at most 8 bits")
        explicit = int(self.count[self.spacing == 0].sum())
        demand(self.points.shape == (explicit,), "as many explicit points as grids without a step have")
        demand(0 < int(self.widths.sum()) <= MOST_COLUMNS, f"1 to {MOST_COLUMNS} bits")

    @cached_property
    def widths(self) -> Indices:
        """[features] bits."""
        high, low = self.count >> self.digit, (1 << self.digit) - 1
        return np.where(self.digit > 0, high + low, self.count) + int(self.missing)

    @cached_property
    def starts(self) -> Indices:
        """[features] the first bit."""
        return np.concatenate([[0], np.cumsum(self.widths)[:-1]]).astype(np.int64)

    def grid(self, number: int) -> Reals:
        """The points of feature `number` of the step."""
        count = int(self.count[number])
        if self.spacing[number] > 0:
            return np.asarray(self.low[number] + self.spacing[number] * np.arange(count))
        first = int(self.count[:number][self.spacing[:number] == 0].sum())
        return self.points[first : first + count]

    def __call__(self, x: Reals) -> Reals:
        columns = x.astype(np.float32).astype(np.float64) if self.single else x
        out = np.empty((len(x), int(self.widths.sum())))
        side = "right" if self.strict else "left"
        for number, feature in enumerate(self.feature):
            column, first = columns[:, feature], int(self.starts[number])
            # NaN comes after all points, so that every comparison fails
            failing = np.searchsorted(self.grid(number), column, side=side)[:, None]  # type: ignore[call-overload]
            for part, bits in self._pieces(number, failing):
                out[:, first : first + bits] = part <= np.arange(bits)
                first += bits
            if self.missing:
                out[:, first] = np.isnan(column)
        return out

    def _pieces(self, number: int, failing: Indices) -> list[tuple[Indices, int]]:
        """The digits of the number of failing comparisons, and the bits of each."""
        digit, count = int(self.digit[number]), int(self.count[number])
        if digit == 0:
            return [(failing, count)]
        low = (1 << digit) - 1
        return [(failing >> digit, count >> digit), (failing & low, low)]
