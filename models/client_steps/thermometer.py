"""Values against a public grid: one bit for each grid point, so that whoever picks bits on the server has thresholds that no client knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, demand
from cloakwork.models.client_steps.grids import GridColumns


@dataclass(frozen=True, eq=False)
class Thermometer(GridColumns):
    """Bit i of a feature: whether its column is <= (< when strict) grid point i, in thermometer code.

    A feature with digit[f] = d > 0 is sent in two digits: of how many comparisons fail, c, the bits c // 2^d <= i for every i < count // 2^d and
    then c mod 2^d <= i for every i < 2^d - 1.
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
    single: bool = False

    def __post_init__(self) -> None:
        self.check_grids()
        demand(self.digit.shape == self.feature.shape, "digits for each feature")
        demand(bool(((self.digit >= 0) & (self.digit <= 8)).all()), "digits of at most 8 bits")
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

    def __call__(self, x: Reals) -> Reals:
        columns = self.columns(x)
        out = np.empty((len(x), int(self.widths.sum())))
        for number, feature in enumerate(self.feature):
            column, first = columns[:, feature], int(self.starts[number])
            for part, bits in self._pieces(number, self.failing(number, column)[:, None]):
                out[:, first : first + bits] = part <= np.arange(bits)
                first += bits
            if self.missing:
                out[:, first] = np.isnan(column)
        return out

    def _pieces(self, number: int, failing: Indices) -> list[tuple[Indices, int]]:
        """Returns the digits of the number of failing comparisons, and the bits of each."""
        digit, count = int(self.digit[number]), int(self.count[number])
        if digit == 0:
            return [(failing, count)]
        low = (1 << digit) - 1
        return [(failing >> digit, count >> digit), (failing & low, low)]
