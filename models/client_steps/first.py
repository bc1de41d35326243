"""The first step of a model of tables: what the user has, checked, as numbers [samples, columns]."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals, dense, is_missing
from cloakwork.models.client_steps.checks import check_columns, demand
from cloakwork.models.client_steps.feature_tables import check_column_names, feature_table
from cloakwork.models.client_steps.unfit import REFUSED, Refusing, Unfit
from cloakwork.models.errors import ShapeError, some

Category: TypeAlias = str | float | bool | None
"""None is a missing value."""
REFUSE: Final = "refuse"  # an unseen category
_STRANGE: Final = object()  # a category that no model has
_IGNORED: Final = -1.0  # the number of an unseen category, of which OneHot gives zeros


@dataclass(frozen=True, eq=False)
class Columns(Refusing):
    """The first step: a table of `count` finite numbers per sample, its names checked where it has some."""

    count: int
    names: tuple[str, ...] | None = None
    missing: bool = False  # whether NaN may pass

    def __post_init__(self) -> None:
        check_columns(self.count, self.names)

    def __call__(self, x: Any, unfit: Unfit = REFUSED) -> Reals:
        return feature_table(x, self.count, self.names, self.missing, unfit)

    def in_precision(self, x: Any, unfit: Unfit = REFUSED) -> NDArray[np.float32] | Reals:
        """Returns the table in float32 where the user has it in that, all of its columns: transformers then compute in float32."""
        table = self(x, unfit)
        kinds = {str(kind) for kind in getattr(x, "dtypes", [getattr(x, "dtype", None)])}
        return table.astype(np.float32) if kinds == {"float32"} else table


@dataclass(frozen=True, eq=False)
class Categories(Refusing):
    """The first step for tables with text: categories of the training data as numbers 0, 1, ..; other columns as they are.

    `known[i]` are the categories of column `columns[i]`, None among them for a missing value, which an empty text then is too. An unseen one
    is refused, or becomes -1 (OneHot then gives zeros). A column without known categories is not looked at and becomes 0.

    Args:
        numbers: of the known categories of each column, where they are not 0, 1, ..; None leaves a missing value.
        others: "refuse", or the number of an unseen category, of each column; without it `unseen` holds for all.
    """

    count: int
    columns: Indices
    known: tuple[tuple[Category, ...], ...]
    unseen: str = REFUSE  # or "ignore"
    names: tuple[str, ...] | None = None
    missing: bool = False
    numbers: tuple[tuple[float | None, ...], ...] = ()
    others: tuple[float | str | None, ...] = ()

    def __post_init__(self) -> None:
        check_columns(self.count, self.names)
        demand(self.columns.shape == (len(self.known),), "known categories for each encoded column")
        demand(bool(((self.columns >= 0) & (self.columns < self.count)).all()), "encoded columns of the table")
        demand(
            all(c is None or type(c) in (str, float, int, bool) for known in self.known for c in known),
            "categories that are texts and numbers",
        )
        demand(self.unseen in (REFUSE, "ignore"), "a rule for unseen categories: refuse or ignore")
        sizes = [len(each) for each in self.numbers]
        demand(not sizes or sizes == [len(known) for known in self.known], "a number for each known category")
        demand(all(_is_number(number) for each in self.numbers for number in each), "numbers of categories")
        demand(len(self.others) in (0, len(self.known)), "a rule for unseen categories of each column")
        demand(all(rule == REFUSE or _is_number(rule) for rule in self.others), "a number of unseen categories")

    def __call__(self, x: Any, unfit: Unfit = REFUSED) -> Reals:
        check_column_names(x, self.names)
        try:
            table = np.asarray(dense(x), dtype=object)
        except ValueError:
            raise ShapeError(
                f"input: expected an array of shape ['samples', {self.count}], got parts of different shapes"
            ) from None
        if table.ndim != 2 or table.shape[1] != self.count:
            raise ShapeError(f"input: expected an array of shape ['samples', {self.count}], got {list(table.shape)}")
        table = table.copy()
        for i, (column, known) in enumerate(zip(self.columns, self.known, strict=True)):
            table[:, column] = self._numbered(table[:, column], i, unfit) if known else 0.0
        return feature_table(table, self.count, self.names, self.missing, unfit)

    def _numbered(self, values: NDArray[Any], i: int, unfit: Unfit) -> NDArray[Any]:
        known = self.known[i]
        number = dict(zip(known, self.numbers[i] if self.numbers else map(float, range(len(known))), strict=True))
        if None in number:  # what a file of text has for a missing value
            number.setdefault("", number[None])
        column = int(self.columns[i])
        label = f"feature {column}" if self.names is None else self.names[column]
        unfit.at(lambda x: (label,))
        strange = np.array([not _can_be_looked_up(value) for value in values], dtype=np.bool_)
        reason = "input: expected texts and numbers as categories, got lists or other containers"
        values = unfit.taken(values, strange, _STRANGE, reason)
        keys = [None if is_missing(value) else value for value in values]
        other = self._other(i)
        numbers = np.array([number.get(key, None if other == REFUSE else other) for key in keys], dtype=object)
        unseen = np.array([other == REFUSE and key not in number for key in keys], dtype=np.bool_)
        if not unseen.any():
            return numbers
        reason = (
            f"input: column '{label}' has a category that the training data had not (row {int(unseen.argmax())}); "
            f"expected one of [{some(map(_shown, known))}]"
        )
        return unfit.taken(numbers, unseen, _IGNORED, reason)

    def _other(self, i: int) -> float | str | None:
        """Returns the number of an unseen category of column `columns[i]`, or "refuse"."""
        if self.others:
            return self.others[i]
        return REFUSE if self.unseen == REFUSE else _IGNORED


def _can_be_looked_up(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    """Or None, which leaves a missing value."""
    return value is None or (type(value) in (int, float) and abs(value) <= sys.float_info.max)


def _shown(category: Category) -> str:
    return "a missing value" if category is None else repr(category)
