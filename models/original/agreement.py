"""How a program answers as the user's own model does."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.program.facts import OriginalFacts

_CONFIDENCE: Final = 1.645  # standard deviations of the lower end of a share, at 95 %


def agreement_of(wanted: NDArray[Any], found: NDArray[Any]) -> OriginalFacts:
    """Of labels the share that are the same; of values one less the error (root mean square) as a share of their spread, the worst output's.

    Args:
        wanted, found: [samples] or [samples, outputs].
    """
    count = len(wanted)
    if wanted.dtype.kind != "f":
        same = float((wanted == found).reshape(count, -1).all(axis=1).mean())
        return OriginalFacts("labels", same, lower_end(same, count), count)
    clear, values = wanted.reshape(count, -1).astype(np.float64), found.reshape(count, -1).astype(np.float64)
    spread, error = clear.std(axis=0), np.sqrt(np.square(values - clear).mean(axis=0))
    varies = spread > 1e-12 * max(1.0, float(np.abs(clear).max(initial=0.0)))
    kept = 1 - float((error[varies] / spread[varies]).max(initial=0.0))
    return OriginalFacts("values", kept, kept, count)


def lower_end(share: float, count: int) -> float:
    """Of Wilson's interval for a share, one-sided, at 95 %. Source: [Wil27]."""
    square = _CONFIDENCE**2
    middle = share + square / (2 * count)
    spread = _CONFIDENCE * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, (middle - spread) / (1 + square / count))


def enough_samples(share: float) -> int:
    """How many that all agree show at least this share."""
    return math.ceil(_CONFIDENCE**2 * share / (1 - share))
