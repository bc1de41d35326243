"""Steps of models with several inputs or outputs: named tensors to one vector of numbers and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, Stage, demand
from cloakwork.models.client_steps.columns import Quantise, Rescale
from cloakwork.models.client_steps.unfit import REFUSED, RangeReport, Refusing, Unfit, without_infinite
from cloakwork.models.errors import ShapeError, some
from cloakwork.models.fields import MOST_NUMBERS
from cloakwork.models.graph.ir import NamedTensor
from cloakwork.models.graph.last_steps import LastStep

MOST_TENSORS: Final = 1024

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
StepsOfEach: TypeAlias = tuple[tuple[Any, ...], ...]
"""Quantise and Rescale steps of each input; in JSON a list of lists of steps."""
LastStepsOfEach: TypeAlias = tuple[tuple[LastStep, ...], ...]
"""Last steps of each output; in JSON a list of lists of them."""


@dataclass(frozen=True, eq=False)
class Tensors(Refusing):
    """The first step of a model of several inputs: arrays [samples, *shape] by name, or as a tuple in order, to [samples, numbers].

    Each goes through steps of its own. A dict may also have the inputs `unused`, which no output depends on: they are not looked at.
    """

    names: tuple[str, ...]
    shapes: Shapes
    steps: StepsOfEach
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_tensors(self.names, self.shapes, self.unused)
        demand(len(self.steps) == len(self.names), "steps for each input")
        demand(
            all(isinstance(step, Quantise | Rescale) for tensor_steps in self.steps for step in tensor_steps),
            "inputs that are rounded or rescaled",
        )

    @classmethod
    def of(cls, parts: Sequence[NamedTensor], unused: tuple[str, ...], steps: StepsOfEach | None = None) -> Tensors:
        """Joins inputs into one step. Args: steps: of each input; None: none."""
        shapes = tuple(part.shape for part in parts)
        return cls(tuple(part.name for part in parts), shapes, steps or tuple(() for _ in parts), unused)

    def __call__(self, x: Any, unfit: Unfit = REFUSED, report: RangeReport | None = None) -> Reals:
        """Args: report: takes what lies beyond a calibrated range.

        Raises:
            ShapeError: no dict or tuple, names that are missing or unknown, another shape, numbers of samples that differ, numbers that are
                not finite; names the input.
        """
        rows = []
        for name, tensor_steps, array in zip(self.names, self.steps, self._arrays(x, unfit), strict=True):
            values = array
            for step in tensor_steps:
                if report is not None:
                    report.add(step.outside(values), _labels(name, values.shape[1:]))
                values = step(values)
            rows.append(values.reshape(len(array), math.prod(array.shape[1:])))
        return np.concatenate(rows, axis=1)

    def apart(self, x: Reals) -> tuple[Reals, ...]:
        """Returns the tensors of numbers [samples, numbers], before the steps."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = np.split(x, ends, axis=1)
        return tuple(part.reshape(len(x), *shape) for part, shape in zip(parts, self.shapes, strict=True))

    def no_samples(self) -> dict[str, Reals]:
        return {name: np.zeros((0, *shape)) for name, shape in zip(self.names, self.shapes, strict=True)}

    def labels(self) -> tuple[str, ...]:
        """Names each of the numbers."""
        return tuple(
            label
            for name, shape in zip(self.names, self.shapes, strict=True)
            for label in _labels(name, shape)
        )  # fmt: skip

    def _arrays(self, x: Any, unfit: Unfit) -> list[Reals]:
        arrays: list[Reals] = []
        for name, shape, given in zip(self.names, self.shapes, self._given(x), strict=True):
            unfit.at(partial(_labels_of, name))
            try:
                array = unfit.numbers(given)
            except ShapeError as error:
                raise ShapeError(f"input '{name}': expected an array of numbers") from error
            if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
                raise ShapeError(
                    f"input '{name}': expected an array of shape {['samples', *shape]}, got {list(array.shape)}; samples come first"
                )
            array = _finite(array, name, unfit)
            if arrays and len(array) != len(arrays[0]):
                raise ShapeError(
                    f"input '{name}': expected {len(arrays[0])} samples as in input '{self.names[0]}', got {len(array)}"
                )
            arrays.append(array)
        return arrays

    def _given(self, x: Any) -> list[Any]:
        if isinstance(x, tuple):
            if len(x) != len(self.names):
                raise ShapeError(
                    f"input: expected a tuple of {len(self.names)} arrays ({self._described()}), got {len(x)}"
                )
            return list(x)
        if not isinstance(x, Mapping):
            raise ShapeError(
                f"input: the model has several inputs; expected a dict of arrays by name, or a tuple of them in this order: {self._described()}; "
                f"got {type(x).__name__}"
            )
        absent = [name for name in self.names if name not in x]
        extra = [name for name in x if name not in self.names and name not in self.unused]
        if absent or extra:
            wrong = [f"missing {some(map(repr, absent))}"] * bool(absent)
            wrong += [f"unexpected {some(map(repr, extra))}"] * bool(extra)
            raise ShapeError(
                f"input: expected arrays by the names of the inputs: {self._described()}; {', '.join(wrong)}"
            )
        return [x[name] for name in self.names]

    def _described(self) -> str:
        return some(f"'{name}' {['samples', *shape]}" for name, shape in zip(self.names, self.shapes, strict=True))


