"""Linear models in a neutral form: what the importers write and the linear compiler reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import OutputStep, Standardise, widened
from cloakwork.models.client_steps.feature_tables import feature_table
from cloakwork.models.client_steps.running import ScoredModel
from cloakwork.models.client_steps.transforms import TRANSFORMS, label_array
from cloakwork.models.criteria.feature_ranges import OPTION, FeatureRanges, public_ends, ranges_by_number
from cloakwork.models.errors import CompileError, ShapeError, some


@dataclass(frozen=True, eq=False)
class LinearModel(ScoredModel):
    """score = coefficients x + intercept; then `transform`, then `labels[argmax]` for classifiers (one column: by its sign or probability).

    Where those cannot say what follows the scores, `after` does, and takes their place; labels beside it are those of the largest score, which
    an encrypted arg-max tells.
    """

    coefficients: Reals  # [outputs, features]
    intercept: Reals  # [outputs]
    transform: str = "none"  # one of transforms.TRANSFORMS
    transform_parameter: float = 1.0
    labels: NDArray[Any] | None = None  # of the classes; None for regression
    feature_names: tuple[str, ...] | None = None
    after: tuple[OutputStep, ...] | None = None

    def __post_init__(self) -> None:
        """Raises CompileError naming the first thing that is not so."""
        shape = self.coefficients.shape
        _demand(len(shape) == 2 and min(shape) > 0, "coefficients [outputs, features]")
        _demand(self.intercept.shape == shape[:1], f"an intercept [{shape[0]}]")
        _demand(bool(np.isfinite(self.coefficients).all() and np.isfinite(self.intercept).all()), "finite coefficients")
        _demand(self.transform in TRANSFORMS, f"one of the transforms {', '.join(TRANSFORMS)}")
        _demand(self.feature_names is None or len(self.feature_names) == shape[1], f"{shape[1]} feature names")
        if self.labels is not None:
            object.__setattr__(self, "labels", label_array(self.labels, shape[0]))

    @property
    def features(self) -> int:
        """Counts the numbers of a sample."""
        return int(self.coefficients.shape[1])

    @property
    def outputs(self) -> int:
        """Counts the scores."""
        return int(self.coefficients.shape[0])

    def on_unscaled(self, step: Standardise) -> LinearModel:
        """Returns the same model on what the step is made from: its offsets and scales become part of the coefficients and the intercept."""
        _demand(step.scale.shape == (self.features,), f"offsets and scales of {self.features} columns before it")
        coefficients = self.coefficients * step.scale
        return replace(self, coefficients=coefficients, intercept=self.intercept - coefficients @ step.offset)

    def scores(self, x: ArrayLike) -> Reals:
        """Returns [samples, outputs] for samples [samples, features]."""
        table = feature_table(x, self.features, self.feature_names, missing=False)
        result: Reals = table @ self.coefficients.T + self.intercept
        return result


def _demand(condition: bool, rule: str) -> None:
    if not condition:
        raise CompileError(f"linear model: expected {rule}; the model is damaged or was imported wrongly")


# The range of every feature that a client of a linear model is told.


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
