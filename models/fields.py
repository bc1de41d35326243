"""Typed values from JSON that strangers wrote: every function gives what its name says, or raises ValueError."""

from __future__ import annotations

import json
import math
import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals

MOST_NUMBERS: Final = 1 << 24  # of one sample, before or after encryption
LARGEST_INTEGER: Final = 1 << 53  # what JSON readers of other languages keep exactly
_DEEPEST: Final = 16  # dimensions of an array


def parsed_object(text: str | bytes, unique: bool = False) -> dict[str, Any]:
    """Parses an object of JSON. with `unique` no name may come twice in one object."""
    try:
        fields = json.loads(text, object_pairs_hook=_unique if unique else None)
    except (TypeError, RecursionError) as error:
        raise ValueError("not JSON, or nested too deeply") from error
    if not isinstance(fields, dict):
        raise ValueError("expected a JSON object")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(fields := dict(pairs)) != len(pairs):
        raise ValueError("a name comes twice")
    return fields


def integer(value: Any, low: int = 0, high: int = LARGEST_INTEGER) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"expected an integer of {low} to {high}")
    return value


def real(value: Any) -> float:
    """Checks that a number is finite."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max:
        raise ValueError("expected a finite number")
    if math.isnan(value):
        raise ValueError("expected a finite number, got NaN")
    return float(value)


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    value.encode()  # UnicodeEncodeError, a ValueError, for halves of characters
    return value


def entries(value: Any, most: int = MOST_NUMBERS) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"expected a list of at most {most} entries")
    return value


def shape(value: Any) -> tuple[int, ...]:
    """Checks positive extents of a tensor that fits memory."""
    extents = tuple(integer(extent, 1) for extent in entries(value, most=32))
    if math.prod(extents) > MOST_NUMBERS:
        raise ValueError(f"expected a tensor of at most {MOST_NUMBERS} numbers")
    return extents


def reals(value: Any, finite: bool = True) -> Reals:
    """Checks an array of any shape; without `finite` infinities may be among its numbers, NaN never."""
    _only(value, {int, float})
    try:
        array = np.asarray(value, dtype=np.float64)
    except OverflowError as error:
        raise ValueError("expected finite numbers") from error
    if not (np.isfinite(array) if finite else ~np.isnan(array)).all():
        raise ValueError("expected finite numbers")
    return array


def indices(value: Any) -> Indices:
    """Checks an array of any shape, of integers of any sign."""
    _only(value, {int})
    try:
        array = np.asarray(value, dtype=np.int64)
    except OverflowError as error:
        raise ValueError(f"expected integers of at most {LARGEST_INTEGER}") from error
    if array.size and not -LARGEST_INTEGER <= int(array.min()) <= int(array.max()) <= LARGEST_INTEGER:
        raise ValueError(f"expected integers of at most {LARGEST_INTEGER}")
    return array


def labels(value: Any) -> NDArray[Any]:
    """Checks a vector of texts, numbers or truth values."""
    if any(isinstance(entry, list | dict) or entry is None for entry in entries(value)):
        raise ValueError("expected labels that are texts or numbers")
    longest = max((len(text(entry)) for entry in value if isinstance(entry, str)), default=1)
    if longest * len(value) > MOST_NUMBERS:  # an array of texts gives each the room of the longest
        raise ValueError("expected shorter labels")
    return np.asarray(value)


def _only(value: Any, kinds: set[type], depth: int = 0) -> None:
    """Nested lists of these types alone; numpy would read texts and truth values as numbers."""
    if not isinstance(value, list):
        sound = type(value) in kinds
    elif value and isinstance(value[0], list):
        sound = depth < _DEEPEST
        for entry in value if sound else ():
            _only(entry, kinds, depth + 1)
    else:
        sound = set(map(type, value)) <= kinds
    if not sound:
        raise ValueError("expected an array of numbers")
