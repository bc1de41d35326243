"""Layer, instance, group and root-mean-square normalisation: c / sqrt(mean(c^2) + epsilon) of what is centred, scaled and shifted.

A look-up for each square, one for each deviation and two for each quotient: 3 n + 1 for n numbers that are normalised together.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import Constant, Context, Encrypted, OnnxNode
from cloakwork.models.onnx_import.elementwise import spread
from cloakwork.models.onnx_import.linear import summed
from cloakwork.models.onnx_import.products import combined
from cloakwork.models.onnx_import.registry import MICROSOFT, operator

_COST: Final = "3 n + 1 for n numbers that are normalised together; BatchNormalization costs none"
_CONSTANT: Final = "scale and bias constant"


@operator("LayerNormalization", cost=_COST, restrictions=_CONSTANT)
def layer_normalization(context: Context, node: OnnxNode) -> list[Encrypted]:
    x = node.encrypted(0)
    axes = tuple(range(_axis(node, x), x.ndim))
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    scaled = _scaled(context, _normalised(context, x, axes, epsilon), node.constant(1), node.optional_constant(2))
    if node.attributes["output_count"] == 1:
        return [Encrypted(scaled)]
    mean, centred = _centred(context, x, axes)
    inverse = context.lookup(_deviation(context, centred, axes, epsilon), "Reciprocal")
    return [Encrypted(scaled), Encrypted(mean), Encrypted(inverse)]


@operator(
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    MICROSOFT + "SimplifiedLayerNormalization",
    cost=_COST,
    restrictions=_CONSTANT,
)
def rms_normalization(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    axes = tuple(range(_axis(node, x), x.ndim))
    result = _normalised(context, x, axes, float(node.attributes.get("epsilon", 1e-5)), centre=False)
    return Encrypted(_scaled(context, result, node.constant(1), None))


@operator("InstanceNormalization", cost=_COST, restrictions=_CONSTANT)
def instance_normalization(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    result = _normalised(context, x, tuple(range(2, x.ndim)), float(node.attributes.get("epsilon", 1e-5)))
    channels = (1, -1, *[1] * (x.ndim - 2))
    return Encrypted(_scaled(context, result, node.constant(1).reshape(channels), node.constant(2).reshape(channels)))


@operator("GroupNormalization", cost=_COST, restrictions=_CONSTANT)
def group_normalization(context: Context, node: OnnxNode) -> Encrypted:
    """Imports GroupNormalization: before opset 21 scale and bias are the groups', since then the channels'."""
    x, groups = node.encrypted(0), int(node.attributes["num_groups"])
    channels = x.shape[1]
    if groups < 1 or channels % groups:
        raise UnsupportedNode(f"has {groups} groups of {channels} channels; they have to be of equal size")
    grouped = x.reshape(x.shape[0], groups, -1)
    result = _normalised(context, grouped, (2,), float(node.attributes.get("epsilon", 1e-5))).reshape(x.shape)
    scale, bias = (np.asarray(node.constant(i), dtype=np.float64) for i in (1, 2))
    repeats = channels // groups if scale.size == groups and node.opset < 21 else 1
    shape = (1, channels, *[1] * (x.ndim - 2))
    scale, bias = np.repeat(scale, repeats).reshape(shape), np.repeat(bias, repeats).reshape(shape)
    return Encrypted(_scaled(context, result, scale, bias))


@operator("MeanVarianceNormalization", cost=_COST, restrictions="not over the batch")
def mean_variance_normalization(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted(0)
    axes = tuple(int(axis) % x.ndim for axis in node.attributes.get("axes", (0, 2, 3)))
    if 0 in axes and x.shape[0] == 1:
        raise UnsupportedNode("normalises over the batch; samples are computed one by one, use other axes")
    return Encrypted(_normalised(context, x, axes, 1e-9))


def _axis(node: OnnxNode, x: Indices) -> int:
    """Returns the first of the axes that are normalised together."""
    axis = int(node.attributes.get("axis", -1))
    if not -x.ndim <= axis < x.ndim or (axis % x.ndim == 0 and x.shape[0] == 1):
        raise UnsupportedNode(f"normalises from axis {axis} of {x.ndim} on; expected one after the batch")
    return axis % x.ndim


def _normalised(context: Context, x: Indices, axes: tuple[int, ...], epsilon: float, centre: bool = True) -> Indices:
    centred = _centred(context, x, axes)[1] if centre else x
    return combined(context, "Div", centred, _deviation(context, centred, axes, epsilon))


def _centred(context: Context, x: Indices, axes: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Returns the mean over axes, and x less that."""
    mean = summed(context, x, axes, True, mean=True)
    gather = np.stack([x.reshape(-1), np.broadcast_to(mean, x.shape).reshape(-1)], axis=1)
    return mean, context.linear(gather, [[[1.0, -1.0]]]).reshape(x.shape)


def _deviation(context: Context, centred: Indices, axes: tuple[int, ...], epsilon: float) -> Indices:
    variance = summed(context, context.lookup(centred, "Pow", 2.0), axes, True, mean=True)
    return context.lookup(context.lookup(variance, "Affine", 1.0, epsilon), "Sqrt")


def _scaled(context: Context, x: Indices, scale: Constant, bias: Constant | None) -> Indices:
    wires, factor = spread(x, scale)
    if wires.shape != x.shape:
        raise UnsupportedNode(f"has a scale of shape {list(scale.shape)} for numbers of shape {list(x.shape)}")
    offset = np.zeros(()) if bias is None else spread(x, bias)[1]
    return context.lookup(wires, "Affine", factor, offset)
