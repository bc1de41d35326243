"""The arrays that all rooms pass on, and how what a user has becomes one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.errors import ShapeError

Reals: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


def real_numbers(x: Any) -> Reals:
    """[..] in float64; ShapeError for text, complex numbers, dates and what is no array."""
    try:
        array = np.asarray(x)
        if array.dtype.kind in "cmM":
            raise TypeError
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise ShapeError("input: expected numbers; encode text and categories as the model was trained with") from None
