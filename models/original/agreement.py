"""Agreement of a program with the user's own model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.criteria.intervals import ONE_SIDED, wilson
from cloakwork.models.criteria.verdicts import Verdict, labels_kept, root_mean_square
from cloakwork.models.program.facts import OriginalFacts

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
