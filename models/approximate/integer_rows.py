"""Weights that are integers already: every row a multiple of a step of its own, as quantised training and QDQ models leave them.

Such rows keep their integers when the scale of a row's result and that of the wires it reads differ by a multiple of its step:

    W = step q,  scale_out = k scale_in / step   ->   W scale_out / scale_in = k q
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Linear

LARGEST_WEIGHT = 127  # 8 bits, signed
_TOLERANCE = 2e-4  # of a step; float32 weights of 7 bits and a sign are within 2e-5
_FINEST = 16  # multiples of the coarsest scale that are tried
_AT_ONCE = 1 << 20  # numbers that are looked at together where there are so few
_SAMPLED = 16  # columns that sort out most rows


def holds_integers(node: Linear) -> bool:
    """Whether weights are integers already, as quantised training leaves them; a sum of two values is none that has to stay."""
    return node.weights.shape[2] > 2 and bool((row_steps(node.weights) > 0).all())


def row_steps(weights: Reals, most: int = LARGEST_WEIGHT) -> Reals:
    """Returns [G, R]: the largest step of which a row's weights [G, R, K] are multiples up to `most`; 0 where there is none."""
    rows = weights.reshape(-1, weights.shape[2])
    largest = np.abs(rows).max(axis=1)
    if most * rows.size <= _AT_ONCE:
        return _row_steps_at_once(rows, largest, most).reshape(weights.shape[:2])
    order = np.argsort(-np.abs(rows), axis=1)[:, :_SAMPLED]
    sampled = np.take_along_axis(rows, order, axis=1)
    steps = np.where(largest == 0, 1.0, 0.0)
    for largest_integer in range(1, most + 1):
        open_rows = np.flatnonzero(steps == 0)
        if not len(open_rows):
            break
        step = largest[open_rows] / largest_integer
        open_rows, step = _multiples(sampled, open_rows, step)
        open_rows, step = _multiples(rows, open_rows, step)
        steps[open_rows] = step
    return steps.reshape(weights.shape[:2])


def _row_steps_at_once(rows: Reals, largest: Reals, most: int) -> Reals:
    """Returns the same for few weights: all divisors together."""
    candidates = largest / np.arange(1, most + 1)[:, None]  # [divisors, rows], the largest first
    ratio = rows / np.where(candidates > 0, candidates, 1.0)[..., None]
    fits = (np.abs(ratio - np.rint(ratio)).max(axis=2, initial=0.0) < _TOLERANCE) & (candidates > 0)
    first = np.argmax(fits, axis=0)
    steps = np.where(fits.any(axis=0), candidates[first, np.arange(len(rows))], 0.0)
    return np.where(largest == 0, 1.0, steps)


def _multiples(rows: Reals, chosen: np.ndarray, step: Reals) -> tuple[np.ndarray, Reals]:
    ratio = rows[chosen] / step[:, None]
    kept = np.abs(ratio - np.rint(ratio)).max(axis=1, initial=0.0) < _TOLERANCE
    return chosen[kept], step[kept]


@dataclass(frozen=True, eq=False)
class IntegerScales:
    """Scale of the wires that a node reads, and of its rows [G, R]; variance of the rows' noise, relative to their ranges, all together."""

    source: float
    rows: Reals
    error: float


@dataclass(frozen=True)
class RowNoise:
    """Variance of one wire that a row reads, of what comes behind the row, and the most that its integers may bring."""

    source: float
    behind: float
    room: float


def integer_scales(
    weights: Reals, half: Reals, end: float, source_limit: float, noise: RowNoise
) -> IntegerScales | None:
    """Returns scales at which weights [G, R, K] stay integers and rows, relative to their ranges, have least noise; None when they are none, or too
    noisy.

    Args:
        half: [G, R], half ranges of the rows, and `end` the phase that they may reach; 0 of constants, which may have any scale.
        source_limit: the largest scale of the wires that are read.
    """
    half = np.where(half > 0, half, 1.0)
    widest = end / half
    steps = row_steps(weights)
    if not (steps > 0).all():
        return None
    integers = np.rint(weights / steps[:, :, None])
    norms, largest = np.sqrt((integers**2).sum(axis=2)), np.abs(integers).max(axis=2)
    used = largest > 0
    if not used.any():
        return None
    coarsest = min(source_limit, float((widest * steps)[used].min()))
    if not (coarsest > 0 and math.isfinite(coarsest)):
        return None
    best: IntegerScales | None = None
    most = np.minimum(
        np.floor(math.sqrt(noise.room / noise.source) / np.maximum(norms, 1.0)),
        np.floor(LARGEST_WEIGHT / np.maximum(largest, 1.0)),
    )
    for parts in range(_FINEST, 0, -1):  # the finer, the fuller every row's range, and the more noise
        source = coarsest / parts
        factor = np.maximum(np.floor(widest * steps / source * (1 + 1e-9)), 1.0)
        factor = np.where(used, factor, 1.0)
        kept = np.minimum(factor, most)
        if bool((kept[used] >= 1).all()) and (parts == 1 or bool((kept[used] == factor[used]).all())):
            rows = np.where(used, kept * source / steps, widest)
            variance = noise.behind / np.square(rows) + noise.source * np.square(norms * steps / source)
            error = float((variance / np.square(half))[used].sum())
            if best is None or error < best.error:
                best = IntegerScales(source, rows, error)
    return best


# Rounds the weights of a row one after the other; those still to come make up for the error of those that were rounded.
#
# With H the covariance of what the row reads, the error of its result is (q - w)^T H (q - w). Rounding weight k by e leaves the least of it when
# the later ones move by -e U[k, later] / U[k, k], U the Cholesky factor of the inverse of H. The mean of what a row reads plays no part: the bias
# takes it.
#
# Source: [FAHA23]. Ours: without its blocks; columns in descending order of their variance.

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
