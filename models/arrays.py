"""The arrays that all rooms pass on, and how what a user has becomes one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.errors import ShapeError

Reals: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


def dense(x: Any) -> Any:
    """Returns a sparse matrix (of scipy) as an array; anything else as it is."""
    return x.toarray() if callable(getattr(x, "toarray", None)) else x


def some_rows(samples: Any, most: int) -> Any:
    """Selects rows, evenly spaced, of an array, a frame, a sparse matrix or a list."""
    count = samples.shape[0] if hasattr(samples, "shape") else len(samples)
    rows = np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))
    if hasattr(samples, "iloc"):
        return samples.iloc[rows]
    return samples[rows] if hasattr(samples, "shape") else [samples[row] for row in rows]


def missing_values(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Finds which objects of an array say that a value is missing."""
    return np.asarray(np.frompyfunc(is_missing, 1, 1)(array), dtype=np.bool_)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the NA of pandas, which is not imported here."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ == "NAType"


def real_numbers(x: Any) -> Reals:
    """Returns [..] in float64; ShapeError for text, complex numbers, dates and what is no array. Missing values of any kind become NaN."""
    try:
        array = np.asarray(dense(x))
        if array.dtype.kind in "cmM":
            raise TypeError
        if array.dtype.kind == "O":
            array = np.where(missing_values(array), np.nan, array)
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise ShapeError("input: expected numbers; encode text and categories as the model was trained with") from None
