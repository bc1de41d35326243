"""What the owner of the data needs to know of a compiled model: how to encrypt an input and how to read the result."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.encoding import Encoding
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.models.client_steps import (
    InputStep,
    OutputStep,
    Stage,
    example_row,
    input_steps_from_fields,
    output_steps_from_fields,
    run_input_steps,
    run_output_steps,
    steps_to_fields,
)
from cloakwork.models.errors import ShapeError
from cloakwork.models.ir import CLIENT_STEPS, ClientStep, Reals
from cloakwork.models.program import Program

if TYPE_CHECKING:
    from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
    from cloakwork.fhe_core.client import ClientKey

_VERSION = 1


@dataclass(frozen=True, eq=False)
class ClientSpecification:
    """Phases of the input are value * input_scale; values of the output are phase / output_scale + output_offset.

    `input_steps` make the values of the input from what the user has, `output_steps` make what the user wants from those of the output.
    """

    parameters: str
    input_shape: tuple[int, ...]
    input_range: tuple[float, float]
    input_scale: float
    output_scale: Reals  # of the output's shape
    output_offset: Reals
    client_steps: tuple[ClientStep, ...]
    input_steps: tuple[InputStep, ...] = ()
    output_steps: tuple[OutputStep, ...] = ()
    output_unit: float = 0.0  # of exact models: phases of the output are multiples of it, the noise is rounded away

    @classmethod
    def of(cls, program: Program) -> ClientSpecification:
        graph = program.graph
        assert (
            graph.scale is not None and graph.offset is not None and graph.lower is not None and graph.upper is not None
        )
        first = graph.input.first_wire
        return cls(
            program.parameters.name,
            graph.input.shape,
            (float(graph.lower[first]), float(graph.upper[first])),
            float(graph.scale[first]),
            graph.scale[graph.output],
            graph.offset[graph.output],
            graph.client_steps,
            program.input_steps,
            program.output_steps,
            program.output_unit,
        )

    def to_json(self) -> str:
        """All that a client needs beside its key; holds no weights of the model."""
        fields = {
            "cloakwork_client": _VERSION,
            "parameter_set": self.parameters,
            "parameter_digest": parameter_digest(parameter_set(self.parameters)).hex(),
            "input_shape": list(self.input_shape),
            "input_range": list(self.input_range),
            "input_scale": self.input_scale,
            "output_scale": self.output_scale.tolist(),
            "output_offset": self.output_offset.tolist(),
            "client_steps": [
                [step.operator, step.axis, step.keepdims, step.count, step.largest] for step in self.client_steps
            ],
            "input_steps": steps_to_fields(self.input_steps),
            "output_steps": steps_to_fields(self.output_steps),
            "output_unit": self.output_unit,
        }
        return json.dumps(fields, indent=1)

    @classmethod
    def from_json(cls, text: str) -> ClientSpecification:
        """Raises:
        SerializationError: not such a specification, or of another version.
        KeyMismatchError: made for another version of the parameter set.
        """
        try:
            fields = json.loads(text)
            if fields["cloakwork_client"] != _VERSION:
                raise ValueError("its version is another")
            result = cls(
                str(fields["parameter_set"]),
                tuple(int(extent) for extent in fields["input_shape"]),
                (float(fields["input_range"][0]), float(fields["input_range"][1])),
                float(fields["input_scale"]),
                np.asarray(fields["output_scale"], dtype=np.float64),
                np.asarray(fields["output_offset"], dtype=np.float64),
                tuple(_client_step(*step) for step in fields["client_steps"]),
                input_steps_from_fields(fields.get("input_steps", [])),
                output_steps_from_fields(fields.get("output_steps", [])),
                float(fields.get("output_unit", 0.0)),
            )
            digest = fields["parameter_digest"]
        except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise SerializationError(
                f"client specification: expected version {_VERSION} of its JSON; get it again ({error})"
            ) from error
        result._check()
        if digest != parameter_digest(parameter_set(result.parameters)).hex():
            raise KeyMismatchError(
                f"client specification: it was made for another version of parameter set '{result.parameters}'; compile the model again"
            )
        return result

    def _check(self) -> None:
        """What `of` always gives, demanded of files."""
        numbers = [
            self.input_scale,
            self.output_unit,
            *self.input_range,
            *self.output_scale.flat,
            *self.output_offset.flat,
        ]
        sound = (
            bool(np.isfinite(numbers).all())
            and self.output_scale.shape == self.output_offset.shape
            and bool((self.output_scale > 0).all())
            and self.input_range[0] <= self.input_range[1]
            and 0 <= self.output_unit <= 1
            and min(self.input_shape, default=1) > 0
            and all(self._fits(step) for step in self.client_steps)
        )
        if not sound:
            raise SerializationError(
                "client specification: a field is out of its range; get it again from who compiled the model"
            )

        self._check_steps()

    def _check_steps(self) -> None:
        """Steps that fit each other and the shapes: tried on one sample."""
        row = example_row(self.input_steps)
        if row is None:
            return
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                fits = run_input_steps(self.input_steps, row).shape[1:] == self.input_shape
                self.finish(self.output_offset[None])
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError, FheError) as error:
            raise SerializationError(
                f"client specification: its steps do not fit each other; get it again from who compiled the model ({type(error).__name__})"
            ) from error
        if not fits:
            raise SerializationError(
                f"client specification: its steps do not give {list(self.input_shape)} numbers; get it again from who compiled the model"
            )

    def _fits(self, step: ClientStep) -> bool:
        """A step that exists, along an axis of the output that is not the batch, and takes no more than there are."""
        rank = self.output_scale.ndim + 1
        if step.operator not in CLIENT_STEPS or not -rank <= step.axis < rank or step.axis % rank == 0:
            return False
        return not step.operator.startswith("TopK") or 1 <= step.count <= self.output_scale.shape[step.axis % rank - 1]

    def inputs(self, x: Any) -> Reals:
        """Samples as the numbers [samples, *input_shape] that are encrypted: the input steps."""
        return run_input_steps(self.input_steps, x) if self.input_steps else np.asarray(x, dtype=np.float64)

    def phases(self, x: Any) -> Reals:
        """Samples [samples, ..] as fractions of the torus [samples, numbers]; values beyond the calibrated range count as its end."""
        array = self.inputs(x)
        if array.shape[1:] != self.input_shape:
            raise ShapeError(
                f"input: expected an array of shape {['samples', *self.input_shape]}, got {list(array.shape)}; samples come first"
            )
        if not np.isfinite(array).all():
            raise ShapeError("input: expected finite numbers; replace missing values first")
        return np.clip(array.reshape(len(array), -1), *self.input_range) * self.input_scale

    def encrypt(self, key: ClientKey, x: Any) -> SeededPackedCiphertexts:
        """Seeded and packed: about four bytes for a number."""
        return self.encrypt_phases(key, self.phases(x))

    def encrypt_phases(self, key: ClientKey, phases: Reals) -> SeededPackedCiphertexts:
        return key.encrypt_packed(phases, encoding=Encoding.TORUS)

    def decrypt(self, key: ClientKey, result: Ciphertexts, until: Stage = "labels") -> NDArray[Any]:
        """The model's output, the final steps (softmax, arg-max) included. Args: until: see `finish`."""
        return self.output(np.asarray(key.decrypt(result), dtype=np.float64), until)

    def output(self, phases: Reals, until: Stage = "labels") -> NDArray[Any]:
        """Phases [samples, numbers] as the model's output [samples, ..]."""
        shaped = phases.reshape(-1, *self.output_scale.shape)
        return self.finish(shaped / self.output_scale + self.output_offset, until)

    def finish(self, values: Reals, until: Stage = "labels") -> NDArray[Any]:
        """Values of the graph's output as the model's. Args: until: models of tables can stop at "scores" or "probabilities"."""
        if self.output_unit > 0:
            multiples = np.rint((values - self.output_offset) * (self.output_scale / self.output_unit))
            values = multiples * (self.output_unit / self.output_scale) + self.output_offset
        return run_output_steps(self.output_steps, apply_client_steps(self.client_steps, values), until)


