"""Linear models in a neutral form: what the importers write and the linear compiler reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import OutputStep, Standardise
from cloakwork.models.client_steps.feature_tables import feature_table
from cloakwork.models.client_steps.scored_model import ScoredModel
from cloakwork.models.client_steps.transforms import TRANSFORMS, label_array
from cloakwork.models.errors import CompileError


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
