"""Confidence intervals of a share."""

from __future__ import annotations

import math
from typing import Final

ONE_SIDED: Final = 1.645  # standard deviations of the end of a one-sided interval of 95 %


def wilson(share: float, count: int, deviations: float) -> float:
    """Returns the end of Wilson's interval for a share, `deviations` standard deviations off. Source: [Wil27]."""
    square = deviations**2
    middle = share + square / (2 * count)
    spread = deviations * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, min(1.0, (middle + spread) / (1 + square / count)))
