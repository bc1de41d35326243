"""The client's last steps: what it does with the decrypted numbers of an output (softmax, arg-max, functions of single numbers), and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models import fields as typed
from cloakwork.models.client_functions import (
    FUNCTION,
    apply_functions,
    functions_from_fields,
    functions_to_fields,
    too_much,
)
from cloakwork.models.ir import CLIENT_STEPS, ClientStep, Reals

MOST_STEPS: Final = 100  # of an output


def apply_client_steps(steps: Sequence[ClientStep], values: Reals) -> NDArray[np.generic]:
    """Args: values: [samples, ..]."""
    result: NDArray[np.generic] = values
    for step in steps:
        result = _applied(step, np.asarray(result, dtype=np.float64))
    return result


def _applied(step: ClientStep, values: Reals) -> NDArray[Any]:
    if step.operator == FUNCTION:
        return apply_functions(step, values)
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


def step_fits(step: ClientStep, shape: tuple[int, ...]) -> bool:
    """Whether a step exists, goes along an axis of an output [samples, *shape] that is not the batch, and takes no more than there are."""
    if step.operator == FUNCTION:
        return step.which.shape == shape and too_much(step.functions) is None
    rank = len(shape) + 1
    if step.operator not in CLIENT_STEPS or not -rank <= step.axis < rank or step.axis % rank == 0:
        return False
    return not step.operator.startswith("TopK") or 1 <= step.count <= shape[step.axis % rank - 1]


def client_step_to_fields(step: ClientStep) -> Any:
    if step.operator == FUNCTION:
        return functions_to_fields(step)
    return [step.operator, step.axis, step.keepdims, step.count, step.largest]


def client_step_from_fields(fields: Any) -> ClientStep:
    """ValueError or TypeError for anything that `client_step_to_fields` does not write."""
    return functions_from_fields(fields) if isinstance(fields, dict) else _along_axis(*typed.entries(fields))


def _along_axis(operator: Any, axis: Any, keepdims: Any, count: Any = 0, largest: Any = True) -> ClientStep:
    axis = typed.integer(axis, -typed.LARGEST_INTEGER)
    return ClientStep(typed.text(operator), axis, typed.flag(keepdims), typed.integer(count), typed.flag(largest))
