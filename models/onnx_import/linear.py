"""Gemm, MatMul, Conv, sums and means: one Linear each."""

from __future__ import annotations

import math

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.ir import ZERO_WIRE, Product
from cloakwork.models.onnx_import.context import LINEAR, Context, Encrypted, OnnxNode, bounded, operator, together
from cloakwork.models.onnx_import.windows import OUTSIDE, for_each_image, pooled_windows, zero_padded_windows

# Products of encrypted tensors and what is made of them, as nodes of the graph: passes/fuse_functions.py and passes/lower_products.py make
# look-ups of them. Matrix products are made of squares here: x y = ((x + y)^2 - (x - y)^2) / 4, two look-ups each.


def product(context: Context, a: Indices, b: Indices) -> Indices:
    """Multiplies element by element; of a tensor with itself one look-up."""
    x, y = together(a, b)
    if np.array_equal(x, y):
        return context.lookup(np.ascontiguousarray(x), "Pow", 2.0)
    return combined(context, "Mul", x, y)


def combined(context: Context, operator: str, *operands: Indices) -> Indices:
    """Returns one of ir.PRODUCTS, element by element."""
    spread = together(*operands)
    gather = np.stack([wires.reshape(-1) for wires in spread], axis=1)
    return context.add(Product(0, gather, operator, "")).reshape(spread[0].shape)


def matrix_product(context: Context, a: Indices, b: Indices) -> Indices:
    """Multiplies [.., M, K] by [.., K, N]: 2 M K N look-ups."""
    x = a[None, :] if a.ndim == 1 else a
    y = b[:, None] if b.ndim == 1 else b
    if x.shape[-1] != y.shape[-2]:
        raise UnsupportedNode(f"shapes {list(a.shape)} and {list(b.shape)} do not multiply")
    bounded(*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], x.shape[-1], y.shape[-1])
    left, right = np.broadcast_arrays(x[..., :, None, :], np.swapaxes(y, -1, -2)[..., None, :, :])  # [.., M, N, K]
    plus, minus = _squares(context, left.reshape(-1), right.reshape(-1))
    width = left.shape[-1]
    gather = np.concatenate([plus.reshape(-1, width), minus.reshape(-1, width)], axis=1)
    weights = np.repeat([0.25, -0.25], width)
    out = context.linear(gather, weights[None, None]).reshape(left.shape[:-1])
    out = out[..., 0, :] if a.ndim == 1 else out
    return out[..., 0] if b.ndim == 1 else out


def _squares(context: Context, x: Indices, y: Indices) -> tuple[Indices, Indices]:
    """Returns (x + y)^2 and (x - y)^2 of vectors; equal pairs once."""
    pairs, index = np.unique(np.stack([x, y], axis=1), axis=0, return_inverse=True)
    index = index.reshape(-1)
    plus, minus = (
        context.lookup(context.linear(pairs, [[[1.0, sign]]]).reshape(-1), "Pow", 2.0) for sign in (1.0, -1.0)
    )
    return plus[index], minus[index]


@operator("Gemm", cost=LINEAR, restrictions="A encrypted; B and C constant")
def gemm(context: Context, node: OnnxNode) -> Encrypted:
    """Computes alpha A' B' + beta C with A encrypted."""
    x = node.encrypted(0)
    weights = np.asarray(node.constant(1), dtype=np.float64)
    x = x.T if node.attributes.get("transA", 0) else x
    rows = weights if node.attributes.get("transB", 0) else weights.T  # [R, K]
    bias = node.optional_constant(2)
    offset = (
        np.zeros(1) if bias is None else np.float64(node.attributes.get("beta", 1.0)) * np.asarray(bias, np.float64)
    )
    alone = offset.ndim < 2 or offset.shape[0] == 1
    out = context.linear(x, node.attributes.get("alpha", 1.0) * rows[None], offset.reshape(1, -1) if alone else 0.0)
    return Encrypted(out if alone else context.lookup(out, "Affine", 1.0, offset))


@operator("MatMul", cost=LINEAR + "; 2 for each product of two numbers when both factors are encrypted")
def matmul(context: Context, node: OnnxNode) -> Encrypted:
    """Multiplies encrypted [.., M, K] by constant [.., K, N], the other way round, or both encrypted."""
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        return Encrypted(matrix_product(context, left.wires, right.wires))
    if isinstance(left, np.ndarray):
        x, constant = node.encrypted(1), np.asarray(left, dtype=np.float64)
        columns = x[:, None] if x.ndim == 1 else x
        rows = constant[None] if constant.ndim == 1 else constant
        out = np.swapaxes(_times(context, np.swapaxes(columns, -1, -2), np.swapaxes(rows, -1, -2)), -1, -2)
        return Encrypted(_unpadded(out, constant.ndim == 1, x.ndim == 1))
    x, constant = node.encrypted(0), np.asarray(node.constant(1), dtype=np.float64)
    out = _times(context, x[None] if x.ndim == 1 else x, constant[:, None] if constant.ndim == 1 else constant)
    return Encrypted(_unpadded(out, x.ndim == 1, constant.ndim == 1))


