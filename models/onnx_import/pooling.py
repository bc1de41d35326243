"""Max-pools as trees of max(a, b) = b + Relu(a - b).

A monotone look-up before a tree (the ReLU before a max-pool) moves behind it, where it has fewer numbers to work on.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.ir import ZERO_WIRE, Lookup
from cloakwork.models.graph.steps import directions
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode, operator
from cloakwork.models.onnx_import.elementwise import larger
from cloakwork.models.onnx_import.windows import OUTSIDE, for_each_image, pooled_windows

OF_PAIRS: Final = "n - 1 for n numbers; in exact programs 5 to 13 for one if one is not enough"


@operator("MaxPool", cost=OF_PAIRS.replace("for n", "for a window of n"), restrictions="no indices as second output")
@for_each_image
def max_pool(context: Context, node: OnnxNode) -> Encrypted:
    if node.attributes.get("storage_order", 0):
        raise UnsupportedNode("column-major indices are not supported; drop the second output")
    patches = pooled_windows(node.encrypted(), node.attributes["kernel_shape"], node.attributes)
    # Padding never wins: it repeats another element of its window.
    inside = np.take_along_axis(patches, np.argmax(patches != OUTSIDE, axis=-1)[..., None], axis=-1)
    patches = np.where(patches == OUTSIDE, inside, patches)
    return Encrypted(maximum(context, patches)[None])


@operator("GlobalMaxPool", cost=OF_PAIRS)
def global_max_pool(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    return Encrypted(maximum(context, x.reshape(*x.shape[:2], -1)).reshape(x.shape[:2] + (1,) * (x.ndim - 2)))


def maximum(context: Context, x: Indices, smaller: bool = False) -> Indices:
    """Computes the maximum over the last axis, in ceil(log2) levels; or the minimum."""
    if x.shape[-1] == 1:
        return x[..., 0]
    grid, behind, wires = context.grid(x), [], x if smaller else _without_zeros(context, x)
    while context.pools_first and (inner := _monotone_before(context, wires)) is not None:
        behind.append((inner.steps, inner.function[wires[..., 0] - inner.first_wire]))
        wires = inner.gather[wires - inner.first_wire]
    best = _tree(context, wires, smaller)
    for steps, function in reversed(behind):
        best = context.add(Lookup(0, best.reshape(-1), steps, function.reshape(-1), "")).reshape(best.shape)
    return best if grid is None else context.mark(best, grid)


def _tree(context: Context, x: Indices, smaller: bool) -> Indices:
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        winners = larger(context, x[..., :half], x[..., half : 2 * half], smaller)
        x = np.concatenate([winners, x[..., 2 * half :]], axis=-1)
    return x[..., 0]


def _without_zeros(context: Context, x: Indices) -> Indices:
    """Returns windows x [.., n] in which no zero of the model has to be compared: beside numbers that are never negative (ReLU, Pad, pool) it never
    wins."""
    zero = x == ZERO_WIRE
    mixed = zero.any(axis=-1) & ~zero.all(axis=-1)
    if not mixed.any() or not context.is_never_negative(x[mixed]):
        return x
    other = np.take_along_axis(x, np.argmax(~zero, axis=-1)[..., None], axis=-1)
    return np.where(zero, other, x)


def _monotone_before(context: Context, x: Indices) -> Lookup | None:
    """Returns the look-up that windows x [.., n] come from, where each has one function, which does not fall: max(f(a), f(b)) = f(max(a, b))."""
    low, high = int(x.min()), int(x.max())
    owner = next((n for n in reversed(context.nodes) if n.first_wire <= high), None)
    if not isinstance(owner, Lookup) or low < owner.first_wire or high >= owner.first_wire + owner.size:
        return None
    function = owner.function[x - owner.first_wire]
    same = bool((function == function[..., :1]).all())
    rising = np.broadcast_to(directions(owner.steps), max(1, int(function.max()) + 1))
    return owner if same and bool((rising[function] > 0).all()) else None
