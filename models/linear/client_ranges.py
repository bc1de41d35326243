"""The range of every feature that a client of a linear model is told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import widened
from cloakwork.models.criteria.feature_ranges import OPTION, FeatureRanges, public_ends, ranges_by_number
from cloakwork.models.errors import CompileError, ShapeError, some


def client_ranges(
    samples: Reals | None,
    names: Sequence[str],
    given: FeatureRanges | None,
    margin: float,
    known: tuple[Reals, Reals] | None = None,
) -> tuple[Reals, Reals]:
    """Returns [features] each: as given, else as known, else what the samples show, widened by the margin and rounded outwards to round numbers.

    Args:
        samples: [samples, features]; None: all ranges are given.
        margin: part of the half range that is kept free on either side of what samples show.
        known: [features] each: what the steps before say whatever the samples; NaN where they do not.

    Raises:
        ShapeError: samples of another number of features.
        CompileError: ranges that are none, features without one, a margin below 0.
    """
    if margin < 0:
        raise CompileError(f"margin: expected a share of the range, 0 or more, got {margin}")
    chosen = ranges_by_number(given, names)
    absent = [name for i, name in enumerate(names) if i not in chosen]
    if samples is None and absent:
        raise CompileError(f"linear model: expected samples, or {OPTION} of all features, got none of {some(absent)}")
    low, high = np.zeros(len(names)), np.zeros(len(names))
    if samples is not None:
        _check(samples, len(names))
        low, high = _of_samples(samples, margin)
    if known is not None:
        low, high = widened(low, high, known)
    for number, (lowest, highest) in chosen.items():
        low[number], high[number] = lowest, highest
    return low, high


def _check(samples: Reals, count: int) -> None:
    if samples.ndim != 2 or samples.shape[1] != count or not len(samples):
        raise ShapeError(
            f"samples: expected samples of {count} features, got an array of shape {list(samples.shape)}; pass training samples"
        )
    bad = ~np.isfinite(samples).all(axis=0)
    if bad.any():
        raise ShapeError(
            f"samples: the steps before the model give no finite numbers in their column {int(bad.argmax())} "
            "(splines of a column that is constant, a logarithm of zero); leave that column out"
        )


def _of_samples(samples: Reals, margin: float) -> tuple[Reals, Reals]:
    """Returns what is always 0 gets the median range of the others, around 0."""
    low, high = samples.min(axis=0), samples.max(axis=0)
    half = high / 2 - low / 2
    aside = half * margin
    if (half > 0).any():
        aside = np.where((half == 0) & (low == 0), np.median(half[half > 0]), aside)
    return public_ends(low - aside, high + aside)
