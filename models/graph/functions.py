"""The functions that a look-up can be made of, by their ONNX names; parameters broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Reals

_SELU_ALPHA = 1.67326319217681884765625  # the operator's defaults in the ONNX specification
_SELU_GAMMA = 1.05070102214813232421875


def _erf(x: Reals) -> Reals:
    values = np.fromiter((math.erf(v) for v in x.reshape(-1)), dtype=np.float64, count=x.size)
    return values.reshape(x.shape)


def _sigmoid(x: Reals) -> Reals:
    result: Reals = 1 / (1 + np.exp(-x))
    return result


def _softplus(x: Reals) -> Reals:
    return np.logaddexp(x, 0.0)


def _table(x: Reals, entries: Reals) -> Reals:
    """Returns entries [E, slots] at x [.., E], whole numbers modulo the slots."""
    slot = np.floor(x + 0.5).astype(np.int64) % entries.shape[-1]
    result: Reals = entries[np.arange(len(entries)), slot]
    return result


def _gate(x: Reals, offset: Reals, opens: Reals, bound: Reals) -> Reals:
    """x - offset, within bounds, where x is above `opens`; 0 elsewhere: of x + offset c the choice of x by a bit c."""
    chosen: Reals = np.where(x > opens, np.clip(x - offset, -bound, bound), 0.0)
    return chosen


def _requantize(x: Reals, unit: Reals, multiplier: Reals, zero: Reals, low: Reals, high: Reals) -> Reals:
    """Returns what integer kernels make of the accumulator x / unit, an integer: one product in float32, rounded half to even, saturated."""
    product = np.rint(x / unit).astype(np.float32) * multiplier.astype(np.float32)
    result: Reals = np.clip(np.rint(product).astype(np.float64) + zero, low, high)
    return result


def _staircase(x: Reals, thresholds: Reals, lowest: Reals) -> Reals:
    """lowest [E] and one more for each of the thresholds [E, most], in order, that x [.., E] has reached."""
    if thresholds.strides[0] == 0:  # all alike
        return lowest + np.searchsorted(thresholds[0], x, side="right")
    rows, number = np.unique(thresholds, axis=0, return_inverse=True)
    reached = np.empty(np.shape(x))
    for i, row in enumerate(rows):
        chosen = number.reshape(-1) == i
        reached[..., chosen] = np.searchsorted(row, x[..., chosen], side="right")
    return lowest + reached


def _gelu_tanh(x: Reals) -> Reals:
    result: Reals = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return result


def _weighted_sum(*arguments: Reals) -> Reals:
    """Returns w1 x1 + w2 x2 + .. + b of x1, x2, .., w1, w2, .., b."""
    count = len(arguments) // 2
    total = arguments[0] * arguments[count]
    for x, weight in zip(arguments[1:count], arguments[count + 1 : -1], strict=True):
        total = total + x * weight
    return total + arguments[-1]


def _bitwise(operation: Callable[[Any, Any], Any]) -> Callable[[Reals, Reals], Reals]:
    """Of numbers rounded to integers."""

    def function(x: Reals, y: Reals) -> Reals:
        limited = np.clip(np.nan_to_num(x), -(2.0**31), 2.0**31)
        result: Reals = operation(np.rint(limited).astype(np.int64), np.rint(y).astype(np.int64)).astype(np.float64)
        return result

    return function


# name -> function of x (of several operands for those of OPERANDS) and the step's parameters
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "Identity": lambda x: x,
    "Affine": lambda x, scale, offset: x * scale + offset,
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseAnd": _bitwise(np.bitwise_and),
    "BitwiseOr": _bitwise(np.bitwise_or),
    "BitwiseXor": _bitwise(np.bitwise_xor),
    "Ceil": np.ceil,
    "Celu": lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "Clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Div": np.divide,
    "Elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "Equal": lambda x, y: (x == y).astype(np.float64),
    "Erf": _erf,
    "Excess": lambda x: np.maximum(x, 0),
    "Exp": np.exp,
    "Floor": np.floor,
    "Fmod": np.fmod,
    "Gate": _gate,
    "Gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "GeluTanh": _gelu_tanh,
    "Greater": lambda x, y: (x > y).astype(np.float64),
    "GreaterOrEqual": lambda x, y: (x >= y).astype(np.float64),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "LeakyRelu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "Less": lambda x, y: (x < y).astype(np.float64),
    "LessOrEqual": lambda x, y: (x <= y).astype(np.float64),
    "Log": np.log,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Mul": np.multiply,
    "Not": lambda x: (x == 0).astype(np.float64),
    "Pow": np.power,
    "QuantizeLinear": lambda x, scale, zero, low, high: np.clip(np.rint(x / scale) + zero, low, high),
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Requantize": _requantize,
    "Round": np.rint,
    "Search": lambda x, entries, tolerance: _table(x, entries),
    "Selu": lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Snap": lambda x, step, origin: np.rint((x - origin) / step) * step + origin,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Staircase": _staircase,
    "Sum": _weighted_sum,
    "Table": _table,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, alpha: np.where(x > alpha, x, 0),
    "Truncate": np.trunc,
    "Where": lambda condition, x, y: np.where(condition != 0, x, y),
}

# Least and most operands of those that may take several, and the number of parameters that go with so many.
OPERANDS: Final[dict[str, tuple[int, int, Callable[[int], int]]]] = {
    "Div": (2, 2, lambda _: 0),
    "Max": (1, 2, lambda operands: 2 - operands),
    "Min": (1, 2, lambda operands: 2 - operands),
    "Mul": (2, 2, lambda _: 0),
    "Sum": (2, 512, lambda operands: operands + 1),
    "Where": (3, 3, lambda _: 0),
}


def _sign(slope: Reals) -> Reals:
    result: Reals = np.where(slope < 0, -1.0, 1.0)
    return result


def _where(holds: Any) -> Reals:
    result: Reals = np.where(holds, 1.0, 0.0)
    return result


# name -> function of the step's parameters: 1 where it never falls, -1 where it never rises, 0 where neither is certain.
_DIRECTIONS: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(
        (
            "Asinh", "Atan", "Ceil", "Erf", "Excess", "Exp", "Floor", "Identity", "Log", "Relu", "Round", "Sigmoid", "Sign", "Sinh",
            "Softplus", "Softsign", "Sqrt", "Tanh", "Truncate",
        ),
        lambda: 1.0,
    ),
    "Affine": lambda scale, offset: _sign(scale),
    "Celu": lambda alpha: _where(alpha > 0),
    "Clip": lambda low, high: 1.0,
    "Elu": lambda alpha: _where(alpha >= 0),
    "Greater": lambda y: 1.0,
    "GreaterOrEqual": lambda y: 1.0,
    "HardSigmoid": lambda alpha, beta: _sign(alpha),
    "LeakyRelu": lambda alpha: _where(alpha >= 0),
    "Less": lambda y: -1.0,
    "LessOrEqual": lambda y: -1.0,
    "Max": lambda y: 1.0,
    "Min": lambda y: 1.0,
    "Pow": lambda exponent: _where((exponent > 0) & (exponent % 2 == 1)),
    "QuantizeLinear": lambda scale, zero, low, high: _sign(scale),
    "Requantize": lambda unit, multiplier, zero, low, high: _sign(unit * multiplier),
    "Selu": lambda alpha, gamma: _where(alpha >= 0) * _sign(gamma),
    "Snap": lambda step, origin: 1.0,
    "Staircase": lambda thresholds, lowest: 1.0,
    "ThresholdedRelu": lambda alpha: _where(alpha >= 0),
}  # fmt: skip


# At least 0 whatever their argument and parameters.
NEVER_NEGATIVE: Final = frozenset({"Abs", "Excess", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softplus", "Sqrt"})


def direction(name: str, *parameters: Reals) -> Reals:
    """Returns 1 where a function of one number never falls, -1 where it never rises, 0 where neither is certain; for each entry of its parameters."""
    known = _DIRECTIONS.get(name)
    return np.zeros(1) if known is None else np.atleast_1d(np.asarray(known(*parameters), dtype=np.float64))


# ONNX attributes that become parameters, with the defaults of the specification.
ATTRIBUTES: Final[dict[str, tuple[tuple[str, float], ...]]] = {
    "Celu": (("alpha", 1.0),),
    "Elu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "LeakyRelu": (("alpha", 0.01),),
    "Selu": (("alpha", _SELU_ALPHA), ("gamma", _SELU_GAMMA)),
    "ThresholdedRelu": (("alpha", 1.0),),
}
