"""MaxPool and ReduceMax as trees of max(a, b) = b + Relu(a - b)."""

from __future__ import annotations

import numpy as np

from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.ir import Indices
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode
from cloakwork.models.onnx_import.elementwise import larger
from cloakwork.models.onnx_import.registry import operator
from cloakwork.models.onnx_import.windows import spatial_windows


@operator("MaxPool")
def max_pool(context: Context, node: OnnxNode) -> Encrypted:
    if node.attributes.get("storage_order", 0):
        raise UnsupportedNode("column-major indices are not supported; drop the second output")
    patches = spatial_windows(node.encrypted(), node.attributes["kernel_shape"], node.attributes)
    # Padding never wins: it repeats another element of its window.
    inside = np.take_along_axis(patches, np.argmax(patches >= 0, axis=-1)[..., None], axis=-1)
    patches = np.where(patches >= 0, patches, inside)
    return Encrypted(maximum(context, patches)[None])


@operator("GlobalMaxPool")
def global_max_pool(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    return Encrypted(maximum(context, x.reshape(*x.shape[:2], -1)).reshape(x.shape[:2] + (1,) * (x.ndim - 2)))


@operator("ReduceMax")
def reduce_max(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    axes = node.integers(1, "axes")
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        return Encrypted(x)
    chosen = [axis % x.ndim for axis in axes] if axes else list(range(x.ndim))
    if 0 in chosen and x.shape[0] == 1:
        raise UnsupportedNode("reduces over the batch; samples are computed one by one")
    kept = [axis for axis in range(x.ndim) if axis not in chosen]
    flat = x.transpose(*kept, *chosen).reshape(*(x.shape[axis] for axis in kept), -1)
    result = maximum(context, flat)
    if node.attributes.get("keepdims", 1):
        result = result.reshape([1 if axis in chosen else x.shape[axis] for axis in range(x.ndim)])
    return Encrypted(result)


def maximum(context: Context, x: Indices) -> Indices:
    """Over the last axis, in ceil(log2) levels."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        winners = larger(context, x[..., :half], x[..., half : 2 * half])
        x = np.concatenate([winners, x[..., 2 * half :]], axis=-1)
    return x[..., 0]
