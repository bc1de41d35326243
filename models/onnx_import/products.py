"""Products of encrypted tensors and what is made of them, as nodes of the graph: passes/fuse_functions.py and passes/lower_products.py make
look-ups of them. Matrix products are made of squares here: x y = ((x + y)^2 - (x - y)^2) / 4, two look-ups each."""

from __future__ import annotations

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.ir import Product
from cloakwork.models.onnx_import.context import Context, bounded, together


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
