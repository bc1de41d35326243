"""The flow of a table's columns before a model, collected column by column and written as few steps of the client.

Importers of pipelines and of ONNX-ML graphs keep a `Recipe`, one `Column` for each column of a tensor. A column knows which column it comes from
and what happens to it: fill of a missing value or the number of its category, then affine maps, then the indicator of a category. What does not
fit this order, or makes columns of several, is appended to the table (`apply`); where that is all that is used of it, it takes the table's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.arrays import Indices, is_missing
from cloakwork.models.client_steps import (
    Append,
    Categories,
    Columns,
    Compare,
    Complete,
    Divide,
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
from cloakwork.models.client_steps.first import REFUSE, Category
from cloakwork.models.errors import UnsupportedNode, some

_RULES: Final[dict[Any, str]] = {
    REFUSE: REFUSE,
    -1.0: "ignore",
}  # for unseen categories: what a step says of all columns


@dataclass(frozen=True)
class Codes:
    """The number of each known category. None is a missing value, among the categories as among the numbers."""

    known: tuple[Category, ...]
    numbers: tuple[float | None, ...]
    unseen: float | str | None = REFUSE  # or the number of an unseen category
    size: int = 0  # of numbers, where each has an indicator

    @classmethod
    def of(cls, known: Sequence[Any], numbers: Iterable[float], unseen: float | str, size: int = 0) -> Codes:
        """Numbers categories. Args: known: as an encoder has them; numbers: NaN leaves a missing value. UnsupportedNode for other categories."""
        values = [category.item() if isinstance(category, np.generic) else category for category in known]
        plain = tuple(None if is_missing(value) else value for value in values)
        strange = any(not isinstance(value, str | bool | int | float | None) for value in plain)
        if strange or len(set(plain)) < len(plain):
            raise UnsupportedNode(
                f"has categories {some(map(repr, values))}; expected distinct texts and numbers, and one kind of missing value"
            )
        rest = unseen if isinstance(unseen, str) else _or_missing(unseen)
        return cls(plain, tuple(map(_or_missing, numbers)), rest, size)

    @property
    def leaves_missing(self) -> bool:
        return None in self.numbers or self.unseen is None

    @property
    def counted(self) -> bool:
        """Whether categories have the numbers 0, 1, .., as without numbers."""
        return self.numbers == tuple(range(len(self.known)))

    def filled(self, value: float) -> Codes:
        """Returns codes with a number for missing ones."""
        numbers = tuple(value if number is None else number for number in self.numbers)
        return replace(self, numbers=numbers, unseen=value if self.unseen is None else self.unseen)

    def of_filled(self, value: Category) -> Codes:
        """Returns codes for a column whose missing values become this category before."""
        number: float | str | None = dict(zip(self.known, self.numbers, strict=True)).get(value, self.unseen)
        pairs: list[tuple[Category, float | None]] = [
            (c, n) for c, n in zip(self.known, self.numbers, strict=True) if c is not None
        ]
        if not isinstance(number, str):  # else a missing value is refused as unseen ones are
            pairs.append((None, number))
        return replace(self, known=tuple(c for c, _ in pairs), numbers=tuple(n for _, n in pairs))


def _or_missing(number: float) -> float | None:
    return None if is_missing(number) else float(number)


@dataclass(frozen=True)
class Affine:
    """An affine step: (x - offset) * factor, or divided by it."""

    offset: float
    factor: float
    divides: bool = False

    @property
    def does_nothing(self) -> bool:
        return self.offset == 0 and self.factor == 1


@dataclass(frozen=True)
class Column:
    """Column `source` of the table, and what is done to it."""

    source: int
    fill: Category = None  # of missing values
    codes: Codes | None = None
    affine: tuple[Affine, ...] = ()  # one after the other
    indicator: int | None = None  # of this number

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
        self._admits_missing = False  # to steps that replace or tell them

    def start(self) -> Recipe:
        """Returns the user's columns."""
        return [Column(i) for i in range(self._count)]

    def is_given(self, column: Column) -> bool:
        """Whether it is the user's, as it was given."""
        return column.untouched and column.source < self._count

    # --- what can be done to columns; each returns the new recipe ---

    def affine(self, recipe: Recipe, offset: ArrayLike, scale: ArrayLike) -> Recipe:
        """Returns (x - offset) * scale, joined with such a map before."""
        recipe, offsets, scales = self._maps(recipe, offset, scale)
        result: Recipe = []
        for column, o, s in zip(recipe, offsets, scales, strict=True):
            *before, last = column.affine or (Affine(0.0, 1.0),)
            if last.divides:
                before, last = [*before, last], Affine(0.0, 1.0)
            # ((x - o1) s1 - o) s = (x - (o1 + o / s1)) s1 s
            joined = Affine(last.offset + o / last.factor, last.factor * s)
            result.append(replace(column, affine=(*before, joined)))
        return result

    def arithmetic(
        self, recipe: Recipe, offset: ArrayLike, factor: ArrayLike, how: Literal["times", "over"] = "times"
    ) -> Recipe:
        """Returns (x - offset) times or over the factor, rounded as it is written here: trees compare what was made so with values that were, too."""
        recipe, offsets, factors = self._maps(recipe, offset, factor)
        maps = (Affine(o, f, how == "over") for o, f in zip(offsets, factors, strict=True))
        return [
            column if each.does_nothing else replace(column, affine=(*column.affine, each))
            for column, each in zip(recipe, maps, strict=True)
        ]

    def _maps(self, recipe: Recipe, offset: ArrayLike, factor: ArrayLike) -> tuple[Recipe, list[float], list[float]]:
        if any(column.indicator is not None for column in recipe):
            recipe = self.apply(recipe, (), len(recipe))
        offsets, factors = (
            np.broadcast_to(np.asarray(each, dtype=np.float64).reshape(-1), len(recipe)) for each in (offset, factor)
        )
        if not (np.isfinite(offsets).all() and np.isfinite(factors).all()):
            raise UnsupportedNode("has no finite numbers for a column, as where it had no values; leave the column out")
        if not factors.all():
            raise UnsupportedNode("multiplies or divides a column by zero; leave the column out")
        return recipe, offsets.tolist(), factors.tolist()

    def fill(self, recipe: Recipe, values: Sequence[Any] | ArrayLike) -> Recipe:
        """Replaces missing values by these; texts in columns that are encoded afterwards."""
        if any(column.affine for column in recipe):
            recipe = self.apply(recipe, (), len(recipe))
        given = np.broadcast_to(np.asarray(values, dtype=object).reshape(-1), len(recipe)).tolist()
        return [self._filled_with(column, value) for column, value in zip(recipe, given, strict=True)]

    def _filled_with(self, column: Column, value: Any) -> Column:
        if column.codes is not None:
            return replace(column, codes=column.codes.filled(float(value)))
        return column if column.fill is not None else replace(column, fill=value)

    def missing(self, recipe: Recipe) -> Recipe:
        """Returns 1 where a value is missing, else 0."""
        self._admits_missing = True
        count = len(recipe)
        least = np.full(count, -np.finfo(np.float64).max)
        return self.apply(recipe, (Compare(np.arange(count), least, np.ones(count, np.int64), strict=True),), count)

    def encode(self, column: Column, codes: Codes) -> Column:
        """Returns the number of the column's category."""
        if not self.is_given(replace(column, fill=None)) or self._texts is not None:
            raise UnsupportedNode("encodes what another step has made; put it first")
        if column.fill is not None and None in codes.known:
            raise UnsupportedNode(
                "knows a missing value behind an imputer; its table has None and NaN, use one of them"
            )
        column_codes = codes if column.fill is None else codes.of_filled(column.fill)
        return replace(column, fill=None, codes=column_codes)

    def normalise(self, recipe: Recipe, norm: str) -> Recipe:
        """Returns each sample divided by its norm over these columns."""
        return self.apply(recipe, (Normalise(norm),), len(recipe), takes_missing=False)

    def apply(self, recipe: Recipe, steps: Sequence[InputStep], count: int, *, takes_missing: bool = True) -> Recipe:
        """Applies steps on a table of these columns, which make `count` columns of it.

        Args:
            takes_missing: whether they give missing values (NaN) for missing ones, or refuse them by themselves.
        """
        sources, written = self._written(recipe)
        self._made.append(_Made(sources, (*written, *steps), self._width, count, takes_missing))
        self._width += count
        return [Column(i) for i in range(self._width - count, self._width)]

    def product(self, recipe: Recipe) -> Recipe:
        """Returns the product of these columns, where one may come several times; products made one after the other are one step."""
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
        """Writes the flow as steps. Args: missing: the model takes missing values, so that those which no step fills stay."""
        sources, tail = self._written(recipe)
        appended = list(self._made)
        while appended and np.array_equal(
            sources, np.arange(appended[-1].first, appended[-1].first + appended[-1].count)
        ):
            last = appended.pop()
            sources, tail = last.sources, (*self._guarded(last, missing), *tail)
        width = appended[-1].first + appended[-1].count if appended else self._count
        steps: list[InputStep] = [self._first(missing)]
        steps += [Append(each.sources, self._guarded(each, missing)) for each in appended]
        if not np.array_equal(sources, np.arange(width)):
            steps.append(Select(sources))
        steps += tail
        if missing:
            steps = _leaving_missing(steps)
        return (*steps, Present()) if self._admits_missing and self._made and not missing else tuple(steps)

    def _guarded(self, appended: _Made, missing: bool) -> tuple[InputStep, ...]:
        check = (self._admits_missing or missing) and not appended.takes_missing
        return (*appended.steps[:-1], Present(), appended.steps[-1]) if check else appended.steps

    def _written(self, recipe: Recipe) -> tuple[Indices, tuple[InputStep, ...]]:
        """Returns the columns that are read, in their order, and fill, affine map and indicators of them; what does nothing is left out."""
        base = list(dict.fromkeys(column.base for column in recipe))
        self._read += [column for column in base if column.source < self._count]
        texts = [column.fill for column in base if isinstance(column.fill, str)]
        if texts:
            raise UnsupportedNode(
                f"imputes texts ({some(map(repr, texts))}) in a column that no encoder takes; encode it"
            )
        fills = any(column.fill is not None for column in base)
        self._admits_missing |= fills
        steps: list[InputStep] = self._fills(base) if fills else []
        sources = np.array([column.source for column in base], dtype=np.int64)
        return sources, (*steps, *_maps_of(base), *_indicators(recipe, base))

    def _first(self, missing: bool) -> FirstStep:
        if self._texts is not None:
            return self._texts
        missing = missing or self._admits_missing
        encoded = {column.source: column.codes for column in self._read if column.codes is not None}
        if any(encoded.get(column.source) != column.codes for column in self._read):
            raise UnsupportedNode("a column is used encoded and as it is, or by two encoders; give it to one part only")
        unread = set(range(self._count)) - {column.source for column in self._read}
        if not encoded and not unread:
            return Columns(self._count, self._names, missing)
        columns = np.array(sorted({*encoded, *unread}), dtype=np.int64)
        codes = [encoded.get(int(i), Codes((), ())) for i in columns]
        known = tuple(each.known for each in codes)
        rules = {each.unseen for each in encoded.values()} or {REFUSE}
        numbers = () if all(each.counted for each in codes) else tuple(each.numbers for each in codes)
        if len(rules) == 1 and rules <= set(_RULES):
            return Categories(self._count, columns, known, _RULES[rules.pop()], self._names, missing, numbers)
        others = tuple(each.unseen for each in codes)
        return Categories(self._count, columns, known, REFUSE, self._names, missing, numbers, others)

    def _fills(self, base: Recipe) -> list[InputStep]:
        """A column without a fill must be complete."""
        fills = Impute(np.array([0.0 if column.fill is None else column.fill for column in base], dtype=np.float64))
        whole = np.flatnonzero([column.fill is None and _may_miss(column) for column in base])
        if not len(whole):
            return [fills]
        labels = (*feature_labels(self._names, self._count), *(f"feature {i}" for i in range(self._count, self._width)))
        return [Complete(tuple(labels[base[i].source] for i in whole), whole), fills]


