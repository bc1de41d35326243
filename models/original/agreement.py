"""How a program answers as the user's own model does."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.criteria.intervals import ONE_SIDED, wilson
from cloakwork.models.program.facts import OriginalFacts

_NEAR, _FAR = 0.03, 0.15  # of the spread of values
_ROUNDING: Final = 1e-6  # of a value: sums in float32


def agreement_of(expected: NDArray[Any], answers: NDArray[Any]) -> OriginalFacts:
    """Of labels the share that are the same; of values one less the error (root mean square) as a share of their spread, the worst output's.

    Args:
        expected, answers: [samples] or [samples, outputs].
    """
    count = len(expected)
    if expected.dtype.kind != "f":
        same = float((expected == answers).reshape(count, -1).all(axis=1).mean())
        return OriginalFacts("labels", same, wilson(same, count, -ONE_SIDED), count)
    clear, values = expected.reshape(count, -1).astype(np.float64), answers.reshape(count, -1).astype(np.float64)
    spread, error = clear.std(axis=0), np.sqrt(np.square(values - clear).mean(axis=0))
    varies = spread > _ROUNDING * np.abs(clear).max(axis=0, initial=0.0)
    kept = 1 - float((error[varies] / spread[varies]).max(initial=0.0))
    return OriginalFacts("values", kept, kept, count)


def kept(expected: NDArray[Any], answers: NDArray[Any]) -> float:
    """Of labels the share that are the same. Of values one less the error (root mean square) as a share of their spread; or, where that is at most
    15 %, the share of samples whose values stay within 3 % of it: a threshold of a tree that moves changes the values of few samples, by much."""
    answers = answers.reshape(expected.shape)
    told = agreement_of(expected, answers)
    if told.told == "labels" or told.value < 1 - _FAR:
        return max(0.0, told.value)
    near = _NEAR * expected.std(axis=0) + _ROUNDING * np.abs(expected)
    share = float((np.abs(answers - expected) <= near).reshape(len(expected), -1).all(axis=1).mean())
    return max(share, told.value)
