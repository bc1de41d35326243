"""A table of features as it comes from the user: checked for its columns, their names and its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps.unfit import REFUSED, Unfit, without_infinite
from cloakwork.models.errors import ShapeError, some


def feature_table(x: Any, count: int, names: tuple[str, ...] | None, missing: bool, unfit: Unfit = REFUSED) -> Reals:
    """Returns [samples, count] in float64. Args: x: an array, or a table with named columns, which must be `names` in that order.

    Raises:
        ShapeError: the wrong number or names of columns; text, infinities, or NaN where `missing` is false, if `unfit` refuses them.
    """
    check_column_names(x, names)
    labels = feature_labels(names, count)
    unfit.at(lambda x: labels)
    table = unfit.numbers(x)
    if table.ndim != 2 or table.shape[1] != count:
        raise ShapeError(
            f"input: expected an array of shape ['samples', {count}], got {list(table.shape)}; samples come first"
        )
    column = labels[int(np.argmax(np.isinf(table).any(axis=0)))]
    table = without_infinite(table, f"input: expected finite numbers; column '{column}' has infinite ones", unfit)
    if missing:
        return table
    bad = np.isnan(table)
    column = labels[int(np.argmax(bad.any(axis=0)))]
    reason = f"input: column '{column}' has missing values (NaN), which this model does not take; replace them first"
    return unfit.taken(table, bad, 0.0, reason)


def check_column_names(x: Any, names: tuple[str, ...] | None) -> None:
    """Checks names of columns. Tables without names pass: their columns are taken in order."""
    columns = getattr(x, "columns", None)
    if columns is None or names is None:
        return
    given_names = tuple(str(column) for column in columns)
    if given_names == names:
        return
    absent = [name for name in names if name not in given_names]
    extra = [name for name in given_names if name not in names]
    wrong = [f"missing [{some(map(repr, absent))}]"] * bool(absent) + [f"unexpected [{some(map(repr, extra))}]"] * bool(
        extra
    )
    raise ShapeError(
        f"input: expected the columns of the training data in their order; {', '.join(wrong) or 'the order differs'}"
    )


def feature_labels(names: tuple[str, ...] | None, count: int) -> tuple[str, ...]:
    return names if names is not None else tuple(f"feature {i}" for i in range(count))
