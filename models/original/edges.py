"""Samples at the edges of typical ones: models are imported wrongly where nobody has looked."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

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
