"""Softmax inside of a model, where later nodes need its values; the last one is the client's.

Of two values it is a Sigmoid of their difference. Of more exp(x - m - log(sum exp(x - m))) with m the largest: no products, and every look-up
on a range of its own size.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.last_steps import LogSoftmax, Softmax
from cloakwork.models.onnx_import.context import Context, Encrypted
from cloakwork.models.onnx_import.linear import summed
from cloakwork.models.onnx_import.pooling import maximum

MOST_VALUES: Final = 64
COST: Final = "1 of 2 values, 3 n of n"
LOG_COST: Final = "2 of 2 values, 2 n of n"


def evaluated(context: Context, value: Encrypted) -> Encrypted:
    """Returns a tensor with the client's steps, which later nodes read, computed encrypted.

    Raises:
        UnsupportedNode: a step that gives no values, or a Softmax over too many.
    """
    if id(value) in context.evaluated:
        return context.evaluated[id(value)][1]
    wires = value.wires
    for step in value.client_steps:
        if not isinstance(step, LogSoftmax | Softmax):
            raise UnsupportedNode(
                f"comes after {step.title}, which the client evaluates; only final ones are supported, remove it"
            )
        wires = _softmax(context, wires, step)
    result = Encrypted(wires)
    context.evaluated[id(value)] = (value, result)
    return result


def _softmax(context: Context, x: Indices, step: LogSoftmax | Softmax) -> Indices:
    values = np.moveaxis(x, step.axis, -1)
    count = values.shape[-1]
    if count > MOST_VALUES:
        raise UnsupportedNode(
            f"comes after {step.title} over {count} values, which takes {3 * count} look-ups each time; expected at most {MOST_VALUES}: "
            "make it the last node, or use a ReLU with a constant divisor instead"
        )
    is_log = isinstance(step, LogSoftmax)
    result = _of_two(context, values, is_log) if count == 2 else _of_several(context, values, is_log)
    return np.moveaxis(result, -1, step.axis)


def _of_two(context: Context, x: Indices, is_log: bool) -> Indices:
    difference = _minus(context, x[..., 0], x[..., 1])
    if is_log:
        parts = [context.lookup(context.lookup(difference, "Affine", sign, 0.0), "Softplus") for sign in (-1.0, 1.0)]
        return context.lookup(np.stack(parts, axis=-1), "Affine", -1.0, 0.0)
    first = context.lookup(difference, "Sigmoid")
    return np.stack([first, context.lookup(first, "Affine", -1.0, 1.0)], axis=-1)


def _of_several(context: Context, x: Indices, is_log: bool) -> Indices:
    below = _minus(context, x, maximum(context, x)[..., None])
    total = summed(context, context.lookup(below, "Exp"), (x.ndim - 1,), True, mean=False)
    logarithm = _minus(context, below, context.lookup(total, "Log"))
    return logarithm if is_log else context.lookup(logarithm, "Exp")


def _minus(context: Context, a: Indices, b: Indices) -> Indices:
    first, second = np.broadcast_arrays(a, b)
    gather = np.stack([first.reshape(-1), second.reshape(-1)], axis=1)
    return context.linear(gather, [[[1.0, -1.0]]]).reshape(first.shape)
