"""Reductions that need look-ups: of absolute values and squares, of exponentials, of products, and extreme values."""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.last_steps import LogSoftmax, Softmax
from cloakwork.models.onnx_import.context import LINEAR, Context, Encrypted, OnnxNode, operator
from cloakwork.models.onnx_import.linear import product, summed
from cloakwork.models.onnx_import.pooling import OF_PAIRS, maximum
from cloakwork.models.onnx_import.windows import for_each_image, zero_padded_windows

# Softmax inside of a model, where later nodes need its values; the last one is the client's.
#
# Of two values it is a Sigmoid of their difference. Of more exp(x - m - log(sum exp(x - m))) with m the largest: no products, and every look-up
# on a range of its own size.

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


_NOT_BATCH = "not over the batch"


def reduced_axes(node: OnnxNode, x: Indices) -> tuple[int, ...] | None:
    """Returns the axes of a reduction; None when it leaves x as it is."""
    axes = node.integers(1, "axes")
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        return None
    chosen = tuple(axis % x.ndim for axis in axes) if axes else tuple(range(x.ndim))
    if 0 in chosen and x.shape[0] == 1:
        raise UnsupportedNode("reduces over the batch; samples are computed one by one")
    return chosen


@operator("ReduceMax", "ReduceMin", cost=OF_PAIRS, restrictions=_NOT_BATCH)
def extreme(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    axes = reduced_axes(node, x)
    if axes is None:
        return Encrypted(x)
    best = maximum(context, _last(x, axes), smaller=node.operator == "ReduceMin")
    return Encrypted(_shaped(node, x, axes, best))


@operator(
    *("ReduceL1", "ReduceSumSquare", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"),
    cost="1 for each number that is read (not ReduceLogSum), 1 for each result (not ReduceL1, ReduceSumSquare)",
    restrictions=_NOT_BATCH,
)
def of_functions(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    axes = reduced_axes(node, x)
    if axes is None:
        axes = ()
    inner = {"ReduceL1": "Abs", "ReduceSumSquare": "Pow", "ReduceL2": "Pow", "ReduceLogSumExp": "Exp"}.get(
        node.operator
    )
    values = x if inner is None else context.lookup(x, inner, *([2.0] if inner == "Pow" else []))
    total = summed(context, values, axes, bool(node.attributes.get("keepdims", 1)), mean=False)
    outer = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log", "ReduceLogSumExp": "Log"}.get(node.operator)
    return Encrypted(total if outer is None else context.lookup(total, outer))


@operator(
    *("LpPool", "GlobalLpPool"),
    cost="1 for each number that is read, 1 for each result (none for p = 1)",
    restrictions="p a positive integer",
)
@for_each_image
def lp_pool(context: Context, node: OnnxNode) -> Encrypted:
    """(sum |x|^p)^(1/p) of windows, or of all pixels; padding counts as 0."""
    x, p = node.encrypted(), int(node.attributes.get("p", 2))
    if p < 1:
        raise UnsupportedNode(f"has p {p}; expected a positive integer")
    size = context.lookup(x, "Abs")
    powers = size if p == 1 else context.lookup(size, "Pow", float(p))
    if node.operator == "GlobalLpPool":
        total = summed(context, powers, tuple(range(2, x.ndim)), True, mean=False)
    else:
        patches = zero_padded_windows(powers, node.attributes["kernel_shape"], node.attributes)
        rows = context.linear(patches.reshape(-1, patches.shape[-1]), np.ones((1, 1, patches.shape[-1])))
        total = rows.reshape((1, *patches.shape[:-1]))
    return Encrypted(total if p == 1 else context.lookup(total, "Pow", 1.0 / p))


@operator("ReduceSum", "ReduceMean", cost=LINEAR, restrictions=_NOT_BATCH)
def reduce_sum(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    axes = reduced_axes(node, x)
    if axes is None:
        return Encrypted(x)
    keep = bool(node.attributes.get("keepdims", 1))
    return Encrypted(summed(context, x, axes, keep, mean=node.operator == "ReduceMean"))


@operator("ReduceProd", cost="2 (n - 1) for n numbers", restrictions=_NOT_BATCH)
def reduce_prod(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    axes = reduced_axes(node, x)
    if axes is None:
        return Encrypted(x)
    rest = _last(x, axes)
    while rest.shape[-1] > 1:
        half = rest.shape[-1] // 2
        pairs = product(context, rest[..., :half], rest[..., half : 2 * half])
        rest = np.concatenate([pairs, rest[..., 2 * half :]], axis=-1)
    return Encrypted(_shaped(node, x, axes, rest[..., 0]))


def _last(x: Indices, axes: tuple[int, ...]) -> Indices:
    """Returns the reduced axes as one, at the end."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return x.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)


def _shaped(node: OnnxNode, x: Indices, axes: tuple[int, ...], result: Indices) -> Indices:
    if not node.attributes.get("keepdims", 1):
        return result
    return result.reshape([1 if axis in axes else x.shape[axis] for axis in range(x.ndim)])
