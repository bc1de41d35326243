"""Quantised models: QuantizeLinear / DequantizeLinear (QDQ), and the integer operators of QOperator models in terms of them.

    QLinearConv(x, w) = Quantize(Conv(Dequantize(x), Dequantize(w)) + bias)

Weights are constants and stay the multiples of their scale that they are; requantisation becomes part of the look-up that follows, and the
last one the client's. It is rounded as real numbers are, or as ONNX Runtime's kernels do (models/onnx_import/integer_kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from onnx import TensorProto

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import import elementwise, integer_arithmetic, linear
from cloakwork.models.onnx_import.context import (
    FOLDED,
    LINEAR,
    MICROSOFT,
    Constant,
    Context,
    Encrypted,
    Grid,
    OnnxNode,
    Value,
    operator,
)
from cloakwork.models.onnx_import.integer_arithmetic import Integers, Target
from cloakwork.models.onnx_import.integer_kernels import requantised
from cloakwork.models.onnx_import.windows import for_each_image

_REQUANTISED: Final = (
    "weights, scales and zero points constant; the bootstrap is its quantiser, which later functions share"
)
INTEGER_TYPES: Final = {"int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32"}


@operator(
    "QuantizeLinear",
    MICROSOFT + "QuantizeLinear",
    restrictions="scale and zero point constant, not in blocks; free at both ends of the model, where the client rounds",
)
def quantize_linear(context: Context, node: OnnxNode) -> Encrypted:
    """Returns clip(round(x / scale) + zero point): one look-up, fused with the function before; free where x is on that grid already."""
    x = node.encrypted(0)
    ends = integer_range(_output_type(node))
    scale, zero = _parameters(node, x)
    return Encrypted(quantised(context, x, scale, zero, ends))


@operator("DequantizeLinear", MICROSOFT + "DequantizeLinear", cost=FOLDED, restrictions="scale and zero point constant")
def dequantize_linear(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    scale, zero = _parameters(node, x)
    return Encrypted(dequantised(context, x, scale, zero))


def quantised(context: Context, x: Indices, scale: Constant, zero: Constant, ends: tuple[float, float]) -> Indices:
    """Returns clip(round(x / scale) + zero, *ends), halves to the even integer. Args: scale, zero: broadcast with x."""
    low, high = ends
    uniform = scale.size == zero.size == 1
    source_grid = context.grid(x) if uniform else None
    step, shift = float(scale.flat[0]), float(zero.flat[0])
    grid = Grid(1.0, low, high)
    if source_grid is not None and source_grid.within(step, (low - shift) * step, (high - shift) * step):
        return context.mark(context.lookup(x, "Affine", 1 / step, shift), grid)
    out = context.lookup(x, "QuantizeLinear", scale, zero, low, high)
    return context.mark(out, grid)


def dequantised(context: Context, x: Indices, scale: Constant, zero: Constant) -> Indices:
    out = context.lookup(x, "Affine", scale, -zero * scale)
    source_grid = context.grid(x)
    if source_grid is None or not scale.size == zero.size == 1:
        return out
    step, shift = float(scale.flat[0]), float(zero.flat[0])
    return context.mark(
        out, Grid(step * source_grid.step, (source_grid.low - shift) * step, (source_grid.high - shift) * step)
    )


def _parameters(node: OnnxNode, x: Indices) -> tuple[Constant, Constant]:
    """Returns scale and zero point (inputs 1 and 2), shaped to broadcast with x."""
    if node.attributes.get("block_size", 0):
        raise UnsupportedNode("quantises activations in blocks; use one scale for the tensor or for each channel")
    scale = np.asarray(node.constant(1), dtype=np.float64)
    zero = np.asarray(node.constant(2), dtype=np.float64) if node.has(2) else np.zeros_like(scale)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise UnsupportedNode("has a scale that is not positive; quantise the model again")
    axis = int(node.attributes.get("axis", 1))
    return _along(scale, x, axis), _along(zero, x, axis)


def _along(value: Constant, x: Indices, axis: int) -> Constant:
    if value.size == 1:
        return value.reshape(())
    shape = [1] * x.ndim
    shape[axis] = value.size
    return value.reshape(shape)


def _output_type(node: OnnxNode) -> str:
    given = node.attributes.get("output_dtype", 0)
    if node.has(2):
        kind = str(node.constant(2).dtype)
    elif given:
        kind = TensorProto.DataType.Name(given).lower()
    else:
        kind = "uint8"
    if kind not in INTEGER_TYPES:
        raise UnsupportedNode(f"quantises to {kind}; use integers of 2 to 16 bits")
    return kind


def integer_range(kind: str) -> tuple[float, float]:
    """Returns (0, 255) for uint8, and so on."""
    bits = int(kind.lstrip("uint"))
    return (0.0, 2.0**bits - 1) if kind.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)


# --- QOperator models ------------------------------------------------------------------------------------------------------------

_Real = Callable[[Context, OnnxNode], Any]


def _through(context: Context, node: OnnxNode, real: _Real, inputs: tuple[Value | None, ...], output: int) -> Encrypted:
    """Returns Quantize(real(inputs)) with scale and zero point of the result at inputs `output` and output + 1."""
    result = real(context, replace(node, inputs=inputs))
    kind = str(node.constant(output + 1).dtype) if node.has(output + 1) else "uint8"
    scale = np.asarray(node.constant(output), dtype=np.float64)
    zero = np.asarray(node.constant(output + 1), dtype=np.float64) if node.has(output + 1) else np.zeros(())
    out = quantised(context, result.wires, scale.reshape(()), zero.reshape(()), integer_range(kind))
    return Encrypted(out)


def _kernel(
    context: Context, node: OnnxNode, real: _Real, inputs: tuple[Value | None, ...], output: int, channels: int = -1
) -> Encrypted:
    """Returns the same for a sum of products of integers, whose unit is the product of the scales at inputs 1 and 4. Args: channels: the axis of
    its rows."""
    if context.rounding == "real":
        return _through(context, node, real, inputs, output)
    wires = real(context, replace(node, inputs=inputs)).wires
    kind = str(node.constant(output + 1).dtype) if node.has(output + 1) else "uint8"
    zero = float(node.constant(output + 1).item()) if node.has(output + 1) else 0.0
    low, high = integer_range(kind)
    scales = node.constant(1).reshape(()), _along(node.constant(4), wires, channels), node.constant(output).reshape(())
    out = requantised(context, wires, scales, float(node.attributes.get("alpha", 1.0)), (zero, low, high))
    return Encrypted(context.mark(out, Grid(1.0, low, high)))


def _real(context: Context, node: OnnxNode, index: int, axis: int | None = None) -> Value:
    """Returns the tensor at inputs index .. index + 2 (values, scale, zero point), dequantised."""
    value = node.inputs[index]
    scale = np.asarray(node.constant(index + 1), dtype=np.float64)
    zero = np.asarray(node.constant(index + 2), dtype=np.float64) if node.has(index + 2) else np.zeros_like(scale)
    if isinstance(value, Encrypted):
        return Encrypted(dequantised(context, value.wires, scale.reshape(()), zero.reshape(())))
    constant = np.asarray(node.constant(index), dtype=np.float64)
    if axis is not None and scale.size > 1:
        shape = [1] * constant.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), (zero.reshape(shape) if zero.size > 1 else zero)
    return np.asarray((constant - zero) * scale)


@operator("QLinearConv", restrictions=_REQUANTISED)
def qlinear_conv(context: Context, node: OnnxNode) -> Encrypted:
    x, weights = _real(context, node, 0), _real(context, node, 3, axis=0)
    bias = None
    if node.has(8):  # int32 in units of the product of both scales
        unit = np.asarray(node.constant(1), dtype=np.float64) * np.asarray(node.constant(4), dtype=np.float64)
        bias = np.asarray(node.constant(8), dtype=np.float64) * unit.reshape(-1)
    return _kernel(context, node, linear.conv, (x, weights, bias), 6, channels=1)


@operator("QLinearMatMul", MICROSOFT + "QLinearMatMul", restrictions=_REQUANTISED)
def qlinear_matmul(context: Context, node: OnnxNode) -> Encrypted:
    left, right = _real(context, node, 0, axis=-2), _real(context, node, 3, axis=-1)
    return _kernel(context, node, linear.matmul, (left, right), 6)


@operator(MICROSOFT + "QGemm", restrictions=_REQUANTISED)
def qgemm(context: Context, node: OnnxNode) -> Encrypted:
    """Computes QGemm; the bias is int32 in units of alpha times both scales; without the result's scale the result is real."""
    rows = 0 if node.attributes.get("transB", 0) else 1
    x, weights = _real(context, node, 0), _real(context, node, 3, axis=rows)
    bias = None
    if node.has(6):
        unit = np.asarray(node.constant(1), dtype=np.float64) * np.asarray(node.constant(4), dtype=np.float64)
        bias = np.asarray(node.constant(6), dtype=np.float64) * (unit * float(node.attributes.get("alpha", 1.0)))
    if not node.has(7):
        return linear.gemm(context, replace(node, inputs=(x, weights, bias)))
    return _kernel(context, node, linear.gemm, (x, weights, bias), 7)


