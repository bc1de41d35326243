"""Functions of single numbers that the client applies to a decrypted output: short programs of steps, few and with few parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.graph.functions import FUNCTIONS
from cloakwork.models.graph.steps import Step, apply_steps, broken_rule, formula

# Those whose parameters may say much of a model, or that belong to values that are integers.
_NEVER: Final = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "Search", "Snap", "Staircase", "Table"})
MOST_FUNCTIONS: Final = 8
MOST_STEPS: Final = 24  # of a function
MOST_NUMBERS: Final = 24  # parameters of all of them: the client gets no weights of a model


@dataclass(frozen=True, eq=False)
class Functions:
    """Number i of a sample goes through functions[which[i]]; each parameter of their steps has one entry."""

    functions: tuple[tuple[Step, ...], ...]
    which: NDArray[np.int64]  # [*shape of the output]
    stage: ClassVar[Literal["scores"]] = "scores"

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns x [samples, *shape]."""
        flat = np.array(x, dtype=np.float64).reshape(len(x), -1)  # a copy
        for number, steps in enumerate(self.functions):
            chosen = np.flatnonzero(self.which.reshape(-1) == number)
            flat[:, chosen] = apply_steps(steps, flat[:, chosen], np.zeros(len(chosen), dtype=np.int64))
        return flat.reshape(x.shape)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an output [samples, *shape] has a function for each of its numbers."""
        return self.which.shape == shape and too_much(self.functions) is None

    @property
    def title(self) -> str:
        """A title for reports."""
        return " or ".join(map(formula, self.functions))


def too_much(functions: Sequence[Sequence[Step]]) -> str | None:
    """Says why functions [steps] with one entry in each parameter are not the client's; None when they are."""
    numbers = [parameter for steps in functions for step in steps for parameter in step.parameters]
    if not 1 <= len(functions) <= MOST_FUNCTIONS or len(numbers) > MOST_NUMBERS:
        return f"at most {MOST_FUNCTIONS} functions with {MOST_NUMBERS} parameters"
    for steps in functions:
        if len(steps) > MOST_STEPS:
            return f"functions of at most {MOST_STEPS} steps"
        if any(step.operator in _NEVER or step.operator not in FUNCTIONS for step in steps):
            return "functions that a client computes"
        if broken_rule(steps) is not None:
            return "steps that read steps before"
    return None
