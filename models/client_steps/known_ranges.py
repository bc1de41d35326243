"""Ranges that a client's steps allow for their columns, whatever the samples: a category or a word that no sample shows may come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps.columns import (
    Bins,
    Compare,
    Complete,
    Divide,
    Equal,
    Impute,
    Normalise,
    OneHot,
    Saturate,
    Select,
    Standardise,
)
from cloakwork.models.client_steps.features import Binarise, Function, Present, Quantiles, Splines
from cloakwork.models.client_steps.first import REFUSE, Categories, Columns
from cloakwork.models.client_steps.kinds import InputStep
from cloakwork.models.client_steps.nested import Append
from cloakwork.models.client_steps.running import run_input_steps
from cloakwork.models.client_steps.texts import Texts

_COUNTED: Final = 2000  # texts
_Ends: TypeAlias = tuple[Reals, Reals]
_OFTEN: Final = 0.99  # of the words that samples have: as often as these any other may come


def known_ranges(steps: Sequence[InputStep], samples: Any, width: int) -> tuple[Reals, Reals]:
    """Returns [width] each: the lowest and the highest number of a column after the steps; NaN where only samples can say them.

    Args:
        samples: for the first step. Of texts without a bound (counts) they say how often a word comes, of any word alike.
    """
    first, *others = steps if steps else (None,)
    ends = _unknown(width)
    if isinstance(first, Texts):
        ends = _of_counts(first, run_input_steps((first,), samples[:_COUNTED]))
    elif isinstance(first, Categories):
        ends = _of_categories(first)
    elif others and isinstance(first, Columns):
        ends = _unknown(first.count)
    for step in others:
        ends = _after(step, ends)
    low, high = ends
    if len(low) != width:
        return _unknown(width)
    sure = low < high
    return np.where(sure, low, np.nan), np.where(sure, high, np.nan)


def widened(low: Reals, high: Reals, known: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
    """Returns ranges that samples show, those that are known in their place."""
    sure = ~np.isnan(known[0])
    return np.where(sure, known[0], low), np.where(sure, known[1], high)


def _unknown(width: int) -> _Ends:
    return np.full(width, np.nan), np.full(width, np.nan)


def _bits(width: int) -> _Ends:
    return np.zeros(width), np.ones(width)


def _of_counts(step: Texts, counts: Reals) -> _Ends:
    most = np.abs(counts).max(axis=0, initial=0.0)
    seen = most[most > 0]
    usual = float(np.ceil(np.quantile(seen, _OFTEN))) if len(seen) else 1.0
    high = np.ones(step.count) if step.binary else np.maximum(most, usual)
    return -high if step.signed else np.zeros(step.count), high


def _of_categories(step: Categories) -> _Ends:
    low, high = _unknown(step.count)
    for i, (column, known) in enumerate(zip(step.columns, step.known, strict=True)):
        other = step.others[i] if step.others else REFUSE if step.unseen == REFUSE else -1.0
        numbers = step.numbers[i] if step.numbers else range(len(known))
        possible = [float(n) for n in (*numbers, other) if n is not None and not isinstance(n, str)]
        if known and possible:
            low[column], high[column] = min(possible), max(possible)
    return low, high


def _after(step: InputStep, ends: _Ends) -> _Ends:
    """Returns the ends after a step; unknown after one that says nothing of them."""
    low, high = ends
    match step:
        case Complete() | Present():
            return ends
        case Impute():
            return np.minimum(low, step.fill), np.maximum(high, step.fill)
        case Standardise():
            return _sorted((low - step.offset) * step.scale, (high - step.offset) * step.scale)
        case Divide():
            return _sorted((low - step.offset) / step.divisor, (high - step.offset) / step.divisor)
        case Select():
            return low[step.columns], high[step.columns]
        case Append():
            return _appended(step, ends)
        case OneHot():
            return _one_hot(step, ends)
        case Saturate():
            return step.lower, step.upper
        case Equal() | Compare():
            return _bits(len(step.feature))
        case Binarise():
            return _bits(len(step.threshold))
        case Bins() if not step.digit.any():
            return np.zeros(len(step.feature)), np.minimum(np.diff(step.start), step.radix - 1).astype(np.float64)
        case Quantiles() if step.output == "uniform":
            return _bits(step.quantiles.shape[1])
        case Normalise():  # of numbers that nothing bounds, samples say more
            sure = ~np.isnan(low)
            return np.where(sure, np.where(low < 0, -1.0, 0.0), np.nan), np.where(sure, 1.0, np.nan)
        case Function(name="logarithm of counts"):
            return np.where(low >= 0, 0.0, np.nan), np.where(low >= 0, np.log(np.maximum(high, 1.0)) + 1, np.nan)
        case Splines() if step.outside != "continue":
            basis = step(np.zeros((0, step.knots.shape[1])))
            return _bits(basis.shape[1])
        case _:
            return _unknown(_width_after(step, len(low)))


def _sorted(one: Reals, other: Reals) -> _Ends:
    return np.minimum(one, other), np.maximum(one, other)


def _appended(step: Append, ends: _Ends) -> _Ends:
    low, high = ends
    appended = low[step.columns], high[step.columns]
    for inner in step.steps:
        appended = _after(inner, appended)
    return np.concatenate([low, appended[0]]), np.concatenate([high, appended[1]])


def _one_hot(step: OneHot, ends: _Ends) -> _Ends:
    spread = np.maximum(step.sizes, 1)
    hot = np.repeat(step.sizes > 0, spread)
    low, high = (np.repeat(each, spread) for each in ends)
    return np.where(hot, 0.0, low), np.where(hot, 1.0, high)


def _width_after(step: InputStep, width: int) -> int:
    """Returns how many columns a step makes of `width`."""
    return int(step(np.zeros((0, width))).shape[1])
