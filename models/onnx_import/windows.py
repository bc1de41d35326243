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
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode, bounded

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