def _client_step(operator: str, axis: int, keepdims: bool, count: int = 0, largest: bool = True) -> ClientStep:
    return ClientStep(str(operator), int(axis), bool(keepdims), int(count), bool(largest))


def apply_client_steps(steps: tuple[ClientStep, ...], values: Reals) -> NDArray[np.generic]:
    result: NDArray[np.generic] = values
    for step in steps:
        result = _applied(step, np.asarray(result, dtype=np.float64))
    return result


def _applied(step: ClientStep, values: Reals) -> NDArray[Any]:
    axis = step.axis
    if step.operator in ("ArgMax", "ArgMin"):
        return np.asarray(
            (np.argmax if step.operator == "ArgMax" else np.argmin)(values, axis=axis, keepdims=step.keepdims)
        )
    if step.operator == "Hardmax":
        best = np.expand_dims(np.argmax(values, axis=axis), axis)
        result = np.zeros_like(values)
        np.put_along_axis(result, best, 1.0, axis=axis)
        return result
    if step.operator in ("TopK", "TopKIndices"):
        order = np.argsort(-values if step.largest else values, axis=axis, kind="stable").take(
            range(step.count), axis=axis
        )
        return order if step.operator == "TopKIndices" else np.take_along_axis(values, order, axis=axis)
    shifted = values - values.max(axis=axis, keepdims=True)
    logarithm: Reals = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return logarithm if step.operator == "LogSoftmax" else np.exp(logarithm)
