"""Last steps of a network, computed by the client on the decrypted output: softmax, arg-max and the like along an axis, or functions of single
numbers.

They are output steps as those of client_steps/answers.py are, which follow them, and run with them (client_steps/running.py). Here,
because a graph holds them: an imported model says what comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.graph.functions import FUNCTIONS
from cloakwork.models.graph.steps import Step, apply_steps, broken_rule, formula

# Functions of single numbers that the client applies to a decrypted output: short programs of steps, few and with few parameters.

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


def softmax(x: Reals, axis: int) -> Reals:
    """Returns exp(x) / sum exp(x), without overflow."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    result: Reals = powers / powers.sum(axis=axis, keepdims=True)
    return result


@dataclass(frozen=True, eq=False)
class _AlongAxis:
    """A function of values [samples, ..] along an axis that is not the first."""

    axis: int
    stage: ClassVar[Literal["scores"]] = "scores"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an output [samples, *shape] has that axis."""
        rank = len(shape) + 1
        return -rank <= self.axis < rank and self.axis % rank != 0

    @property
    def title(self) -> str:
        """A title for reports."""
        return type(self).__name__


class Softmax(_AlongAxis):
    def __call__(self, x: NDArray[Any]) -> Reals:
        return softmax(np.asarray(x, dtype=np.float64), self.axis)


class LogSoftmax(_AlongAxis):
    def __call__(self, x: NDArray[Any]) -> Reals:
        values = np.asarray(x, dtype=np.float64)
        shifted = values - values.max(axis=self.axis, keepdims=True)
        result: Reals = shifted - np.log(np.exp(shifted).sum(axis=self.axis, keepdims=True))
        return result


class Hardmax(_AlongAxis):
    """Hardmax: 1 for the largest, the first of equal ones, 0 for the others."""

    def __call__(self, x: NDArray[Any]) -> Reals:
        values = np.asarray(x, dtype=np.float64)
        result = np.zeros_like(values)
        np.put_along_axis(result, ArgMax(self.axis)(values), 1.0, axis=self.axis)
        return result


class L2Normalization(_AlongAxis):
    """Divided by their length; zeros stay."""

    def __call__(self, x: NDArray[Any]) -> Reals:
        values = np.asarray(x, dtype=np.float64)
        largest = np.abs(values).max(axis=self.axis, keepdims=True)
        scaled = values / np.where(largest > 0, largest, 1.0)  # no square is too large or too small
        length = np.sqrt(np.square(scaled).sum(axis=self.axis, keepdims=True))
        result: Reals = scaled / np.where(length > 0, length, 1.0)
        return result


@dataclass(frozen=True, eq=False)
class ArgMax(_AlongAxis):
    """The position of the largest, the first of equal ones; NaN counts as largest."""

    keepdims: bool = True

    def __call__(self, x: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(np.argmax(np.asarray(x, dtype=np.float64), axis=self.axis, keepdims=self.keepdims))


@dataclass(frozen=True, eq=False)
class ArgMin(_AlongAxis):
    """The position of the least, the first of equal ones; NaN counts as least."""

    keepdims: bool = True

    def __call__(self, x: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(np.argmin(np.asarray(x, dtype=np.float64), axis=self.axis, keepdims=self.keepdims))


@dataclass(frozen=True, eq=False)
class _Top(_AlongAxis):
    """The `count` largest or least in their order; the first of equal ones comes first."""

    count: int
    largest: bool = True

    def fits(self, shape: tuple[int, ...]) -> bool:
        return super().fits(shape) and 1 <= self.count <= shape[self.axis % (len(shape) + 1) - 1]

    def _order(self, values: Reals) -> NDArray[np.int64]:
        order = np.argsort(-values if self.largest else values, axis=self.axis, kind="stable")
        return order.take(range(self.count), axis=self.axis)


class TopK(_Top):
    def __call__(self, x: NDArray[Any]) -> Reals:
        values = np.asarray(x, dtype=np.float64)
        result: Reals = np.take_along_axis(values, self._order(values), axis=self.axis)
        return result


class TopKIndices(_Top):
    def __call__(self, x: NDArray[Any]) -> NDArray[np.int64]:
        return self._order(np.asarray(x, dtype=np.float64))


LastStep: TypeAlias = (
    Softmax | LogSoftmax | Hardmax | L2Normalization | ArgMax | ArgMin | TopK | TopKIndices | Functions
)
LAST_STEPS: Final = get_args(LastStep)
