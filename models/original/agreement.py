"""Agreement of a program with the user's own model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.criteria.verdicts import ONE_SIDED, Verdict, labels_kept, root_mean_square, wilson
from cloakwork.models.program.facts import OriginalFacts

# Differences of answers beyond the rounding of floating-point numbers, and the first sample that differs.

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


# Samples at the edges of typical ones: models are imported wrongly where nobody has looked.

_SEED: Final = 20261128
_OUTSIDE: Final = 1.5  # of the half range
_MIXED: Final = 4  # samples whose numbers come from either end


def edges_of(samples: NDArray[np.generic]) -> NDArray[np.generic]:
    """Returns ends of every number's range, values 1.5 times outside, zeros, and one sample twice. Integers stay within their range.

    Args:
        samples: [samples, ..] of real numbers.
    """
    if not len(samples):
        return samples
    rng = np.random.default_rng(_SEED)
    low, high = samples.min(axis=0), samples.max(axis=0)
    mixed = [np.where(rng.random(low.shape) < 0.5, low, high) for _ in range(_MIXED)]
    rows = [low, high, *mixed, samples[0], samples[0]]
    if samples.dtype.kind == "f":
        low, high = low.astype(np.float64), high.astype(np.float64)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        rows += [np.zeros_like(low), middle - _OUTSIDE * half, middle + _OUTSIDE * half]
        rows += [np.where(rng.random(low.shape) < 0.1, middle + _OUTSIDE * half, samples[-1])]
    return np.stack(rows).astype(samples.dtype)


STAGES: Final = (300, 2000)  # calibration samples: more if fewer do not show the accuracy
_ROUNDING: Final = 1e-6  # of a value: sums in float32


Answers = tuple[NDArray[Any], NDArray[Any]]
"""Of the model and of the program, [samples] or [samples, outputs] each."""


def facts_of(expected: NDArray[Any], answers: NDArray[Any]) -> OriginalFacts:
    """Compares: of labels the share that are the same; of values one less the error (root mean square) as a share of their spread, the worst
    output's.

    Args:
        expected, answers: [samples] or [samples, outputs].
    """
    count = len(expected)
    if expected.dtype.kind == "f":
        verdict = _by_error(expected, answers)
        return OriginalFacts("values", verdict.value, verdict.at_least, count)
    clear, labels = _as_labels(expected, answers)
    same = float((clear == labels).mean())
    return OriginalFacts("labels", same, wilson(same, count, -ONE_SIDED), count)


def verdict_of(expected: NDArray[Any], answers: NDArray[Any]) -> Verdict:
    """Judges labels by the share that are the same and F1 of each class, values by one less the error (root mean square) as a share of their
    spread."""
    return _by_error(expected, answers) if expected.dtype.kind == "f" else _by_labels(expected, answers)


def least_of(answers: Iterable[Answers]) -> Verdict:
    """Returns the worst verdict: on samples, and on points between them, say."""
    return min((verdict_of(*each) for each in answers), key=lambda each: each.worth)


def first_sure(answers: Iterable[Answers], accuracy: float | None) -> tuple[Verdict, Answers]:
    """Returns the verdict on answers to few samples, then to more: the first that more samples would not change. Args: accuracy: None: any will
    do."""
    for each in answers:
        verdict = verdict_of(*each)
        if accuracy is None or verdict.holds(accuracy) or verdict.value < accuracy:
            break
    return verdict, each


def _by_labels(expected: NDArray[Any], answers: NDArray[Any]) -> Verdict:
    clear, labels = _as_labels(expected, answers)
    return labels_kept(labels, clear)


def _by_error(expected: NDArray[Any], answers: NDArray[Any]) -> Verdict:
    """Outputs that are constant count by their size."""
    clear, values = _as_numbers(expected, answers)
    size = np.abs(clear).max(axis=0, initial=0.0)
    clear, values = (each / np.where(size > 0, size, 1.0) for each in (clear, values))  # no square of them overflows
    error, spread = values - clear, clear.std(axis=0)
    spread = np.where(spread > _ROUNDING, spread, size > 0)
    counts = spread > 0
    if not counts.any():
        return Verdict("closeness", 1.0, 1.0, 1.0, len(clear))
    lost = np.square(error[:, counts] / spread[counts])
    worst, most = root_mean_square(lost)
    differs = int(lost.max(axis=1).argmax())
    kept, at_least, doubled = (max(0.0, 1 - each) for each in (worst, most, 2 * worst))
    return Verdict("closeness", kept, at_least, doubled, len(clear), differs=differs)


def _as_numbers(*answers: NDArray[Any]) -> tuple[Reals, Reals]:
    """Returns [samples, outputs] each."""
    first, second = (each.reshape(len(each), -1).astype(np.float64) for each in answers)
    return first, second


def _as_labels(*answers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns [samples] each; texts where one has objects or texts, or several labels of a sample."""
    first, second = map(_joined, answers)
    texts = any(each.dtype.kind in "OUS" for each in (first, second))
    return (first.astype(str), second.astype(str)) if texts else (first, second)


def _joined(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.ndim < 2:
        return labels
    return np.array([" ".join(map(str, row)) for row in labels.reshape(len(labels), -1).tolist()])
