"""The first step of a model of tables: what the user has, checked, as numbers [samples, columns]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import check_columns, demand
from cloakwork.models.client_steps.feature_tables import check_column_names, feature_labels, feature_table
from cloakwork.models.errors import ShapeError, some


@dataclass(frozen=True, eq=False)
class Columns:
    """The first step: a table of `count` finite numbers per sample, its names checked where it has some."""

    count: int
    names: tuple[str, ...] | None = None
    missing: bool = False  # whether NaN may pass

    def __post_init__(self) -> None:
        check_columns(self.count, self.names)

    def __call__(self, x: Any) -> Reals:
        return feature_table(x, self.count, self.names, self.missing)


@dataclass(frozen=True, eq=False)
class Categories:
    """The first step for tables with text: categories of the training data as numbers 0, 1, ..; other columns as they are.

    `known[i]` are the categories of column `columns[i]`. An unseen one is refused, or becomes -1 (OneHot then gives zeros). A column without
    known categories is not looked at and becomes 0.
    """

    count: int
    columns: Indices
    known: tuple[tuple[str | float | bool, ...], ...]
    unseen: str = "refuse"  # or "ignore"
    names: tuple[str, ...] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        check_columns(self.count, self.names)
        demand(self.columns.shape == (len(self.known),), "known categories for each encoded column")
        demand(bool(((self.columns >= 0) & (self.columns < self.count)).all()), "encoded columns of the table")
        demand(
            all(type(c) in (str, float, int, bool) for known in self.known for c in known),
            "categories that are texts and numbers",
        )
        demand(self.unseen in ("refuse", "ignore"), "a rule for unseen categories: refuse or ignore")

    def __call__(self, x: Any) -> Reals:
        check_column_names(x, self.names)
        try:
            table = np.asarray(x, dtype=object)
        except ValueError:
            raise ShapeError(
                f"input: expected an array of shape ['samples', {self.count}], got parts of different shapes"
            ) from None
        if table.ndim != 2 or table.shape[1] != self.count:
            raise ShapeError(f"input: expected an array of shape ['samples', {self.count}], got {list(table.shape)}")
        table = table.copy()
        for column, known in zip(self.columns, self.known, strict=True):
            table[:, column] = self._numbers(table[:, column], int(column), known) if known else 0.0
        return feature_table(table, self.count, self.names, self.missing)

    def _numbers(self, values: NDArray[Any], column: int, known: tuple[Any, ...]) -> list[float]:
        number = {category: float(i) for i, category in enumerate(known)}
        try:
            result = [number.get(value, -1.0) for value in values]
        except TypeError:
            raise ShapeError("input: expected texts and numbers as categories, got lists or other containers") from None
        if self.unseen == "refuse" and -1.0 in result:
            label = feature_labels(self.names, self.count)[column]
            raise ShapeError(
                f"input: column '{label}' has a category that the training data had not (row {result.index(-1.0)}); "
                f"expected one of [{some(map(repr, known))}]"
            )
        return result