@operator(MICROSOFT + "QLinearAdd", MICROSOFT + "QLinearMul", restrictions=_REQUANTISED)
def qlinear_arithmetic(context: Context, node: OnnxNode) -> Encrypted:
    if context.rounding == "onnxruntime":
        exact = integer_arithmetic.added if node.operator == "QLinearAdd" else integer_arithmetic.multiplied
        left, right = Integers.of(context, node, 0), Integers.of(context, node, 3)
        return Encrypted(exact(context, left, right, Target.of(node, 6)))
    plain = replace(node, operator=node.operator.removeprefix("QLinear"))
    real = elementwise.add_sub if plain.operator == "Add" else elementwise.mul
    return _through(context, plain, real, (_real(context, node, 0), _real(context, node, 3)), 6)


@operator(MICROSOFT + "QLinearSigmoid", MICROSOFT + "QLinearLeakyRelu", restrictions=_REQUANTISED)
def qlinear_function(context: Context, node: OnnxNode) -> Encrypted:
    plain = replace(node, operator=node.operator.removeprefix("QLinear"))
    real = elementwise.plain if plain.operator == "Sigmoid" else elementwise.with_attributes
    return _through(context, plain, real, (_real(context, node, 0),), 3)


@operator(MICROSOFT + "QLinearAveragePool", MICROSOFT + "QLinearGlobalAveragePool", restrictions=_REQUANTISED)
def qlinear_average_pool(context: Context, node: OnnxNode) -> Encrypted:
    if node.attributes.get("channels_last", 0):
        raise UnsupportedNode("has channels last; export with channels first")
    if context.rounding == "onnxruntime":
        return _mean(context, node)
    real = linear.global_average_pool if node.operator == "QLinearGlobalAveragePool" else linear.average_pool
    return _through(context, node, real, (_real(context, node, 0),), 3)


