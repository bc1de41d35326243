"""Rounds the weights of a row one after the other; those still to come make up for the error of those that were rounded.

With H the covariance of what the row reads, the error of its result is (q - w)^T H (q - w). Rounding weight k by e leaves the least of it when the
later ones move by -e U[k, later] / U[k, k], U the Cholesky factor of the inverse of H. The mean of what a row reads plays no part: the bias takes it.

Source: [FAHA23]. Ours: without its blocks; columns in descending order of their variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.passes.integer_rows import LARGEST_WEIGHT

_DAMPING = 0.02  # of the mean variance, added to every column: samples are few, and what hardly varies must not make up for much
_NARROWEST, _WIDEST = 4, 2048  # columns; narrower and wider rows are rounded to the nearest
_LEAST_SAMPLES = 16


def compensated(width: int) -> bool:
    """Whether rows of this many columns are rounded one after the other."""
    return _NARROWEST <= width <= _WIDEST


@dataclass(frozen=True, eq=False)
class Compensation:
    """Correlation of a row's columns: those that vary, in the order in which they are rounded, and U for them."""

    order: Indices
    factor: Reals

    @classmethod
    def of(cls, values: Reals) -> Compensation | None:
        """Computes the compensation of rounding. Args: values [samples, K], what the columns read. None where that says too little, or where there
        are too many columns."""
        if len(values) < _LEAST_SAMPLES or not compensated(values.shape[1]):
            return None
        spread = values.var(axis=0)
        alive = np.flatnonzero(spread > 0)
        if len(alive) < 2:
            return None
        order = alive[np.argsort(-spread[alive], kind="stable")]
        centred = values[:, order] - values[:, order].mean(axis=0)
        covariance = centred.T @ centred / len(centred) + _DAMPING * float(spread[alive].mean()) * np.eye(len(order))
        return cls(order, np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(covariance)).T))


def rounded(weights: Reals, steps: Reals, compensation: Compensation | None) -> Indices:
    """Rounds to integers [R, K], at most 8 bits each, for real weights [R, K] with the step [R, K] of an integer. None: to the nearest."""
    result = _nearest(weights / steps)
    if compensation is None:
        return result
    order, factor = compensation.order, compensation.factor
    left, step = weights[:, order].T.copy(), np.ascontiguousarray(steps[:, order].T)
    integers = np.empty(left.shape)
    for k in range(len(order)):
        integers[k] = np.minimum(np.maximum(np.rint(left[k] / step[k]), -LARGEST_WEIGHT), LARGEST_WEIGHT)
        error = (left[k] - integers[k] * step[k]) / factor[k, k]
        left[k + 1 :] -= factor[k, k + 1 :, None] * error
    result[:, order] = integers.T.astype(np.int64)
    assert int(np.abs(result).max(initial=0)) <= LARGEST_WEIGHT  # no NaN either, which becomes the least integer
    return result


def _nearest(weights: Reals) -> Indices:
    return np.clip(np.rint(weights), -LARGEST_WEIGHT, LARGEST_WEIGHT).astype(np.int64)
