"""Estimates of where a row's values end beyond a few hundred samples: tails fitted beyond a high threshold.

The excesses over a threshold are taken as generalised Pareto, fitted by their mean and variance.

Source: [HW87] method of moments. Ours: the shape is bounded, and drawn to an exponential tail where values are few.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Reals

KEPT: Final = 64  # largest and least values of a row that are kept
BEYOND: Final = 1e-4  # of the values, that may lie beyond the end of a range
_SHARE = 0.1  # of the values that count as a tail at most
_FEWEST = 8  # values that make a tail
_SHORT = 0.25  # of the range, added to extremes where there are too few values to fit a tail
_SHAPES = (-0.5, 0.25)
_PRIOR = 60  # values that an exponential tail counts as, which few values are drawn to


def largest(values: Reals) -> Reals:
    """Returns the KEPT largest of each column of values [samples, R], in descending order [at most KEPT, R]."""
    kept = min(KEPT, len(values))
    top = values if kept == len(values) else np.partition(values, len(values) - kept, axis=0)[-kept:]
    return np.asarray(-np.sort(-top, axis=0))


def tail_end(top: Reals, count: int, width: Reals) -> Reals:
    """Returns [R]: what a value exceeds with a probability of BEYOND.

    Args:
        top: [kept, R], the largest values in descending order, of `count`.
        width: [R], of the range that was seen.
    """
    size = min(len(top) - 1, int(_SHARE * count))
    if size < _FEWEST:
        return np.asarray(top[0] + _SHORT * width)
    threshold = top[size]
    excess = top[:size] - threshold
    mean, variance = excess.mean(axis=0), excess.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.clip(np.where(variance > 0, 0.5 * (1 - mean**2 / variance), 0.0), *_SHAPES)
    shape = shape * size / (size + _PRIOR)
    shape = np.where(np.abs(shape) < 1e-3, 1e-3, shape)
    ratio = size / count / BEYOND
    end = threshold + mean * (1 - shape) * (ratio**shape - 1) / shape
    return np.asarray(np.maximum(end, top[0]) if count * BEYOND < 1 else end)