@for_each_image
def _mean(context: Context, node: OnnxNode) -> Encrypted:
    x, target = Integers.of(context, node, 0), Target.of(node, 3)
    if node.operator == "QLinearGlobalAveragePool":
        return Encrypted(integer_arithmetic.global_mean(context, x, target))
    return Encrypted(integer_arithmetic.windowed_mean(context, x, node.attributes, target))


@operator(MICROSOFT + "QLinearConcat", restrictions="all inputs encrypted")
def qlinear_concat(context: Context, node: OnnxNode) -> Encrypted:
    """Computes QLinearConcat. Inputs: scale and zero point of the result, then three for each tensor."""
    places = range(2, len(node.inputs), 3)
    if not all(isinstance(node.inputs[index], Encrypted) for index in places):
        raise UnsupportedNode("concatenates a constant; add it in a node of its own")
    if context.rounding == "onnxruntime":
        integers = [Integers.of(context, node, index) for index in places]
        return Encrypted(integer_arithmetic.joined(context, integers, node.attributes["axis"], Target.of(node, 0)))
    parts = [_real(context, node, index) for index in places]
    joined = np.concatenate([part.wires for part in parts if isinstance(part, Encrypted)], axis=node.attributes["axis"])
    return _through(context, node, lambda *_: Encrypted(joined), (), 0)


@operator("ConvInteger", cost=LINEAR, restrictions="weights constant")
def conv_integer(context: Context, node: OnnxNode) -> Encrypted:
    x, weights = _shifted(context, node, 0, 2), _shifted(context, node, 1, 3, axis=0)
    return linear.conv(context, replace(node, inputs=(x, weights)))


@operator("MatMulInteger", cost=LINEAR, restrictions="one factor constant")
def matmul_integer(context: Context, node: OnnxNode) -> Encrypted:
    left, right = _shifted(context, node, 0, 2, axis=-2), _shifted(context, node, 1, 3, axis=-1)
    return linear.matmul(context, replace(node, inputs=(left, right)))


def _shifted(context: Context, node: OnnxNode, index: int, zero_index: int, axis: int | None = None) -> Value:
    """Returns an integer tensor less its zero point."""
    zero = np.asarray(node.constant(zero_index), dtype=np.float64) if node.has(zero_index) else np.zeros(())
    value = node.inputs[index]
    if isinstance(value, Encrypted):
        if zero.size > 1:
            raise UnsupportedNode("has a zero point for each row of encrypted data; use one for the tensor")
        return Encrypted(dequantised(context, value.wires, np.ones(()), zero.reshape(())))
    constant = np.asarray(node.constant(index), dtype=np.float64)
    if axis is not None and zero.size > 1:
        shape = [1] * constant.ndim
        shape[axis] = -1
        zero = zero.reshape(shape)
    return np.asarray(constant - zero)