def _leaving_missing(steps: Sequence[InputStep]) -> list[InputStep]:
    """Where columns without a fill had to be complete their missing values stay: the others are filled beside them, and take their places."""
    result: list[InputStep] = []
    whole: Complete | None = None
    for step in steps:
        if isinstance(step, Append):
            step = Append(step.columns, tuple(_leaving_missing(step.steps)))
        if whole is not None and isinstance(step, Impute):
            count = len(step.fill)
            filled = np.setdiff1d(np.arange(count), whole.columns)
            order = np.arange(count)
            order[filled] = count + np.arange(len(filled))
            result += [Append(filled, (Impute(step.fill[filled]),)), Select(order)]
        elif not isinstance(step, Complete):
            result.append(step)
        whole = step if isinstance(step, Complete) else None
    return result


def _may_miss(column: Column) -> bool:
    return column.codes is None or column.codes.leaves_missing


def _maps_of(base: Recipe) -> list[InputStep]:
    """Returns the affine maps of the columns, the first ones of all columns first."""
    steps: list[InputStep] = []
    for number in range(max((len(column.affine) for column in base), default=0)):
        maps = [column.affine[number] if number < len(column.affine) else Affine(0.0, 1.0) for column in base]
        for divides, step in ((False, Standardise), (True, Divide)):
            step_maps = [each if each.divides == divides else Affine(0.0, 1.0) for each in maps]
            if not all(each.does_nothing for each in step_maps):
                steps.append(
                    step(np.array([each.offset for each in step_maps]), np.array([each.factor for each in step_maps]))
                )
    return steps


def _indicators(recipe: Recipe, base: Recipe) -> list[InputStep]:
    """Returns one-hot codes of the base columns that have indicators, and the columns in the recipe's order."""
    hot = {column.base for column in recipe if column.indicator is not None}
    if any(column.base in hot for column in recipe if column.indicator is None):
        raise UnsupportedNode("a column is used encoded and as it is; give it to one part only")
    sizes = np.array([column.codes.size if column.codes and column in hot else 0 for column in base], dtype=np.int64)
    start = dict(zip(base, np.concatenate([[0], np.cumsum(np.maximum(sizes, 1))[:-1]]), strict=True))
    order = np.array([int(start[column.base]) + (column.indicator or 0) for column in recipe], dtype=np.int64)
    steps: list[InputStep] = [OneHot(sizes)] if hot else []
    if not np.array_equal(order, np.arange(int(np.maximum(sizes, 1).sum()))):
        steps.append(Select(order))
    return steps
