"""How a program answers as the user's own model does."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.criteria.intervals import ONE_SIDED, wilson
from cloakwork.models.program.facts import OriginalFacts

_NEAR, _FAR = 0.03, 0.15  # of the spread of values
_ROUNDING: Final = 1e-6  # of a value: sums in float32


def agreement_of(wanted: NDArray[Any], found: NDArray[Any]) -> OriginalFacts:
    """Of labels the share that are the same; of values one less the error (root mean square) as a share of their spread, the worst output's.

    Args:
        wanted, found: [samples] or [samples, outputs].
    """
    count = len(wanted)
    if wanted.dtype.kind != "f":
        same = float((wanted == found).reshape(count, -1).all(axis=1).mean())
        return OriginalFacts("labels", same, wilson(same, count, -ONE_SIDED), count)
    clear, values = wanted.reshape(count, -1).astype(np.float64), found.reshape(count, -1).astype(np.float64)
    spread, error = clear.std(axis=0), np.sqrt(np.square(values - clear).mean(axis=0))
    varies = spread > _ROUNDING * np.abs(clear).max(axis=0, initial=0.0)
    kept = 1 - float((error[varies] / spread[varies]).max(initial=0.0))
    return OriginalFacts("values", kept, kept, count)


def kept(wanted: NDArray[Any], found: NDArray[Any]) -> float:
    """Of labels the share that are the same. Of values one less the error (root mean square) as a share of their spread; or, where that is at most
    15 %, the share of samples whose values stay within 3 % of it: a threshold of a tree that moves changes the values of few samples, by much."""
    found = found.reshape(wanted.shape)
    told = agreement_of(wanted, found)
    if told.told == "labels" or told.value < 1 - _FAR:
        return max(0.0, told.value)
    near = _NEAR * wanted.std(axis=0) + _ROUNDING * np.abs(wanted)
    share = float((np.abs(found - wanted) <= near).reshape(len(wanted), -1).all(axis=1).mean())
    return max(share, told.value)
