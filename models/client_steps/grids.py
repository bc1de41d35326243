"""The base of steps that place columns on a public grid: the points of every column, and how many of them a value lies behind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, demand

MOST_GRID_POINTS: Final = (1 << 16) - 1  # of one feature


class GridColumns:
    """Fields and points of a step that compares columns with grids. Its subclasses are dataclasses with these fields among theirs.

    Points of a feature are low + spacing * i, i < count; where spacing is 0 they are the next `count` of `points`.
    """

    feature: Indices  # [features], the columns
    count: Indices
    low: Reals
    spacing: Reals
    points: Reals
    strict: bool  # comparisons are < instead of <=
    single: bool  # columns are rounded to float32 first

    def check_grids(self) -> None:
        shape = (len(self.feature),)
        columns = (self.feature, self.count, self.low, self.spacing)
        demand(all(column.shape == shape for column in columns), "a column and a grid for each feature")
        demand(bool((self.feature >= 0).all() and (self.spacing >= 0).all()), "features that exist and ascending grids")
        demand(bool(((self.count > 0) & (self.count <= MOST_GRID_POINTS)).all()), f"1 to {MOST_GRID_POINTS} points")
        explicit = int(self.count[self.spacing == 0].sum())
        demand(self.points.shape == (explicit,), "as many explicit points as grids without a step have")

    def grid(self, number: int) -> Reals:
        """Returns the points of feature `number` of the step."""
        count = int(self.count[number])
        if self.spacing[number] > 0:
            return np.asarray(self.low[number] + self.spacing[number] * np.arange(count))
        first = int(self.count[:number][self.spacing[:number] == 0].sum())
        return self.points[first : first + count]

    def columns(self, x: Reals) -> Reals:
        """Returns columns as they are compared."""
        return x.astype(np.float32).astype(np.float64) if self.single else x

    def failing(self, number: int, column: Reals) -> Indices:
        """Returns [samples]: how many comparisons of column <= point (< when strict) fail. NaN comes after all points, so that every one does."""
        side = "right" if self.strict else "left"
        return np.searchsorted(self.grid(number), column, side=side)  # type: ignore[call-overload, no-any-return]


# Values as their positions on a public grid, in digits: few numbers, which the server compares with thresholds that no client knows.

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


# Values against a public grid: one bit for each grid point, so that whoever picks bits on the server has thresholds that no client knows.


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
