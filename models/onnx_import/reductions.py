"""Reductions that need look-ups: of absolute values and squares, of exponentials, of products, and extreme values."""

from __future__ import annotations

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode
from cloakwork.models.onnx_import.linear import summed
from cloakwork.models.onnx_import.pooling import OF_PAIRS, maximum
from cloakwork.models.onnx_import.products import product
from cloakwork.models.onnx_import.registry import LINEAR, operator
from cloakwork.models.onnx_import.windows import for_each_image, zero_padded_windows

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
