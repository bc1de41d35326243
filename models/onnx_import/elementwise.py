"""Operators that act element by element: look-ups, and arithmetic of one or two encrypted tensors."""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.functions import ATTRIBUTES
from cloakwork.models.onnx_import.context import (
    FOLDED,
    LOOKUP,
    OF_ONE,
    Constant,
    Context,
    Encrypted,
    OnnxNode,
    bounded,
    operator,
    together,
)
from cloakwork.models.onnx_import.linear import combined, product

_PLAIN = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Log", "Mish",
    "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
)  # fmt: skip
# Comparison with a constant on the left -> the same with the constant on the right.
_MIRRORED: Final = {
    "Equal": "Equal",
    "Greater": "Less",
    "GreaterOrEqual": "LessOrEqual",
    "Less": "Greater",
    "LessOrEqual": "GreaterOrEqual",
}
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@operator(*_PLAIN)
def plain(context: Context, node: OnnxNode) -> Encrypted:
    return Encrypted(context.lookup(node.encrypted(), node.operator))


@operator(*ATTRIBUTES)
def with_attributes(context: Context, node: OnnxNode) -> Encrypted:
    parameters = [node.attributes.get(name, default) for name, default in ATTRIBUTES[node.operator]]
    return Encrypted(context.lookup(node.encrypted(), node.operator, *parameters))


@operator("Gelu")
def gelu(context: Context, node: OnnxNode) -> Encrypted:
    tanh = node.attributes.get("approximate", b"none") in (b"tanh", "tanh")
    return Encrypted(context.lookup(node.encrypted(), "GeluTanh" if tanh else "Gelu"))


@operator("PRelu", restrictions="slope constant")
def prelu(context: Context, node: OnnxNode) -> Encrypted:
    x, slope = spread(node.encrypted(0), node.constant(1))
    return Encrypted(context.lookup(x, "LeakyRelu", slope))


@operator("Clip", restrictions="bounds constant")
def clip(context: Context, node: OnnxNode) -> Encrypted:
    low, high = node.optional_constant(1), node.optional_constant(2)
    return Encrypted(
        context.lookup(node.encrypted(0), "Clip", -np.inf if low is None else low, np.inf if high is None else high)
    )


@operator("Neg", cost=FOLDED)
def neg(context: Context, node: OnnxNode) -> Encrypted:
    return Encrypted(context.lookup(node.encrypted(), "Affine", -1.0, 0.0))


@operator("Cast", restrictions="free from float to float; towards integers rounds down the magnitude")
def cast(context: Context, node: OnnxNode) -> Encrypted:
    x, target = node.encrypted(), node.attributes["to"]
    if target in _FLOATS:
        return Encrypted(x)
    if target == TensorProto.BOOL:
        return Encrypted(context.lookup(context.lookup(x, "Not"), "Not"))
    return Encrypted(context.lookup(x, "Truncate"))


