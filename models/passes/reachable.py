"""The few values that an integer sum can have: of bits and choices by bits, mostly far fewer than its range holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices

MOST_VALUES: Final = 1024


def reachable_sums(terms: Sequence[tuple[int, Indices | None]]) -> Indices | None:
    """All sums of one value of each term times its weight, in order; None where they are many, or a term's values are not known."""
    sums: Indices = np.zeros(1, dtype=np.int64)
    for weight, values in terms:
        if values is None or len(sums) * len(values) > 16 * MOST_VALUES:
            return None
        sums = np.unique(sums[:, None] + weight * values[None, :])
        if len(sums) > MOST_VALUES:
            return None
    return sums


def integers_between(low: float, high: float) -> Indices | None:
    """None where they are many."""
    return np.arange(round(low), round(high) + 1) if high - low < MOST_VALUES else None
