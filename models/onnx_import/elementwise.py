"""Operators that act element by element: look-ups, and arithmetic of one or two encrypted tensors."""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.functions import ATTRIBUTES
from cloakwork.models.onnx_import.context import Constant, Context, Encrypted, OnnxNode, bounded, together
from cloakwork.models.onnx_import.products import combined, product
from cloakwork.models.onnx_import.registry import FOLDED, LOOKUP, OF_ONE, operator

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
