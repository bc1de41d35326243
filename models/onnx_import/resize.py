"""Resize: nearest pixels are index arithmetic, linear interpolation is a linear layer of two pixels along each axis that changes."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import FREE, OPERATORS, Context, Encrypted, OnnxNode, bounded, operator

# Advice for operators that do not run on encrypted data.

_INSTEAD: Final = {
    "Attention": "write the scores with MatMul and leave the softmax out",
    "DynamicQuantizeLinear": "quantise statically: the range of encrypted data is not known",
    "Einsum": "write it with MatMul, Transpose and ReduceSum",
    "If": "export without control flow; choose with Where",
    "Loop": "export with the loop unrolled",
    "NonMaxSuppression": "decrypt the boxes and scores first",
    "NonZero": "decrypt first: the number of results depends on the data",
    "Scan": "export with the loop unrolled",
    "Upsample": "use Resize, which has replaced it",
}


def nearest(name: str) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    alike = difflib.get_close_matches(name, OPERATORS, n=3, cutoff=0.6)
    return (f"nearest: {', '.join(alike)}; " if alike else "") + "docs/reference/operators.md lists what is"


# Place in the input of output pixels i, by coordinate_transformation_mode; sizes before and after, and their scale.
_PLACES: Final[dict[str, Callable[[Reals, int, int, float], Reals]]] = {
    "half_pixel": lambda i, before, after, scale: (i + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda i, before, after, scale: (
        before / 2 * (1 - after / (scale * before)) + (i + 0.5) / scale - 0.5
    ),
    "pytorch_half_pixel": lambda i, before, after, scale: (i + 0.5) / scale - 0.5 if after > 1 else 0 * i,
    "asymmetric": lambda i, before, after, scale: i / scale,
    "align_corners": lambda i, before, after, scale: i * (before - 1) / (after - 1) if after > 1 else 0 * i,
}
_NEAREST: Final[dict[str, Callable[[Reals], Reals]]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@operator(
    "Resize",
    cost=FREE + " for nearest; a linear layer for linear",
    restrictions="modes nearest and linear; sizes or scales constant; not antialias, not tf_crop_and_resize",
)
def resize(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    mode = _text(node, "mode", "nearest")
    if mode not in ("nearest", "linear") or node.attributes.get("antialias", 0):
        raise UnsupportedNode(
            f"mode '{mode}' with antialias {node.attributes.get('antialias', 0)}; use nearest or linear without"
        )
    if _text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedNode("keeps the aspect ratio by a policy; export with the sizes that are wanted")
    axes, sizes, scales = _target(node, x)
    for axis, size in zip(axes, sizes, strict=True):
        if axis == 0 and size != x.shape[0]:
            raise UnsupportedNode("resizes the batch; samples are computed one by one")
        bounded(x.size // x.shape[axis], size)
    maps = [
        (axis, *_pixels(node, mode, x.shape[axis], size, scale))
        for axis, size, scale in zip(axes, sizes, scales, strict=True)
        if size != x.shape[axis] or scale != 1.0
    ]
    return Encrypted(_interpolated(context, x, maps))


def _target(node: OnnxNode, x: Indices) -> tuple[list[int], list[int], list[float]]:
    """Returns axes, their sizes and their scales."""
    given = node.attributes.get("axes")
    axes = [int(axis) % x.ndim for axis in given] if given is not None else list(range(x.ndim))
    sizes, scales = node.optional_constant(3), node.optional_constant(2)
    if sizes is not None and sizes.size:
        targets = [int(size) for size in sizes.reshape(-1)]
        factors = [size / x.shape[axis] for axis, size in zip(axes, targets, strict=True)]
    elif scales is not None and scales.size:
        factors = [float(scale) for scale in scales.reshape(-1)]
        targets = [int(np.floor(x.shape[axis] * scale)) for axis, scale in zip(axes, factors, strict=True)]
    else:
        raise UnsupportedNode("names neither scales nor sizes; make one of them a constant")
    if min(targets, default=1) < 1 or min(factors, default=1.0) <= 0:
        raise UnsupportedNode(f"to sizes {targets}; expected positive ones")
    return axes, targets, factors


def _pixels(node: OnnxNode, mode: str, before: int, after: int, scale: float) -> tuple[NDArray[np.int64], Reals]:
    """Returns the pixels [after, 1 or 2] that each result is made of, and their weights."""
    place = _text(node, "coordinate_transformation_mode", "half_pixel")
    if place not in _PLACES:
        raise UnsupportedNode(
            f"coordinate_transformation_mode '{place}' is not supported; use one of {', '.join(_PLACES)}"
        )
    at = np.asarray(_PLACES[place](np.arange(after, dtype=np.float64), before, after, scale), dtype=np.float64)
    if place == "align_corners" and abs(before * scale - after) > 1e-6:
        raise UnsupportedNode(f"aligns corners with a scale of {scale} of {before} pixels; export with sizes")
    if mode == "nearest":
        rounding = _text(node, "nearest_mode", "round_prefer_floor")
        if rounding not in _NEAREST:
            raise UnsupportedNode(f"nearest_mode '{rounding}' is not supported; use one of {', '.join(_NEAREST)}")
        chosen = np.clip(_NEAREST[rounding](at), 0, before - 1).astype(np.int64)
        return chosen[:, None], np.ones((after, 1))
    at = np.clip(at, 0, before - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, before - 1)
    share = at - low
    return np.stack([low, high], axis=1), np.stack([1 - share, share], axis=1)


def _interpolated(context: Context, x: Indices, maps: list[tuple[int, NDArray[np.int64], Reals]]) -> Indices:
    """Returns all axes at once: each result is a sum over the choices of pixels along the axes."""
    columns, weights = [], []
    shape = list(x.shape)
    for axis, pixels, _ in maps:
        shape[axis] = len(pixels)
    for choice in itertools.product(*(range(pixels.shape[1]) for _, pixels, _ in maps)):
        wires, weight = x, np.ones([1] * x.ndim)
        for k, (axis, pixels, shares) in zip(choice, maps, strict=True):
            wires = np.take(wires, pixels[:, k], axis=axis)
            weight = weight * shares[:, k].reshape([-1 if a == axis else 1 for a in range(x.ndim)])
        columns.append(wires)
        weights.append(np.broadcast_to(weight, shape))
    if len(columns) == 1:
        return columns[0]
    bounded(*shape, len(columns))
    gather = np.stack([column.reshape(-1) for column in columns], axis=1)
    rows, block = np.unique(np.stack([weight.reshape(-1) for weight in weights], axis=1), axis=0, return_inverse=True)
    return context.linear(gather, rows[:, None, :], block=block.reshape(-1).astype(np.int64)).reshape(shape)


def _text(node: OnnxNode, name: str, default: str) -> str:
    value: Any = node.attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)
