"""The base of models of tables, trees and linear models alike: scores, and the client's steps after them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps.kinds import OutputStep
from cloakwork.models.client_steps.running import final_steps, run_output_steps


class ScoredModel(ABC):
    """`transform`, then `labels[argmax]` for classifiers; where those cannot say what follows the scores, `after` does, and takes their place."""

    transform: str
    transform_parameter: float
    labels: NDArray[Any] | None
    after: tuple[OutputStep, ...] | None

    @abstractmethod
    def scores(self, x: ArrayLike) -> Reals:
        """Returns [samples, outputs] for samples [samples, features]."""

    def evaluate(self, x: ArrayLike) -> NDArray[Any]:
        """Returns the prediction in clear: labels of classifiers, transformed values of others, [samples] where there is one output."""
        return np.asarray(run_output_steps(self.output_steps, self.scores(x)))

    def probabilities(self, x: ArrayLike) -> Reals:
        """Transforms the scores: [samples, classes], or [samples, outputs] without labels."""
        return np.asarray(run_output_steps(self.output_steps, self.scores(x), "probabilities"))

    @property
    def output_steps(self) -> tuple[OutputStep, ...]:
        """Returns what the client does with the scores."""
        return final_steps(self.transform, self.transform_parameter, self.labels) if self.after is None else self.after
