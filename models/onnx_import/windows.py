"""Windows of convolutions and pools as wire numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.ir import ZERO_WIRE
from cloakwork.models.onnx_import.context import LINEAR, Context, Encrypted, OnnxNode, bounded, operator

MOST_IMAGES: Final = 1024  # of one sample
OUTSIDE: Final = ZERO_WIRE - 1  # in windows: no number of the image, which a zero of the model (ZERO_WIRE) is


_Layer = Callable[[Context, OnnxNode], Encrypted]


def for_each_image(layer: _Layer) -> _Layer:
    """Applies a layer of one image [1, C, *S] to several, as models have them that reshape their sample into frames."""

    @wraps(layer)
    def several(context: Context, node: OnnxNode) -> Encrypted:
        x = node.encrypted(0)
        if x.ndim == 0 or x.shape[0] == 1:
            return layer(context, node)
        if x.shape[0] > MOST_IMAGES:
            raise UnsupportedNode(f"works on {x.shape[0]} images of one sample; expected at most {MOST_IMAGES}")
        images = [replace(node, inputs=(Encrypted(x[i : i + 1]), *node.inputs[1:])) for i in range(len(x))]
        return Encrypted(np.concatenate([layer(context, image).wires for image in images]))

    return several


def spatial_windows(x: Indices, kernel: Sequence[int], attributes: dict[str, Any]) -> Indices:
    """Gathers windows: wires [1, C, *S] -> [C, *O, window]; OUTSIDE beyond the image. Attributes as Conv, AveragePool and MaxPool have them."""
    spatial = x.shape[2:]
    rank = len(spatial)
    if x.ndim < 3 or len(kernel) != rank:
        raise UnsupportedNode(
            f"expected [batch, channels, ..] with {len(kernel)} spatial dimensions, got {list(x.shape)}"
        )
    strides = list(attributes.get("strides", [1] * rank))
    dilations = list(attributes.get("dilations", [1] * rank))
    if not len(strides) == len(dilations) == rank or min(*strides, *dilations, *kernel) < 1:
        raise UnsupportedNode(f"expected {rank} positive extents of kernel, strides and dilations each")
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    pads = _pads(spatial, spans, strides, attributes)
    rounding = math.ceil if attributes.get("ceil_mode", 0) else math.floor
    if any(before < 0 or after < 0 for before, after in pads):
        raise UnsupportedNode("has negative paddings; slice in a node of its own")
    counts = []
    for axis in range(rank):
        padded = spatial[axis] + pads[axis][0] + pads[axis][1]
        count = rounding((padded - spans[axis]) / strides[axis]) + 1
        if (count - 1) * strides[axis] >= spatial[axis] + pads[axis][0]:
            count -= 1  # the last window would start in the padding
        if count < 1:
            raise UnsupportedNode(f"the window of {list(kernel)} does not fit the image of {list(spatial)}")
        counts.append(count)
    ends = [(n - 1) * stride + span for n, stride, span in zip(counts, strides, spans, strict=True)]
    extents = [max(end, size + before + after) for end, size, (before, after) in zip(ends, spatial, pads, strict=True)]
    bounded(x.shape[1], *extents)
    bounded(x.shape[1], *counts, *kernel)
    canvas = np.full((x.shape[1], *extents), OUTSIDE, dtype=np.int64)
    canvas[(slice(None), *(slice(pads[a][0], pads[a][0] + spatial[a]) for a in range(rank)))] = x[0]
    parts = []
    for offset in itertools.product(*(range(size) for size in kernel)):
        starts = [o * d for o, d in zip(offset, dilations, strict=True)]
        cut = tuple(slice(s, s + (n - 1) * t + 1, t) for s, n, t in zip(starts, counts, strides, strict=True))
        parts.append(canvas[(slice(None), *cut)])
    return np.stack(parts, axis=-1)


def pooled_windows(x: Indices, kernel: Sequence[int], attributes: dict[str, Any]) -> Indices:
    """Returns the same where each window has to have a number of the image."""
    windows = spatial_windows(x, kernel, attributes)
    if bool((windows == OUTSIDE).all(axis=-1).any()):
        raise UnsupportedNode("has windows of nothing but padding; use smaller paddings or dilations")
    return windows


def zero_padded_windows(x: Indices, kernel: Sequence[int], attributes: dict[str, Any]) -> Indices:
    """Returns the same with zeros beyond the image."""
    windows = spatial_windows(x, kernel, attributes)
    return np.where(windows == OUTSIDE, ZERO_WIRE, windows)


def _pads(
    spatial: Sequence[int], spans: Sequence[int], strides: Sequence[int], attributes: dict[str, Any]
) -> list[tuple[int, int]]:
    rank = len(spatial)
    mode = attributes.get("auto_pad", b"NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if mode in ("NOTSET", ""):
        flat = list(attributes.get("pads", [0] * 2 * rank))
        if len(flat) != 2 * rank:
            raise UnsupportedNode(f"expected {2 * rank} paddings, got {len(flat)}")
        return list(zip(flat[:rank], flat[rank:], strict=True))
    if mode == "VALID":
        return [(0, 0)] * rank
    pads = []
    for size, span, stride in zip(spatial, spans, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + span - size, 0)
        small, large = total // 2, total - total // 2
        pads.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return pads


# ConvTranspose: a linear layer that reads, for each pixel of the result, the pixels of the input that reach it.


@operator(
    "ConvTranspose",
    cost=LINEAR,
    restrictions="weights and bias constant; any number of spatial dimensions, groups, strides, dilations, paddings",
)
@for_each_image
def conv_transpose(context: Context, node: OnnxNode) -> Encrypted:
    """Computes out[o] = sum of x[i] w[k] with i stride + k dilation = o + padding before."""
    x, weights = node.encrypted(0), np.asarray(node.constant(1), dtype=np.float64)  # weights [C, M / groups, *kernel]
    groups, rank, kernel = int(node.attributes.get("group", 1)), x.ndim - 2, weights.shape[2:]
    if rank < 1 or len(kernel) != rank or groups < 1 or x.shape[1] != len(weights) or len(weights) % groups:
        raise UnsupportedNode(
            f"weights of shape {list(weights.shape)} in {groups} groups do not fit an input of shape {list(x.shape)}"
        )
    tables = _tables(node, x.shape[2:], kernel)
    spatial = [len(table) for table in tables]
    channels, window = x.shape[1] // groups, math.prod(kernel)
    bounded(x.shape[1], *spatial, window)
    reached = _reached(x[0], tables, window)  # [C, positions, window]
    split = np.moveaxis(reached.reshape(groups, channels, -1, window), 1, 2)  # [groups, positions, channels, window]
    positions = split.shape[1]
    gather = split.reshape(groups * positions, channels * window)
    # rows [groups, M / groups, channels * window]
    rows = (
        weights.reshape(groups, channels, weights.shape[1], window)
        .transpose(0, 2, 1, 3)
        .reshape(groups, weights.shape[1], -1)
    )
    bias = node.optional_constant(2)
    offset = np.zeros((groups, weights.shape[1])) if bias is None else np.asarray(bias, np.float64).reshape(groups, -1)
    out = _without_empty_columns(context, gather, rows, offset, np.repeat(np.arange(groups), positions))
    maps = np.moveaxis(out.reshape(groups, positions, -1), 2, 1)
    return Encrypted(maps.reshape((1, groups * weights.shape[1], *spatial)))


def _tables(node: OnnxNode, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> list[Indices]:
    """For each axis [result, kernel]: the pixel of the input that reaches a pixel of the result through a weight, or -1."""
    rank = len(sizes)
    strides = list(node.attributes.get("strides", [1] * rank))
    dilations = list(node.attributes.get("dilations", [1] * rank))
    extra = list(node.attributes.get("output_padding", [0] * rank))
    if (
        not len(strides) == len(dilations) == len(extra) == rank
        or min(*strides, *dilations, *kernel) < 1
        or min(extra) < 0
    ):
        raise UnsupportedNode(
            f"expected {rank} positive extents of kernel, strides and dilations each, and output paddings of at least 0"
        )
    whole = [
        stride * (size - 1) + (k - 1) * dilation + 1 + more
        for size, k, stride, dilation, more in zip(sizes, kernel, strides, dilations, extra, strict=True)
    ]
    pads = _transposed_pads(node, sizes, strides, whole)
    tables = []
    for a in range(rank):
        before, after = pads[a]
        count = whole[a] - before - after
        if count < 1 or before < 0:
            raise UnsupportedNode(f"pads {pads[a]} leave nothing of {whole[a]} pixels")
        bounded(count, kernel[a])
        shift = np.arange(count)[:, None] + before - np.arange(kernel[a])[None] * dilations[a]
        pixel, rest = np.divmod(shift, strides[a])
        tables.append(np.where((rest == 0) & (pixel >= 0) & (pixel < sizes[a]), pixel, -1))
    return tables


def _transposed_pads(
    node: OnnxNode, sizes: tuple[int, ...], strides: list[int], whole: list[int]
) -> list[tuple[int, int]]:
    rank = len(sizes)
    mode = node.attributes.get("auto_pad", b"NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    output_shape = node.attributes.get("output_shape")
    if output_shape is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if output_shape is None:
        flat = list(node.attributes.get("pads", [0] * 2 * rank)) if mode in ("NOTSET", "") else [0] * 2 * rank
        if len(flat) != 2 * rank:
            raise UnsupportedNode(f"expected {2 * rank} paddings, got {len(flat)}")
        return list(zip(flat[:rank], flat[rank:], strict=True))
    pads = []
    for size, target in zip(whole, list(output_shape)[-rank:], strict=True):
        total = max(size - int(target), 0)
        half = total // 2
        pads.append(
            (half, size - int(target) - half)
            if mode == "SAME_UPPER"
            else (total - half, size - int(target) - total + half)
        )
    return pads


def _reached(x: Indices, tables: list[Indices], window: int) -> Indices:
    """Returns wires [C, positions, window] of x [C, *sizes]."""
    rank = len(tables)
    index, inside = [], np.ones([1] * 2 * rank, dtype=bool)
    for a, table in enumerate(tables):
        shape = [1] * 2 * rank
        shape[a], shape[rank + a] = table.shape
        index.append(table.reshape(shape))
        inside = inside & (table.reshape(shape) >= 0)
    picked = x.reshape(len(x), -1)[:, np.ravel_multi_index(index, x.shape[1:], mode="clip")]
    return np.where(inside[None], picked, ZERO_WIRE).reshape(len(x), -1, window)


def _without_empty_columns(
    context: Context, gather: Indices, rows: np.ndarray, offset: np.ndarray, block: Indices
) -> Indices:
    """Between the pixels that a stride leaves out there is nothing to multiply: positions alike share what is left."""
    used = gather >= 0
    patterns, first, pattern = np.unique(
        np.concatenate([block[:, None], used], axis=1), axis=0, return_index=True, return_inverse=True
    )
    width = max(1, int(used.sum(axis=1).max()))
    bounded(len(patterns), rows.shape[1], width)
    order = np.argsort(~used, axis=1, kind="stable")[:, :width]
    weights = np.stack([np.where(used[p, order[p]], rows[block[p]][:, order[p]], 0.0) for p in first.tolist()])
    return context.linear(
        np.take_along_axis(gather, order, axis=1), weights, offset[block[first]], pattern.reshape(-1).astype(np.int64)
    )
