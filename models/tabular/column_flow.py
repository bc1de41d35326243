"""What becomes of a table's columns before a model, collected column by column and written as few steps of the client.

Importers of pipelines and of ONNX-ML graphs keep a `Recipe`, one `Column` for each column of a tensor. A column knows which column it comes from
and what happens to it: category number, then fill of a missing value, then an affine map, then the indicator of a category. What does not fit
this order makes a new table of the columns so far (`settle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.client_steps import (
    Categories,
    Columns,
    Complete,
    Impute,
    InputStep,
    Normalise,
    OneHot,
    Select,
    Standardise,
)
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.tabular.columns import feature_labels


@dataclass(frozen=True)
class Column:
    """Column `source` of table number `table`, and what is done to it."""

    source: int
    table: int = 0
    categories: tuple[Any, ...] | None = None
    unseen: str = "refuse"
    fill: float | None = None
    offset: float = 0.0
    scale: float = 1.0
    indicator: int | None = None  # of this category

    @property
    def base(self) -> Column:
        """The same without the indicator."""
        return replace(self, indicator=None)

    @property
    def untouched(self) -> bool:
        return self == Column(self.source, self.table)


Recipe: TypeAlias = list[Column]


class ColumnFlow:
    """The steps so far, and the table that they make."""

    def __init__(self, count: int, names: tuple[str, ...] | None = None) -> None:
        self._count = count
        self._names = names
        self._width = count  # of the present table
        self._table = 0
        self._steps: list[InputStep] = []

    def start(self) -> Recipe:
        """The user's columns."""
        return [Column(i) for i in range(self._count)]

    # --- what can be done to columns; each returns the new recipe ---

    def affine(self, recipe: Recipe, offset: ArrayLike, scale: ArrayLike) -> Recipe:
        """(x - offset) * scale."""
        if any(column.indicator is not None for column in recipe):
            recipe = self.settle(recipe)
        offsets = np.broadcast_to(np.asarray(offset, dtype=np.float64).reshape(-1), len(recipe))
        scales = np.broadcast_to(np.asarray(scale, dtype=np.float64).reshape(-1), len(recipe))
        if not scales.all():
            raise UnsupportedNode("multiplies a column by zero; leave the column out")
        # ((x - o1) s1 - o) s = (x - (o1 + o / s1)) s1 s
        return [
            replace(column, offset=column.offset + float(o) / column.scale, scale=column.scale * float(s))
            for column, o, s in zip(recipe, offsets, scales, strict=True)
        ]

    def fill(self, recipe: Recipe, values: ArrayLike) -> Recipe:
        """Missing values become these."""
        if any(column.categories is not None or column.fill is not None for column in recipe):
            raise UnsupportedNode("comes after another imputer or an encoder; put it first")
        spread = np.broadcast_to(np.asarray(values, dtype=np.float64).reshape(-1), len(recipe))
        return [
            replace(column, fill=float(value) / column.scale + column.offset)
            for column, value in zip(recipe, spread, strict=True)
        ]

    def encode(self, column: Column, categories: Sequence[Any], unseen: str) -> Column:
        """The number of the column's category."""
        known = tuple(category.item() if isinstance(category, np.generic) else category for category in categories)
        if any(not isinstance(category, str | bool | int | float) or category != category for category in known):
            raise UnsupportedNode(f"has categories {list(known)}; expected texts and numbers, none missing")
        if not column.untouched or column.table:
            raise UnsupportedNode("encodes what another step has made; put it first")
        return replace(column, categories=known, unseen=unseen)

    def normalise(self, recipe: Recipe, norm: str) -> Recipe:
        """Each sample divided by its norm over these columns, which are then all there are."""
        recipe = self.settle(recipe)
        self._steps.append(Normalise(norm))
        return recipe

    # --- steps ---

    def settle(self, recipe: Recipe) -> Recipe:
        """Makes these columns the present table."""
        if any(column.table != self._table for column in recipe):
            raise UnsupportedNode("joins columns before and after a step that works on all of them")
        self._steps += self._written(recipe)
        self._table += 1
        self._width = len(recipe)
        return [Column(i, self._table) for i in range(len(recipe))]

    def finish(self, recipe: Recipe) -> tuple[InputStep, ...]:
        if not self._steps or recipe != [Column(i, self._table) for i in range(self._width)]:
            self.settle(recipe)
        return tuple(self._steps)

    def _written(self, recipe: Recipe) -> list[InputStep]:
        """Check of the table (first), selection, fill, affine, indicators; what does nothing is left out."""
        base = list(dict.fromkeys(column.base for column in recipe))
        steps: list[InputStep] = [] if self._steps else [self._first(base)]
        sources = np.array([column.source for column in base], dtype=np.int64)
        if not np.array_equal(sources, np.arange(self._width)):
            steps.append(Select(sources))
        if any(column.fill is not None for column in base):
            steps += self._fills(base)
        offset, scale = np.array([c.offset for c in base]), np.array([c.scale for c in base])
        if offset.any() or (scale != 1).any():
            steps.append(Standardise(offset, scale))
        return steps + _indicators(recipe, base)

    def _first(self, base: Recipe) -> InputStep:
        missing = any(column.fill is not None for column in base)
        encoded = {column.source: column for column in base if column.categories is not None}
        if any(encoded.get(column.source, column).categories != column.categories for column in base):
            raise UnsupportedNode("a column is used encoded and as it is; give it to one part only")
        unread = set(range(self._count)) - {column.source for column in base}
        if not encoded and not unread:
            return Columns(self._count, self._names, missing)
        if len({column.unseen for column in encoded.values()}) > 1:
            raise UnsupportedNode("encoders differ in what they do with unseen categories; expected one rule")
        columns = np.array(sorted({*encoded, *unread}), dtype=np.int64)
        known = tuple((encoded[int(i)].categories or ()) if int(i) in encoded else () for i in columns)
        unseen = next((column.unseen for column in encoded.values()), "refuse")
        return Categories(self._count, columns, known, unseen, self._names, missing)

    def _fills(self, base: Recipe) -> list[InputStep]:
        """A column without a fill must be complete."""
        fills = Impute(np.array([0.0 if column.fill is None else column.fill for column in base]))
        whole = np.flatnonzero([column.fill is None and column.categories is None for column in base])
        if not len(whole):
            return [fills]
        labels = feature_labels(self._names if self._table == 0 else None, self._width)
        return [Complete(tuple(labels[base[i].source] for i in whole), whole), fills]


def _indicators(recipe: Recipe, base: Recipe) -> list[InputStep]:
    """One-hot codes of the base columns that have indicators, and the columns in the recipe's order."""
    hot = {column.base for column in recipe if column.indicator is not None}
    if any(column.base in hot for column in recipe if column.indicator is None):
        raise UnsupportedNode("a column is used encoded and as it is; give it to one part only")
    sizes = np.array([len(column.categories or ()) if column in hot else 0 for column in base], dtype=np.int64)
    start = dict(zip(base, np.concatenate([[0], np.cumsum(np.maximum(sizes, 1))[:-1]]), strict=True))
    order = np.array([int(start[column.base]) + (column.indicator or 0) for column in recipe], dtype=np.int64)
    steps: list[InputStep] = [OneHot(sizes)] if hot else []
    if not np.array_equal(order, np.arange(int(np.maximum(sizes, 1).sum()))):
        steps.append(Select(order))
    return steps
