"""A step of a look-up: a function of one number by name, with parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.functions import FUNCTIONS


@dataclass(frozen=True, eq=False)
class Step:
    """`operator` of models/functions.py; each parameter has one entry per distinct function of the look-up."""

    operator: str
    parameters: tuple[NDArray[np.float64], ...] = ()

    def __call__(self, x: NDArray[np.float64], function: NDArray[np.int64]) -> NDArray[np.float64]:
        """x [.., E] with function numbers [E]."""
        y: NDArray[np.float64] = FUNCTIONS[self.operator](x, *(parameter[function] for parameter in self.parameters))
        return y

    def select(self, function: NDArray[np.int64]) -> Step:
        """The step whose function i is function[i] of this one."""
        return Step(self.operator, tuple(parameter[function] for parameter in self.parameters))


def apply_steps(steps: Sequence[Step], x: NDArray[np.float64], function: NDArray[np.int64]) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):  # a table is evaluated on values that the model may never see
        for step in steps:
            x = step(x, function)
    return x