def _times(context: Context, x: Indices, matrices: np.ndarray) -> Indices:
    """Returns [.., M, K] with matrices [.., K, N] -> [.., M, N]: a block of weights for each matrix."""
    outer = np.broadcast_shapes(x.shape[:-2], matrices.shape[:-2])
    bounded(*outer, *x.shape[-2:])
    number = np.broadcast_to(np.arange(math.prod(matrices.shape[:-2])).reshape(matrices.shape[:-2]), outer)
    gather = np.broadcast_to(x, (*outer, *x.shape[-2:]))
    weights = np.swapaxes(matrices.reshape(-1, *matrices.shape[-2:]), 1, 2)  # [G, N, K]
    block = np.repeat(number.reshape(-1), x.shape[-2])
    out = context.linear(gather.reshape(-1, x.shape[-1]), np.ascontiguousarray(weights), block=block)
    return out.reshape((*outer, x.shape[-2], matrices.shape[-1]))


def _unpadded(out: Indices, row: bool, column: bool) -> Indices:
    """Without the dimensions that vectors were given."""
    out = out[..., 0] if column else out
    return (out[..., 0] if column else out[..., 0, :]) if row else out


@operator(
    "Conv",
    cost=LINEAR,
    restrictions="weights and bias constant; any number of spatial dimensions, groups, strides, dilations, paddings",
)
@for_each_image
def conv(context: Context, node: OnnxNode) -> Encrypted:
    """Imports Conv with any number of spatial dimensions, groups, strides, dilations and paddings."""
    x, weights = node.encrypted(0), np.asarray(node.constant(1), dtype=np.float64)
    groups = int(node.attributes.get("group", 1))
    if groups < 1 or len(weights) % groups or x.shape[1] != groups * weights.shape[1]:
        raise UnsupportedNode(
            f"weights of shape {list(weights.shape)} in {groups} groups do not fit {x.shape[1]} channels"
        )
    patches = zero_padded_windows(x, weights.shape[2:], node.attributes)  # [C, *O, window]
    channels, *spatial, window = patches.shape
    width = channels // groups
    # [groups, positions, channels of a group, window]
    split = np.moveaxis(patches.reshape(groups, width, -1, window), 1, 2)
    positions = split.shape[1]
    gather = split.reshape(groups * positions, width * window)
    rows = weights.reshape(groups, len(weights) // groups, width * window)
    bias = node.optional_constant(2)
    offset = 0.0 if bias is None else bias.reshape(groups, -1)
    out = context.linear(gather, rows, offset, np.repeat(np.arange(groups), positions))
    maps = np.moveaxis(out.reshape(groups, positions, -1), 2, 1)  # [groups, rows, positions]
    return Encrypted(maps.reshape((1, len(weights), *spatial)))


@operator("AveragePool", cost=LINEAR, restrictions="not ceil_mode together with count_include_pad")
@for_each_image
def average_pool(context: Context, node: OnnxNode) -> Encrypted:
    """Returns means of windows; padding counts only with count_include_pad."""
    x = node.encrypted(0)
    include = bool(node.attributes.get("count_include_pad", 0))
    if include and node.attributes.get("ceil_mode", 0):
        raise UnsupportedNode("ceil_mode with count_include_pad is not supported; pad in a node of its own")
    patches = pooled_windows(x, node.attributes["kernel_shape"], node.attributes)
    gather = patches.reshape(-1, patches.shape[-1])
    counted = np.ones_like(gather, dtype=bool) if include else gather != OUTSIDE
    patterns, block = np.unique(counted, axis=0, return_inverse=True)
    weights = patterns / patterns.sum(axis=1, keepdims=True)
    out = context.linear(np.where(gather == OUTSIDE, ZERO_WIRE, gather), weights[:, None], block=block.reshape(-1))
    return Encrypted(out.reshape((1, *patches.shape[:-1])))


@operator("GlobalAveragePool", cost=LINEAR)
def global_average_pool(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    return Encrypted(summed(context, x, tuple(range(2, x.ndim)), True, mean=True))


def summed(context: Context, x: Indices, axes: tuple[int, ...], keepdims: bool, mean: bool) -> Indices:
    """Returns sums or means over axes."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    gather = x.transpose(*kept, *axes).reshape(int(np.prod([x.shape[axis] for axis in kept], dtype=np.int64)), -1)
    width = gather.shape[1]
    out = context.linear(gather, np.full((1, 1, width), 1 / width if mean else 1.0))
    shape = [1 if axis in axes else x.shape[axis] for axis in range(x.ndim) if keepdims or axis not in axes]
    return out.reshape(shape)
