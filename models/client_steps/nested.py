"""A step that holds steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, demand
from cloakwork.models.client_steps.columns import Compare, Quantise, Rescale, Round
from cloakwork.models.client_steps.first import Columns
from cloakwork.models.client_steps.grids import Positions, Thermometer
from cloakwork.models.client_steps.unfit import REFUSED, Refusing, Unfit

# Samples of float32: transformers of scikit-learn compute in the precision that they are given, and trees compare what comes of it.

_OF_THE_PROGRAM: Final = (Compare, Positions, Quantise, Rescale, Round, Thermometer)  # not of a pipeline


def is_single(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float32


def applied(step: Any, x: Any, unfit: Unfit = REFUSED) -> Any:
    """Applies a step to numbers, in float32 where they are and the step is one of a pipeline's; else in float64."""
    if isinstance(step, Columns):
        return step.in_precision(x, unfit)
    policy = (unfit,) if isinstance(step, Refusing) else ()
    if not is_single(x):
        return step(x, *policy)
    return step(x.astype(np.float64)) if isinstance(step, _OF_THE_PROGRAM) else step(x, *policy).astype(np.float32)


Steps: TypeAlias = tuple[Any, ...]
"""Input steps on a table; in JSON a list of them."""


@dataclass(frozen=True, eq=False)
class Append:
    """The table, and beside it what the steps make of some of its columns: how parts of a table are prepared in different ways."""

    columns: Indices
    steps: Steps

    def __post_init__(self) -> None:
        demand(self.columns.ndim == 1 and bool((self.columns >= 0).all()), "a list of columns")

    def __call__(self, x: Reals) -> Reals:
        part = self.part(x)
        for step in self.steps:
            part = applied(step, part)
        return self.joined(x, part)

    def part(self, x: Reals) -> Reals:
        """Returns the columns that the steps take."""
        return x[:, self.columns]

    def joined(self, x: Reals, part: Reals) -> Reals:
        """Joins columns to the table. Args: part: what the steps made of `part`."""
        demand(x.shape[1] + part.shape[1] <= MOST_COLUMNS, f"at most {MOST_COLUMNS} columns")
        return np.concatenate([x, part], axis=1)
