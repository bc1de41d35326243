"""The base of steps that place columns on a public grid: the points of every column, and how many of them a value lies behind."""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import demand

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
