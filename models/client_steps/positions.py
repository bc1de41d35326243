"""Values as their positions on a public grid, in digits: few numbers, which the server compares with thresholds that no client knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, demand
from cloakwork.models.client_steps.grids import GridColumns

MOST_DIGIT_BITS: Final = 16


@dataclass(frozen=True, eq=False)
class Positions(GridColumns):
    """Digits of `bits` bits, the lowest first, of each column's position: the number of grid points p with no column <= p (< when strict).

    A feature of `count` points has the positions 0 .. count, and as many digits as `count` takes. With `missing` one more number of every feature
    is 1 where the column is missing (NaN), whose position is 0, and else 0.
    """

    feature: Indices
    count: Indices
    low: Reals
    spacing: Reals
    points: Reals
    bits: int
    missing: bool
    strict: bool = False
    single: bool = False

    def __post_init__(self) -> None:
        self.check_grids()
        demand(1 <= self.bits <= MOST_DIGIT_BITS, f"digits of 1 to {MOST_DIGIT_BITS} bits")
        demand(0 < int(self.widths.sum()) <= MOST_COLUMNS, f"1 to {MOST_COLUMNS} digits")

    @cached_property
    def digits(self) -> Indices:
        """[features]"""
        return np.array([-(-int(count).bit_length() // self.bits) for count in self.count], dtype=np.int64)

    @property
    def widths(self) -> Indices:
        """[features] numbers."""
        return self.digits + int(self.missing)

    @cached_property
    def starts(self) -> Indices:
        """[features] the first number."""
        return np.concatenate([[0], np.cumsum(self.widths)[:-1]]).astype(np.int64)

    def __call__(self, x: Reals) -> Reals:
        columns = self.columns(x)
        out = np.empty((len(x), int(self.widths.sum())))
        for number, feature in enumerate(self.feature):
            column, first, digits = columns[:, feature], int(self.starts[number]), int(self.digits[number])
            missing = np.isnan(column) & self.missing
            position = np.where(missing, 0, self.failing(number, column))
            shifts = self.bits * np.arange(digits)
            out[:, first : first + digits] = position[:, None] >> shifts & ((1 << self.bits) - 1)
            if self.missing:
                out[:, first + digits] = missing
        return out
