"""The grid that a client knows of every feature: chosen from the range and the resolution of data, never from the trees.

A feature whose values are whole numbers, decimals or other multiples of a step, in so few steps that the grid has room, gets a point between any
two of them: then nothing is lost. Else the grid is uniform over the range, rounded outwards to round numbers, so that its ends are no sample's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps.grids import MOST_GRID_POINTS
from cloakwork.models.criteria.feature_ranges import LEAST_RANGE, FeatureRanges, by_number, outwards, ranges_by_number
from cloakwork.models.criteria.verdicts import GridKind, Grids
from cloakwork.models.errors import CompileError, some

MOST_GRID_BITS: Final = 16
_MOST_CATEGORIES: Final = 16
_TIMES_SEEN: Final = 8  # that a category, on average
_TIMES_SEEN_OF_STEPS: Final = 2  # that values have on average whose step is no round number
_DECIMALS: Final = 6
_NEAR: Final = 1e-6  # of a value: float32 has 6e-8
_NEAREST: Final = 0.01  # of a step
_LARGEST_RANGE: Final = 1e290  # of steps, some of which lie beyond it


@dataclass(frozen=True, eq=False)
class FeatureGrid:
    """Points low + step * i, or explicit ones where step is 0."""

    kind: str
    low: float
    step: float
    count: int
    explicit: Reals = field(default_factory=lambda: np.zeros(0))
    values: Reals = field(default_factory=lambda: np.zeros(0))  # that lie between the points, where all are known

    @property
    def points(self) -> Reals:
        return np.asarray(self.low + self.step * np.arange(self.count)) if self.step > 0 else self.explicit


@dataclass(frozen=True)
class Steps:
    """Values are first + size * i."""

    first: float
    size: float
    round_numbers: bool

    def number(self, value: float) -> float:
        return (value - self.first) / self.size


def public_grid(
    samples: Reals | None, names: Sequence[str], kinds: Grids, ranges: FeatureRanges | None, bits: int
) -> tuple[FeatureGrid, ...]:
    """Makes the grid of every feature.

    Args:
        samples: [samples, features], NaN where values are missing; None: only ranges are known.
        names: of the features.

    Raises:
        CompileError: a feature without range, a wish that cannot be fulfilled.
    """
    if not 1 <= bits <= MOST_GRID_BITS:
        raise CompileError(f"grid_bits: expected 1 to {MOST_GRID_BITS}, got {bits}")
    by_feature = {} if isinstance(kinds, str) else by_number(kinds, names, "grid")
    spans = ranges_by_number(ranges, names)
    unknown = [name for i, name in enumerate(names) if i not in spans and not _is_points(by_feature.get(i))]
    if samples is None and unknown:
        raise CompileError(
            f"samples: expected samples, or ranges, for the public grid of {some(unknown)}; thresholds then stay "
            "on the server. thresholds='client' needs neither and tells every client all thresholds"
        )
    grids = []
    for i, name in enumerate(names):
        wish = kinds if isinstance(kinds, str) else by_feature.get(i, "auto")
        column = np.zeros(0) if samples is None else samples[:, i]
        grids.append(_feature_grid(column[~np.isnan(column)], wish, spans.get(i), bits, name))
    return tuple(grids)


def _is_points(wish: Any) -> bool:
    return wish is not None and not isinstance(wish, str)


def _feature_grid(values: Reals, wish: Any, ends: tuple[float, float] | None, bits: int, name: str) -> FeatureGrid:
    most = (1 << bits) - 1
    if _is_points(wish):
        return _explicit("points", _checked_points(wish, name))
    if wish not in get_args(GridKind):
        raise CompileError(f"grid: expected {some(get_args(GridKind))} or points for '{name}', got '{wish}'")
    distinct = np.unique(values)
    if wish == "quantiles":
        return _explicit("quantiles", _quantiles(values, distinct, most, name))
    if wish in ("auto", "integers"):
        grid = _integers(values, distinct, ends, most)
        if grid is not None:
            return grid
        if wish == "integers":
            raise CompileError(
                f"grid='integers': the values of '{name}' have no common step of which {most} points, or fewer, cover the range; use more "
                "grid_bits or another grid"
            )
    if wish == "categories" or (wish == "auto" and ends is None and _are_categories(values, distinct)):
        if len(distinct) > most:
            raise CompileError(f"grid='categories': '{name}' has {len(distinct)} values, the grid {most} points")
        if len(distinct) > 1:
            return _explicit("categories", _between(distinct))
    low, high = ends or _round_range(distinct)
    if not math.isfinite(high - low):
        raise CompileError(
            f"grid: the values of '{name}' span more than a uniform grid can; expected a range in ranges="
        )
    if most == 1:
        return FeatureGrid("uniform", (low + high) / 2, high - low, 1)
    return FeatureGrid("uniform", low, (high - low) / (most - 1), most)


def _checked_points(wish: ArrayLike, name: str) -> Reals:
    points = np.unique(np.asarray(wish, dtype=np.float64).reshape(-1))
    if not 0 < len(points) <= MOST_GRID_POINTS or not np.isfinite(points).all():
        raise CompileError(f"grid: expected 1 to {MOST_GRID_POINTS} finite points for '{name}'")
    return points


def _explicit(kind: str, points: Reals) -> FeatureGrid:
    return FeatureGrid(kind, 0.0, 0.0, len(points), points)


def _quantiles(values: Reals, distinct: Reals, most: int, name: str) -> Reals:
    if len(distinct) < 2:
        raise CompileError(f"grid='quantiles': expected samples with at least two values of '{name}'")
    if len(distinct) - 1 <= most:
        return _between(distinct)
    chosen = np.quantile(values, (np.arange(most) + 0.5) / most, method="inverted_cdf")
    after = np.unique(np.minimum(np.searchsorted(distinct, chosen), len(distinct) - 2))
    return np.asarray(_between(distinct)[after], dtype=np.float64)


def _are_categories(values: Reals, distinct: Reals) -> bool:
    return 1 < len(distinct) <= _MOST_CATEGORIES and len(values) >= _TIMES_SEEN * len(distinct)


def _between(distinct: Reals) -> Reals:
    return np.asarray(distinct[:-1] / 2 + distinct[1:] / 2)


# --- steps -----------------------------------------------------------------------------------------------------------------------


def _integers(values: Reals, distinct: Reals, ends: tuple[float, float] | None, most: int) -> FeatureGrid | None:
    """A point between any two values of the feature, beyond the outermost too where there is room; None where there are too many."""
    for steps in _steps(values, distinct):
        exact = ends or (float(distinct[0]), float(distinct[-1]))
        rounded = outwards(*exact) if ends is None and steps.round_numbers else exact
        for low, high in (rounded, exact):
            first, last = math.ceil(steps.number(low) - _NEAREST), math.floor(steps.number(high) + _NEAREST)
            for outer in (1, 0):
                count = last - first + 2 * outer
                if 0 < count <= most:
                    known: Reals = np.asarray(steps.first + steps.size * np.arange(first, last + 1), dtype=np.float64)
                    place = np.rint((distinct - steps.first) / steps.size).astype(np.int64) - first
                    inside = (place >= 0) & (place < len(known))
                    known[place[inside]] = distinct[inside]  # as the data has them, to the last bit
                    start = steps.first + steps.size * (first + 0.5 - outer)
                    return FeatureGrid("integers", start, steps.size, count, values=known)
    return None


def _steps(values: Reals, distinct: Reals) -> list[Steps]:
    """Returns what the values may be multiples of, the finest first."""
    if not len(distinct):
        return []
    candidates = []
    for decimals in range(_DECIMALS + 1):
        scaled = distinct * 10.0**decimals
        whole = np.rint(scaled)
        if np.abs(whole).max() >= 2.0**52:
            break
        if (np.abs(scaled - whole) <= np.minimum(_NEAR * np.abs(scaled) + 1e-9, _NEAREST)).all():
            size = 10.0**-decimals
            candidates.append(Steps(0.0, size, True))
            common = int(np.gcd.reduce(np.diff(whole).astype(np.int64))) if len(whole) > 1 else 1
            if common > 1:  # where ones are too fine
                candidates.append(Steps(float(distinct[0]), size * common, False))
            return candidates
    if (
        len(distinct) < 2
        or not LEAST_RANGE <= float(distinct[-1]) - float(distinct[0]) < _LARGEST_RANGE
        or len(values) < _TIMES_SEEN_OF_STEPS * len(distinct)
    ):
        return candidates
    span, least = float(distinct[-1] - distinct[0]), float(np.diff(distinct).min())
    if span / least <= MOST_GRID_POINTS:
        steps = Steps(float(distinct[0]), span / round(span / least), False)
        places = (distinct - steps.first) / steps.size
        if (np.abs(places - np.rint(places)) <= _NEAREST).all():
            candidates.append(steps)
    return candidates


def _round_range(distinct: Reals) -> tuple[float, float]:
    """Around the values; a constant has room on either side."""
    low, high = (float(distinct[0]), float(distinct[-1])) if len(distinct) else (0.0, 0.0)
    if high - low >= LEAST_RANGE:
        return outwards(low, high)
    aside = max(1.0, abs(low))
    return low - aside, high + aside
