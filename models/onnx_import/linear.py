"""Gemm, MatMul, Conv, sums and means: one Linear each."""

from __future__ import annotations

import numpy as np

from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.ir import Indices
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode
from cloakwork.models.onnx_import.registry import LINEAR, operator
from cloakwork.models.onnx_import.windows import spatial_windows


@operator("Gemm", cost=LINEAR, restrictions="A encrypted; B and C constant")
def gemm(context: Context, node: OnnxNode) -> Encrypted:
    """alpha A' B' + beta C with A encrypted."""
    x = node.encrypted(0)
    weights = np.asarray(node.constant(1), dtype=np.float64)
    x = x.T if node.attributes.get("transA", 0) else x
    rows = weights if node.attributes.get("transB", 0) else weights.T  # [R, K]
    bias = node.optional_constant(2)
    if bias is not None and bias.ndim == 2 and bias.shape[0] != 1:
        raise UnsupportedNode("expected a bias of one row; add it in a node of its own")
    offset = 0.0 if bias is None else np.float64(node.attributes.get("beta", 1.0)) * bias.reshape(1, -1)
    return Encrypted(context.linear(x, node.attributes.get("alpha", 1.0) * rows[None], offset))


@operator("MatMul", cost=LINEAR, restrictions="one factor constant")
def matmul(context: Context, node: OnnxNode) -> Encrypted:
    """Encrypted [.., K] times constant [K, N], or constant [M, K] times encrypted [.., K, N]."""
    if isinstance(node.inputs[0], np.ndarray):
        x, left = np.swapaxes(node.encrypted(1), -1, -2), node.constant(0)
        if left.ndim != 2:
            raise UnsupportedNode("expected a constant matrix of two dimensions; split batched products")
        return Encrypted(np.swapaxes(_rows_times(context, x, left), -1, -2))
    x, right = node.encrypted(0), node.constant(1)
    if right.ndim == 1:
        return Encrypted(_rows_times(context, x, right[None])[..., 0])
    if right.ndim != 2:
        raise UnsupportedNode("expected a constant matrix of two dimensions; split batched products")
    return Encrypted(_rows_times(context, x, right.T))


def _rows_times(context: Context, x: Indices, rows: np.ndarray) -> Indices:
    """[.., K] with rows [R, K] -> [.., R]."""
    out = context.linear(x.reshape(-1, x.shape[-1]), np.asarray(rows, dtype=np.float64)[None])
    return out.reshape((*x.shape[:-1], len(rows)))


@operator(
    "Conv",
    cost=LINEAR,
    restrictions="weights and bias constant; any number of spatial dimensions, groups, strides, dilations, paddings",
)
def conv(context: Context, node: OnnxNode) -> Encrypted:
    """Any number of spatial dimensions, groups, strides, dilations and paddings."""
    x, weights = node.encrypted(0), np.asarray(node.constant(1), dtype=np.float64)
    groups = int(node.attributes.get("group", 1))
    patches = spatial_windows(x, weights.shape[2:], node.attributes)  # [C, *O, window]
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
def average_pool(context: Context, node: OnnxNode) -> Encrypted:
    """Means of windows; padding counts only with count_include_pad."""
    x = node.encrypted(0)
    include = bool(node.attributes.get("count_include_pad", 0))
    if include and node.attributes.get("ceil_mode", 0):
        raise UnsupportedNode("ceil_mode with count_include_pad is not supported; pad in a node of its own")
    patches = spatial_windows(x, node.attributes["kernel_shape"], node.attributes)
    gather = patches.reshape(-1, patches.shape[-1])
    counted = np.ones_like(gather, dtype=bool) if include else gather >= 0
    patterns, block = np.unique(counted, axis=0, return_inverse=True)
    weights = patterns / patterns.sum(axis=1, keepdims=True)
    out = context.linear(gather, weights[:, None], block=block.reshape(-1))
    return Encrypted(out.reshape((1, *patches.shape[:-1])))


@operator("GlobalAveragePool", cost=LINEAR)
def global_average_pool(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    return Encrypted(_reduce(context, x, tuple(range(2, x.ndim)), True, mean=True))


@operator("ReduceSum", "ReduceMean", cost=LINEAR, restrictions="not over the batch")
def reduce(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    axes = node.integers(1, "axes")
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        return Encrypted(x)
    chosen = tuple(axis % x.ndim for axis in axes) if axes else tuple(range(x.ndim))
    if 0 in chosen and x.shape[0] == 1:
        raise UnsupportedNode("reduces over the batch; samples are computed one by one")
    keep = bool(node.attributes.get("keepdims", 1))
    return Encrypted(_reduce(context, x, chosen, keep, mean=node.operator == "ReduceMean"))


def _reduce(context: Context, x: Indices, axes: tuple[int, ...], keepdims: bool, mean: bool) -> Indices:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    gather = x.transpose(*kept, *axes).reshape(int(np.prod([x.shape[axis] for axis in kept], dtype=np.int64)), -1)
    width = gather.shape[1]
    out = context.linear(gather, np.full((1, 1, width), 1 / width if mean else 1.0))
    shape = [1 if axis in axes else x.shape[axis] for axis in range(x.ndim) if keepdims or axis not in axes]
    return out.reshape(shape)