@dataclass(frozen=True, eq=False)
class Named:
    """The last step of a model of several outputs: numbers [samples, numbers] to arrays by name, each after its own last steps.

    Number i of all outputs, one after the other, is number spread[i] of what was decrypted: outputs may have numbers in common.
    """

    names: tuple[str, ...]
    shapes: Shapes
    steps: LastStepsOfEach
    spread: Indices
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        _check_tensors(self.names, self.shapes)
        demand(len(self.steps) == len(self.names), "last steps for each output")
        demand(
            self.spread.shape == (sum(self._sizes()),) and int(self.spread.min()) >= 0,
            "a number for each of the outputs'",
        )
        for shape, tensor_steps in zip(self.shapes, self.steps, strict=True):
            demand(all(step.fits(shape) for step in tensor_steps), "last steps that fit their output")

    @classmethod
    def of(cls, parts: Sequence[NamedTensor]) -> Named:
        return cls(
            tuple(part.name for part in parts),
            tuple(part.shape for part in parts),
            tuple(part.client_steps for part in parts),
            np.arange(sum(part.size for part in parts), dtype=np.int64),
        )

    def _sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    def __call__(self, x: Reals) -> dict[str, NDArray[Any]]:
        demand(x.ndim == 2 and x.shape[1] == int(self.spread.max()) + 1, "as many numbers as the outputs have")
        parts = np.split(x[:, self.spread], np.cumsum(self._sizes())[:-1], axis=1)
        answers: dict[str, NDArray[Any]] = {}
        for name, shape, tensor_steps, part in zip(self.names, self.shapes, self.steps, parts, strict=True):
            answer: NDArray[Any] = part.reshape(len(x), *shape)
            for step in tensor_steps:
                answer = step(answer)
            answers[name] = answer
        return answers


def joined(answers: Sequence[Any]) -> Any:
    """Answers to batches, one after the other: arrays [samples, ..], or those of several outputs by name."""
    if isinstance(answers[0], Mapping):
        return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}
    return np.concatenate(answers)


def _finite(array: Reals, name: str, unfit: Unfit) -> Reals:
    if np.isfinite(array).all():
        return array
    reason = f"input '{name}': expected finite numbers; replace missing values first"
    return unfit.taken(without_infinite(array, reason, unfit), np.isnan(array), 0.0, reason)


def _labels_of(name: str, array: Reals) -> tuple[str, ...]:
    return _labels(name, array.shape[1:])


def _labels(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Returns the labels of the numbers of a tensor: columns of a table by number, others by the tensor's name alone."""
    if len(shape) == 1:
        return tuple(f"{name}[{column}]" for column in range(shape[0]))
    return (name,) * math.prod(shape)


def _check_tensors(names: tuple[str, ...], shapes: Shapes, unused: tuple[str, ...] = ()) -> None:
    everyone = (*names, *unused)
    demand(0 < len(names) and len(everyone) <= MOST_TENSORS, f"1 to {MOST_TENSORS} tensors")
    demand(all(type(name) is str for name in everyone) and all(everyone), "names that are texts")
    demand(len(set(everyone)) == len(everyone), "names that differ")
    demand(len(shapes) == len(names), "a shape for each tensor")
    for shape in shapes:
        demand(isinstance(shape, tuple), "shapes")
        demand(all(type(extent) is int and 0 < extent <= MOST_COLUMNS for extent in shape), "positive extents")
    demand(sum(math.prod(shape) for shape in shapes) <= MOST_NUMBERS, f"at most {MOST_NUMBERS} numbers")
