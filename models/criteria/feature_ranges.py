"""The range that every client is told of a feature: the caller's own, or what samples show, rounded outwards so that its ends are no sample's."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError, closest_first, some

Range: TypeAlias = tuple[float, float]
FeatureRanges: TypeAlias = Mapping[str, Range] | Mapping[int, Range] | Mapping[str | int, Range]
"""Lowest and highest value of features, by name or number."""

OPTION: Final = "ranges"
LEAST_RANGE: Final = 1e-290  # whose parts are still numbers
_NEAR: Final = 1e-6  # of a step: values of float32
_NEAREST: Final = 1e-9  # where no value of the samples may lie outside but for rounding
_ROUND_ENDS: Final = 20  # a range is rounded outwards to multiples of a twentieth of it, or less
_DIGITS: Final = 15  # that a number has surely
_INTEGER_BITS: Final = range(1, 33)


def by_number(given: Mapping[Any, Any], names: Sequence[str], option: str) -> dict[int, Any]:
    """Returns what was given of features by name or number, by number.

    Raises:
        CompileError: not by features, an unknown feature, or one that is given twice.
    """
    if not isinstance(given, Mapping):
        raise CompileError(f"{option}: expected a dict by name or number of a feature, got {type(given).__name__}")
    places = {name: i for i, name in reversed(list(enumerate(names)))}
    numbered: dict[int, Any] = {}
    for key, value in given.items():
        number = _number(key, places, len(names), option)
        if number in numbered:
            raise CompileError(
                f"{option}: '{names[number]}' is given twice, by name and by number; leave one of them out"
            )
        numbered[number] = value
    return numbered


def _number(key: Any, places: Mapping[str, int], count: int, option: str) -> int:
    if isinstance(key, str):
        if key not in places:
            raise CompileError(f"{option}: there is no feature '{key}'; expected {some(closest_first(key, places))}")
        return places[key]
    try:
        number = -1 if isinstance(key, bool) else operator.index(key)
    except TypeError:
        number = -1
    if not 0 <= number < count:
        raise CompileError(f"{option}: expected names of features, or numbers from 0 to {count - 1}, got {key!r}")
    return number


def ranges_by_number(given: FeatureRanges | None, names: Sequence[str]) -> dict[int, Range]:
    """Raises CompileError for an unknown feature, and for what is no range of two ascending finite numbers."""
    return {number: _range(ends, names[number]) for number, ends in by_number(given or {}, names, OPTION).items()}


def _range(ends: Any, name: str) -> Range:
    message = f"{OPTION}: expected two ascending finite numbers for '{name}'"
    try:
        low, high = (math.nan if isinstance(end, str | bytes) else float(end) for end in ends)
    except (TypeError, ValueError, OverflowError) as error:
        raise CompileError(f"{message}, got {type(ends).__name__}, not a pair of numbers") from error
    if not (math.isfinite(low) and math.isfinite(high) and LEAST_RANGE <= high - low < math.inf):
        raise CompileError(f"{message}, got {low:g} and {high:g}")
    return low, high


def outwards(low: float, high: float, near: float = _NEAR) -> Range:
    """Rounds outwards to multiples of 1, 2 or 5 times a power of ten, at least twenty of them in the range. Args: near: part of such a step that is
    overlooked."""
    if not LEAST_RANGE <= high - low < math.inf:
        return low, high
    part = (high - low) / _ROUND_ENDS
    power = 10.0 ** math.floor(math.log10(part))
    size = max(factor * power for factor in (1, 2, 5) if factor * power <= part * (1 + _NEAR))
    return math.floor(low / size + near) * size, math.ceil(high / size - near) * size


def public_ends(low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Round ends outside of the ranges [features] that samples show.

    What whole numbers of some bits can be (0 to 255, -128 to 127) stays: that is the type's range. A feature that is always the same gets a range
    around its value, to two digits; one that is always 0 gets -1 to 1.
    """
    pairs = [_short(*_public_ends(float(a), float(b))) for a, b in zip(low, high, strict=True)]
    return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


def _short(low: float, high: float) -> Range:
    """0.7 for 0.7000000000000001."""
    ends = float(f"{low:.{_DIGITS}g}"), float(f"{high:.{_DIGITS}g}")
    moved = max(abs(ends[0] - low), abs(ends[1] - high))
    return ends if moved <= _NEAREST * (high - low) / _ROUND_ENDS else (low, high)


def _public_ends(low: float, high: float) -> Range:
    if (low, high) in _TYPES:
        return low, high
    if high - low >= LEAST_RANGE:
        return outwards(low, high, _NEAREST)
    if abs(low) < LEAST_RANGE:
        return -1.0, 1.0
    size = 10.0 ** (math.floor(math.log10(abs(low))) - 1)
    least, most = math.floor(low / size + _NEAR), math.ceil(low / size - _NEAR)
    return (least * size, most * size) if least < most else ((least - 1) * size, (most + 1) * size)


def are_round(low: float, high: float) -> bool:
    """Whether the ends of a range are as round as `public_ends` makes them: multiples of at least a sixtieth of it, or those of a type."""
    if (low, high) in _TYPES:
        return True
    if not LEAST_RANGE <= high - low < math.inf:
        return False
    part = (high - low) / _ROUND_ENDS
    power = 10.0 ** math.floor(math.log10(part))
    sizes = (factor * power for factor in (0.5, 1, 2, 5) if factor * power >= part / 3)
    return any(_is_multiple(low, size) and _is_multiple(high, size) for size in sizes)


def _is_multiple(end: float, size: float) -> bool:
    times = end / size
    return abs(times - round(times)) <= _NEAR + 10.0 ** (1 - _DIGITS) * abs(times)


_TYPES: Final = frozenset(
    ends
    for bits in _INTEGER_BITS
    for ends in ((0.0, 2.0**bits - 1), (-(2.0**bits), 2.0**bits - 1), (1 - 2.0**bits, 2.0**bits - 1))
)
