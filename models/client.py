"""What the owner of the data needs to know of a compiled model: how to encrypt an input and how to read the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.models.errors import ShapeError
from cloakwork.models.ir import ClientStep, Reals
from cloakwork.models.program import Program

if TYPE_CHECKING:
    from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
    from cloakwork.fhe_core.client import ClientKey


@dataclass(frozen=True, eq=False)
class ClientSpecification:
    """Phases of the input are value * input_scale; values of the output are phase / output_scale + output_offset."""

    parameters: str
    input_shape: tuple[int, ...]
    input_range: tuple[float, float]
    input_scale: float
    output_scale: Reals  # of the output's shape
    output_offset: Reals
    client_steps: tuple[ClientStep, ...]

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
        )

    def phases(self, x: ArrayLike) -> Reals:
        """Samples [samples, ..] as fractions of the torus [samples, numbers]; values beyond the calibrated range count as its end."""
        array = np.asarray(x, dtype=np.float64)
        if array.shape[1:] != self.input_shape:
            raise ShapeError(
                f"input: expected an array of shape {['samples', *self.input_shape]}, got {list(array.shape)}; samples come first"
            )
        if not np.isfinite(array).all():
            raise ShapeError("input: expected finite numbers; replace missing values first")
        return np.clip(array.reshape(len(array), -1), *self.input_range) * self.input_scale

    def encrypt(self, key: ClientKey, x: ArrayLike) -> SeededPackedCiphertexts:
        """Seeded and packed: about four bytes for a number."""
        return key.encrypt_packed(self.phases(x))

    def decrypt(self, key: ClientKey, result: Ciphertexts) -> NDArray[np.generic]:
        """The model's output, the final steps (softmax, arg-max) included."""
        return self.output(np.asarray(key.decrypt(result), dtype=np.float64))

    def output(self, phases: Reals) -> NDArray[np.generic]:
        """Phases [samples, numbers] as the model's output [samples, ..]."""
        shaped = phases.reshape(-1, *self.output_scale.shape)
        return apply_client_steps(self.client_steps, shaped / self.output_scale + self.output_offset)


def apply_client_steps(steps: tuple[ClientStep, ...], values: Reals) -> NDArray[np.generic]:
    result: NDArray[np.generic] = values
    for step in steps:
        if step.operator == "ArgMax":
            result = np.argmax(result, axis=step.axis, keepdims=step.keepdims)
            continue
        logits = np.asarray(result, dtype=np.float64)
        shifted = logits - logits.max(axis=step.axis, keepdims=True)
        logarithm = shifted - np.log(np.exp(shifted).sum(axis=step.axis, keepdims=True))
        result = logarithm if step.operator == "LogSoftmax" else np.exp(logarithm)
    return result
