"""Booleans (0 and 1), choices between tensors, and integers as bits."""

from __future__ import annotations

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import Constant, Context, Encrypted, OnnxNode, bounded, together
from cloakwork.models.onnx_import.elementwise import one_encrypted, spread
from cloakwork.models.onnx_import.products import combined
from cloakwork.models.onnx_import.registry import FOLDED, OF_ONE, operator


@operator("Not", cost=FOLDED)
def not_(context: Context, node: OnnxNode) -> Encrypted:
    """Computes 1 - x."""
    return Encrypted(context.lookup(node.encrypted(), "Affine", -1.0, 1.0))


@operator("And", "Or", "Xor", cost="1 for each number; none with a constant")
def boolean(context: Context, node: OnnxNode) -> Encrypted:
    """Imports a Boolean operator: with a constant an affine function; of two encrypted tensors a function of their sum 0, 1 or 2."""
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        total = _combined(context, left.wires, right.wires, 1.0)
        if node.operator == "Xor":
            distance = context.lookup(context.lookup(total, "Affine", 1.0, -1.0), "Abs")
            return Encrypted(context.lookup(distance, "Less", 0.5))
        return Encrypted(context.lookup(total, "Greater", 1.5 if node.operator == "And" else 0.5))
    x, c, _ = one_encrypted(node)
    scale, offset = {"And": (c, 0 * c), "Or": (1 - c, c), "Xor": (1 - 2 * c, c)}[node.operator]
    return Encrypted(context.lookup(x, "Affine", scale, offset))


@operator(
    "Where",
    cost="none when the condition, or both values, are constant; else 2 for each number, 1 in exact programs "
    "(3 to 18 if one is not enough), " + OF_ONE,
    restrictions="an encrypted condition is a boolean",
)
def where(context: Context, node: OnnxNode) -> Encrypted:
    """Selects by a condition; a constant condition picks wires."""
    condition, x, y = node.inputs
    if condition is None or x is None or y is None:
        raise UnsupportedNode("expected a condition and two values")
    if isinstance(condition, np.ndarray):
        shape = np.broadcast_shapes(condition.shape, _shape(x), _shape(y))
        bounded(*shape)
        yes, no = (np.broadcast_to(_as_wires(context, value), shape) for value in (x, y))
        return Encrypted(np.where(np.broadcast_to(condition, shape).astype(bool), yes, no))
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        first, second = np.broadcast_arrays(x.astype(np.float64), y.astype(np.float64))
        wires, difference = spread(condition.wires, first - second)
        return Encrypted(context.lookup(wires, "Affine", difference, np.broadcast_to(second, wires.shape)))
    yes, no = _as_wires(context, x), _as_wires(context, y)
    return Encrypted(combined(context, "Where", condition.wires, yes, no))


@operator("Mod", restrictions="divisor constant and not 0")
def mod(context: Context, node: OnnxNode) -> Encrypted:
    x, divisor = spread(node.encrypted(0), node.constant(1))
    if (divisor == 0).any():
        raise UnsupportedNode("divides by zero")
    return Encrypted(context.lookup(x, "Fmod" if node.attributes.get("fmod", 0) else "Mod", divisor))


@operator("BitShift", restrictions="amount constant; to the left free, and the result has to fit its type")
def bit_shift(context: Context, node: OnnxNode) -> Encrypted:
    amounts = node.constant(1)
    x, amount = spread(node.encrypted(0), amounts)
    if (amount < 0).any():
        raise UnsupportedNode("shifts by a negative amount; shift in the other direction")
    if node.attributes["direction"] in (b"LEFT", "LEFT"):
        return Encrypted(
            context.lookup(x, "Affine", np.where(amount < 8 * amounts.dtype.itemsize, 2.0**amount, 0.0), 0.0)
        )
    return Encrypted(context.lookup(context.lookup(x, "Affine", 2.0**-amount, 0.0), "Floor"))


@operator("BitwiseAnd", "BitwiseOr", "BitwiseXor", restrictions="one of both constant, below 2^31")
def bitwise(context: Context, node: OnnxNode) -> Encrypted:
    x, constant, _ = one_encrypted(node)
    return Encrypted(context.lookup(x, node.operator, constant))


def _combined(context: Context, a: Indices, b: Indices, sign: float) -> Indices:
    """Returns a + sign b."""
    x, y = together(a, b)
    return context.linear(np.stack([x.reshape(-1), y.reshape(-1)], axis=1), [[[1.0, sign]]]).reshape(x.shape)


def _as_wires(context: Context, value: Encrypted | Constant) -> Indices:
    return value.wires if isinstance(value, Encrypted) else context.constant(value)


def _shape(value: Encrypted | Constant) -> tuple[int, ...]:
    return value.wires.shape if isinstance(value, Encrypted) else value.shape
