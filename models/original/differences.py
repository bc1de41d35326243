"""Differences of answers beyond the rounding of floating-point numbers, and the first sample that differs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals

_OF_SPREAD: Final = 2e-3  # float32 in one place and float64 in another, through many layers
_OF_VALUE: Final = 1e-5  # values far from zero differ little from each other, and that is what counts
_OF_ALL: Final = 0.01  # of the spread of all numbers, that of one that hardly varies counts as
_SMALLEST: Final = 1e-6
_MOST: Final = 0.75  # of the samples
_ROUNDINGS: Final = 8.0  # of a sum, for one of its inputs


@dataclass(frozen=True)
class Difference:
    """The first sample whose answers differ, and how many do."""

    sample: int
    expected: str
    answer: str
    count: int
    samples: int

    @property
    def text(self) -> str:
        return f"gives {self.answer} where the model says {self.expected} (sample {self.sample}; {self.count} of {self.samples} samples differ)"


def difference(
    expected: NDArray[Any],
    answer: NDArray[Any],
    *,
    share: float = 0.0,
    loose: float = 1.0,
    again: NDArray[Any] | None = None,
) -> Difference | None:
    """Returns None where both say the same. Samples of which the expected answer is not finite count for nothing.

    Args:
        expected, answer: [samples, ..], numbers or labels.
        share: of the samples that may differ.
        loose: by how much more than rounding of float32 numbers may differ.
        again: expected answers to samples that differ from these by a rounding: what terms that cancel leave of it, answers may differ by too.
    """
    count = len(expected)
    if not count:
        return None
    if answer.shape != expected.shape:
        theirs, ours = (f"an answer of shape {list(each.shape)}" for each in (expected, answer))
        return Difference(0, theirs, ours, count, count)
    if expected.dtype.kind in "fc" or answer.dtype.kind in "fc":
        rounding = _rounding(expected, expected if again is None else again)
        differs = _numbers_differ(expected.reshape(count, -1), answer.reshape(count, -1), loose, rounding)
    else:
        differs = (expected != answer).reshape(count, -1).any(axis=1)
    many = int(differs.sum())
    if many <= math.ceil(share * count):
        return None
    first = int(np.argmax(differs))
    return Difference(first, _shown(expected[first]), _shown(answer[first]), many, count)


def _rounding(expected: NDArray[Any], again: NDArray[Any]) -> Reals:
    """Returns [numbers]: by how much answers of most samples change under a rounding; on a step few change by far more."""
    with np.errstate(invalid="ignore"):
        change = np.abs(again.astype(np.float64) - expected.astype(np.float64)).reshape(len(expected), -1)
    return np.asarray(_ROUNDINGS * np.quantile(np.nan_to_num(change, posinf=0.0), _MOST, axis=0))


def _numbers_differ(expected: NDArray[Any], answer: NDArray[Any], loose: float, rounding: Reals) -> NDArray[np.bool_]:
    theirs, ours = expected.astype(np.float64), answer.astype(np.float64)
    known = np.isfinite(theirs).all(axis=1)
    each, every = (theirs[known].std(axis=0), theirs[known].std()) if known.any() else (np.zeros(theirs.shape[1]), 0.0)
    spread = np.maximum(each, _OF_ALL * every)
    with np.errstate(invalid="ignore"):
        allowed = loose * (_OF_SPREAD * spread + _OF_VALUE * np.abs(theirs) + _SMALLEST) + rounding
        return np.asarray(known & ~(np.abs(ours - theirs) <= allowed).all(axis=1))


def _shown(answer: NDArray[Any]) -> str:
    """Returns a few of its numbers."""
    values = np.asarray(answer).reshape(-1)
    shown = [f"{value:.4g}" if values.dtype.kind == "f" else str(value) for value in values[:4]]
    return (", ".join(shown) + (", .." if values.size > 4 else "")) or "nothing"