@operator("BatchNormalization", cost=FOLDED, restrictions="not in training mode")
def batch_normalization(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    if node.attributes.get("training_mode", 0):
        raise UnsupportedNode("is in training mode; export the model in evaluation mode")
    gamma, beta, mean, variance = (np.asarray(node.constant(i), dtype=np.float64) for i in range(1, 5))
    scale = gamma / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    return Encrypted(context.lookup(x, "Affine", scale.reshape(shape), (beta - mean * scale).reshape(shape)))


@operator("Add", "Sub", cost=FOLDED)
def add_sub(context: Context, node: OnnxNode) -> Encrypted:
    sign = 1.0 if node.operator == "Add" else -1.0
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        x, y = together(left.wires, right.wires)
        gather = np.stack([x.reshape(-1), y.reshape(-1)], axis=1)
        return Encrypted(context.linear(gather, [[[1.0, sign]]]).reshape(x.shape))
    if isinstance(left, Encrypted):
        x, constant = spread(left.wires, node.constant(1))
        return Encrypted(context.lookup(x, "Affine", 1.0, sign * constant))
    x, constant = spread(node.encrypted(1), node.constant(0))
    return Encrypted(context.lookup(x, "Affine", sign, constant))


@operator("Sum", "Mean", cost=FOLDED)
def variadic(context: Context, node: OnnxNode) -> Encrypted:
    encrypted = [value.wires for value in node.inputs if isinstance(value, Encrypted)]
    constants = [value.astype(np.float64) for value in node.inputs if isinstance(value, np.ndarray)]
    share = 1 / len(node.inputs) if node.operator == "Mean" else 1.0
    shape = np.broadcast_shapes(*(value.shape for value in (*encrypted, *constants)))
    bounded(*shape, len(encrypted))
    gather = np.stack([np.broadcast_to(x, shape).reshape(-1) for x in encrypted], axis=1)
    total = context.linear(gather, np.full((1, 1, len(encrypted)), share)).reshape(shape)
    if constants:
        total = context.lookup(total, "Affine", 1.0, share * sum(np.broadcast_to(c, shape) for c in constants))
    return Encrypted(total)


@operator("Mul", cost=FOLDED + f"; of two encrypted tensors 2 for each number, {OF_ONE}")
def mul(context: Context, node: OnnxNode) -> Encrypted:
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        return Encrypted(product(context, left.wires, right.wires))
    x, constant, _ = one_encrypted(node)
    return Encrypted(context.lookup(x, "Affine", constant, 0.0))


@operator("Div", cost=FOLDED + f"; 1 for each number of constant / x, of two encrypted tensors 3, {OF_ONE}")
def div(context: Context, node: OnnxNode) -> Encrypted:
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        return Encrypted(combined(context, "Div", left.wires, right.wires))
    x, constant, swapped = one_encrypted(node)
    if not swapped and (constant == 0).any():
        raise UnsupportedNode("divides by zero")
    factor = constant if swapped else 1 / constant
    quotient = context.lookup(context.lookup(x, "Reciprocal") if swapped else x, "Affine", factor, 0.0)
    whole = node.constant(int(not swapped)).dtype.kind in "iu"  # integers divide towards zero
    return Encrypted(context.lookup(quotient, "Truncate") if whole else quotient)


@operator("Pow", restrictions="exponent constant, or base constant and positive")
def power(context: Context, node: OnnxNode) -> Encrypted:
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        raise UnsupportedNode("base and exponent are encrypted; make one a constant, or multiply with Mul")
    if isinstance(left, Encrypted):
        x, exponent = spread(left.wires, node.constant(1))
        return Encrypted(context.lookup(x, "Pow", exponent))
    x, base = spread(node.encrypted(1), node.constant(0))
    if not (base > 0).all():
        raise UnsupportedNode("has a base that is not positive; use a positive one")
    return Encrypted(context.lookup(context.lookup(x, "Affine", np.log(base), 0.0), "Exp"))


@operator(
    "Max",
    "Min",
    cost=f"1 for each number and each further encrypted input, {OF_ONE}; constants share one; in exact programs 5 to 13 "
    "if one is not enough",
)
def max_min(context: Context, node: OnnxNode) -> Encrypted:
    result: Indices | None = None
    constants = [value for value in node.inputs if isinstance(value, np.ndarray)]
    for value in node.inputs:
        if isinstance(value, Encrypted):
            result = value.wires if result is None else combined(context, node.operator, result, value.wires)
    assert result is not None
    for constant in constants:
        x, y = spread(result, constant)
        result = context.lookup(x, node.operator, y)
    return Encrypted(result)


def larger(context: Context, a: Indices, b: Indices, smaller: bool = False) -> Indices:
    """Returns max(a, b) = b + Relu(a - b); min(a, b) = b - Relu(b - a)."""
    a, b = together(a, b)
    sign = -1.0 if smaller else 1.0
    difference = context.linear(np.stack([a.reshape(-1), b.reshape(-1)], axis=1), [[[sign, -sign]]])
    excess = context.lookup(difference.reshape(-1), "Relu")
    return context.linear(np.stack([b.reshape(-1), excess], axis=1), [[[1.0, sign]]]).reshape(a.shape)


@operator(
    *_MIRRORED,
    cost=LOOKUP + "; in exact programs 3 to 7 (twice that for Equal) if one is not enough",
    restrictions="two encrypted tensors: through their difference",
)
def compare(context: Context, node: OnnxNode) -> Encrypted:
    """Compares with a constant; with another encrypted tensor through the sign of the difference."""
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        x, y = together(left.wires, right.wires)
        difference = context.linear(np.stack([x.reshape(-1), y.reshape(-1)], axis=1), [[[1.0, -1.0]]])
        return Encrypted(context.lookup(difference.reshape(x.shape), node.operator, 0.0))
    x, constant, swapped = one_encrypted(node)
    return Encrypted(context.lookup(x, _MIRRORED[node.operator] if swapped else node.operator, constant))


def one_encrypted(node: OnnxNode) -> tuple[Indices, Constant, bool]:
    """Returns wires and constant, broadcast, and whether the constant came first."""
    left, right = node.inputs[0], node.inputs[1]
    if isinstance(left, Encrypted) and isinstance(right, Encrypted):
        raise UnsupportedNode("both inputs are encrypted; make one a constant")
    swapped = isinstance(right, Encrypted)
    x, constant = spread(node.encrypted(int(swapped)), node.constant(int(not swapped)))
    return x, constant, swapped


def spread(x: Indices, constant: Constant) -> tuple[Indices, Constant]:
    try:
        bounded(*np.broadcast_shapes(x.shape, constant.shape))
        wires, values = np.broadcast_arrays(x, np.asarray(constant, dtype=np.float64))
    except ValueError:
        raise UnsupportedNode(f"shapes {list(x.shape)} and {list(constant.shape)} do not broadcast") from None
    return wires, values


# Booleans (0 and 1), choices between tensors, and integers as bits.


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
