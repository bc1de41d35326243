"""A step that holds steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, demand
from cloakwork.models.client_steps.single_precision import applied

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
