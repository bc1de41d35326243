"""How a program answers as the user's own model does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.criteria.intervals import ONE_SIDED, wilson
from cloakwork.models.program.facts import OriginalFacts


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
    varies = spread > 1e-12 * max(1.0, float(np.abs(clear).max(initial=0.0)))
    kept = 1 - float((error[varies] / spread[varies]).max(initial=0.0))
    return OriginalFacts("values", kept, kept, count)
