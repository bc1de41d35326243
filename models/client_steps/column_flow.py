"""What becomes of a table's columns before a model, collected column by column and written as few steps of the client.

Importers of pipelines and of ONNX-ML graphs keep a `Recipe`, one `Column` for each column of a tensor. A column knows which column it comes from
and what happens to it: category number, then fill of a missing value, then an affine map, then the indicator of a category. What does not fit
this order, or makes columns of several, is appended to the table (`apply`); where that is all that is used of it, it takes the table's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import (
    Append,
    Categories,
    Columns,
    Complete,
    FirstStep,
    Impute,
    InputStep,
    Normalise,
    OneHot,
    Polynomials,
    Present,
    Select,
    Standardise,
    Texts,
)
from cloakwork.models.client_steps.feature_tables import feature_labels
from cloakwork.models.errors import UnsupportedNode, some


@dataclass(frozen=True)
class Column:
    """Column `source` of the table, and what is done to it."""

    source: int
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
        return self == Column(self.source)


Recipe: TypeAlias = list[Column]


@dataclass(frozen=True)
class _Made:
    """Columns that were appended: of which others, by which steps, and where they are."""

    sources: Indices
    steps: tuple[InputStep, ...]
    first: int
    count: int
    takes_missing: bool


class ColumnFlow:
    """The steps so far, and the table that they make."""

    def __init__(self, count: int, names: tuple[str, ...] | None = None, texts: Texts | None = None) -> None:
        """Args: texts: the first step, where the user has texts instead of a table; it makes `count` columns."""
        self._count = count
        self._names = names
        self._texts = texts
        self._width = count  # of the table with what was appended
        self._made: list[_Made] = []
        self._read: list[Column] = []  # whatever was used of the user's columns
        self._filled = False

    def start(self) -> Recipe:
        """The user's columns."""
        return [Column(i) for i in range(self._count)]

    def is_given(self, column: Column) -> bool:
        """Whether it is the user's, as it was given."""
        return column.untouched and column.source < self._count

    # --- what can be done to columns; each returns the new recipe ---

    def affine(self, recipe: Recipe, offset: ArrayLike, scale: ArrayLike) -> Recipe:
        """(x - offset) * scale."""
        if any(column.indicator is not None for column in recipe):
            recipe = self.apply(recipe, (), len(recipe))
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
        self._filled = True
        spread = np.broadcast_to(np.asarray(values, dtype=np.float64).reshape(-1), len(recipe))
        return [
            replace(column, fill=float(value) / column.scale + column.offset)
            for column, value in zip(recipe, spread, strict=True)
        ]

    def encode(self, column: Column, categories: Sequence[Any], unseen: str) -> Column:
        """The number of the column's category."""
        known = tuple(category.item() if isinstance(category, np.generic) else category for category in categories)
        if any(not isinstance(category, str | bool | int | float) or category != category for category in known):
            raise UnsupportedNode(f"has categories {some(map(repr, known))}; expected texts and numbers, none missing")
        if not self.is_given(column) or self._texts is not None:
            raise UnsupportedNode("encodes what another step has made; put it first")
        return replace(column, categories=known, unseen=unseen)

    def normalise(self, recipe: Recipe, norm: str) -> Recipe:
        """Each sample divided by its norm over these columns."""
        return self.apply(recipe, (Normalise(norm),), len(recipe), takes_missing=False)

    def apply(self, recipe: Recipe, steps: Sequence[InputStep], count: int, *, takes_missing: bool = True) -> Recipe:
        """Steps on a table of these columns, which make `count` columns of it.

        Args:
            takes_missing: whether they give missing values (NaN) for missing ones, or refuse them by themselves.
        """
        sources, written = self._written(recipe)
        self._made.append(_Made(sources, (*written, *steps), self._width, count, takes_missing))
        self._width += count
        return [Column(i) for i in range(self._width - count, self._width)]

    def product(self, recipe: Recipe) -> Recipe:
        """The product of these columns, where one may come several times; products made one after the other are one step."""
        distinct = list(dict.fromkeys(recipe))
        powers = np.array([[recipe.count(column) for column in distinct]], dtype=np.int64)
        last = self._made[-1] if self._made else None
        plain = all(column.untouched for column in distinct)
        if last is None or not plain or [type(step) for step in last.steps] != [Polynomials]:
            return self.apply(distinct, (Polynomials(powers),), 1)
        if any(column.source >= last.first for column in distinct):  # made of what the last step makes
            return self.apply(distinct, (Polynomials(powers),), 1)
        new, _ = self._written(distinct)
        sources = np.union1d(last.sources, new)
        known: Polynomials = last.steps[0]  # type: ignore[assignment]
        both = np.zeros((len(known.powers) + 1, len(sources)), dtype=np.int64)
        both[:-1, np.searchsorted(sources, last.sources)] = known.powers
        both[-1, np.searchsorted(sources, new)] = powers[0]
        self._made[-1] = _Made(sources, (Polynomials(both),), last.first, last.count + 1, True)
        self._width += 1
        return [Column(self._width - 1)]

    # --- steps ---

    def finish(self, recipe: Recipe, missing: bool = False) -> tuple[InputStep, ...]:
        """Args: missing: the model takes missing values, so that those which no step fills stay."""
        sources, tail = self._written(recipe)
        made = list(self._made)
        while made and np.array_equal(sources, np.arange(made[-1].first, made[-1].first + made[-1].count)):
            last = made.pop()
            sources, tail = last.sources, (*self._guarded(last, missing), *tail)
        width = made[-1].first + made[-1].count if made else self._count
        steps: list[InputStep] = [self._first(missing)]
        steps += [Append(each.sources, self._guarded(each, missing)) for each in made]
        if not np.array_equal(sources, np.arange(width)):
            steps.append(Select(sources))
        steps += tail
        return (*steps, Present()) if self._filled and self._made and not missing else tuple(steps)

    def _guarded(self, made: _Made, missing: bool) -> tuple[InputStep, ...]:
        check = (self._filled or missing) and not made.takes_missing
        return (*made.steps[:-1], Present(), made.steps[-1]) if check else made.steps

    def _written(self, recipe: Recipe) -> tuple[Indices, tuple[InputStep, ...]]:
        """The columns that are read, in their order, and fill, affine map and indicators of them; what does nothing is left out."""
        base = list(dict.fromkeys(column.base for column in recipe))
        self._read += [column for column in base if column.source < self._count]
        steps: list[InputStep] = []
        if any(column.fill is not None for column in base):
            steps += self._fills(base)
        offset, scale = np.array([c.offset for c in base]), np.array([c.scale for c in base])
        if offset.any() or (scale != 1).any():
            steps.append(Standardise(offset, scale))
        sources = np.array([column.source for column in base], dtype=np.int64)
        return sources, (*steps, *_indicators(recipe, base))

    def _first(self, missing: bool) -> FirstStep:
        if self._texts is not None:
            return self._texts
        missing = missing or self._filled
        encoded = {column.source: column for column in self._read if column.categories is not None}
        if any(encoded.get(column.source, column).categories != column.categories for column in self._read):
            raise UnsupportedNode("a column is used encoded and as it is; give it to one part only")
        unread = set(range(self._count)) - {column.source for column in self._read}
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
        labels = (*feature_labels(self._names, self._count), *(f"feature {i}" for i in range(self._count, self._width)))
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
