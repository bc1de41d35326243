"""Layer, instance, group and root-mean-square normalisation: c / sqrt(mean(c^2) + epsilon) of what is centred, scaled and shifted.

A look-up for each square, one for each deviation and two for each quotient: 3 n + 1 for n numbers that are normalised together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import MICROSOFT, Constant, Context, Encrypted, OnnxNode, operator
from cloakwork.models.onnx_import.elementwise import spread
from cloakwork.models.onnx_import.linear import combined, summed

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
    shape = (1, channels, *[1] * (x.ndim - 2))

    def of_channels(values: Reals) -> Reals:
        """Returns a value for each channel; ONNX Runtime takes one value for all of them too."""
        of_groups = values.size == groups and node.opset < 21
        return np.broadcast_to(np.repeat(values, channels // groups) if of_groups else values, channels).reshape(shape)

    return Encrypted(_scaled(context, result, of_channels(scale), of_channels(bias)))


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


# An embedding that is brought to unit length at the model's end is the client's to divide: x / |x| costs a look-up for each square, and more noise.
#
# There is one operator for it, LpNormalization; exporters write it in many ways, which become that one:
#
#     ReduceL2 - Clip - Expand - Div            PyTorch: F.normalize(x)
#     Mul(x, x) - ReduceSum - Add - Sqrt - Div  x / (x**2).sum(1, keepdim=True).sqrt()
#     ReduceSumSquare - Max - Sqrt - Reciprocal - Mul, Pow(.., -0.5) - Mul   Keras: l2_normalize(x)

_TINY: Final = 1e-6  # what a length is kept above so that nothing is divided by zero
_PASSED: Final = ("Cast", "Expand", "Identity")  # on the way to the divisor


def with_unit_lengths(
    nodes: Sequence[NodeProto], constants: Mapping[str, NDArray[Any]], outputs: Collection[str]
) -> list[NodeProto]:
    """Returns nodes, in order, with LpNormalization for what divides an output by its length.

    Args:
        constants: initialisers, by name.
        outputs: names of those that are wanted.
    """
    graph = _Graph(nodes, constants)
    replaced = {}
    readers = Counter(name for node in nodes for name in node.input if name)
    for node in nodes:
        if len(node.output) == 1 and node.output[0] in outputs and not readers[node.output[0]]:
            division = graph.divided(node)
            if division is not None:
                source, axis = division
                replaced[node.output[0]] = helper.make_node(
                    "LpNormalization", [source], list(node.output), name=node.name, axis=axis, p=2
                )
    if not replaced:
        return list(nodes)
    changed = [replaced.get(node.output[0], node) if node.output else node for node in nodes]
    return _without_unread(changed, nodes, {*outputs}, replaced)


def _without_unread(
    changed: list[NodeProto], before: Sequence[NodeProto], outputs: set[str], replaced: Mapping[str, NodeProto]
) -> list[NodeProto]:
    """Without the nodes that only the divisors were computed for."""
    lost = {name for node in before if node.output and node.output[0] in replaced for name in node.input}
    kept = []
    read = {*outputs}
    for node in reversed(changed):
        if any(name in lost for name in node.output) and not any(name in read for name in node.output):
            lost.update(node.input)
            continue
        read.update(node.input)
        kept.append(node)
    return kept[::-1]


class _Graph:
    def __init__(self, nodes: Sequence[NodeProto], constants: Mapping[str, NDArray[Any]]) -> None:
        self._made_by = {name: node for node in nodes for name in node.output}
        self._constants = constants

    def divided(self, node: NodeProto) -> tuple[str, int] | None:
        """Finds what the node divides by its own length, and along which axis."""
        if node.op_type == "Div":
            length = self._length(node.input[1])
            return length if length is not None and length[0] == node.input[0] else None
        if node.op_type == "Mul":
            for source, factor in (node.input, reversed(node.input)):
                length = self._inverse_length(factor)
                if length is not None and length[0] == source:
                    return length
        return None

    def _inverse_length(self, name: str) -> tuple[str, int] | None:
        node = self._behind(name)
        if node is None:
            return None
        if node.op_type == "Reciprocal":
            return self._length(node.input[0])
        if node.op_type == "Div" and self._number(node.input[0]) == 1:
            return self._length(node.input[1])
        if node.op_type == "Pow" and self._number(node.input[1]) == -0.5:
            return self._square(node.input[0])
        return None

    def _length(self, name: str) -> tuple[str, int] | None:
        node = self._behind(name)
        if node is None:
            return None
        if node.op_type == "ReduceL2":
            return self._reduced(node, node.input[0])
        root = node.op_type == "Sqrt" or (node.op_type == "Pow" and self._number(node.input[1]) == 0.5)
        return self._square(node.input[0]) if root else None

    def _square(self, name: str) -> tuple[str, int] | None:
        node = self._behind(name)
        if node is None:
            return None
        if node.op_type == "ReduceSumSquare":
            return self._reduced(node, node.input[0])
        squares = self._made_by.get(node.input[0]) if node.op_type == "ReduceSum" else None
        if squares is None or len(squares.input) != 2:
            return None
        same = squares.op_type == "Mul" and squares.input[0] == squares.input[1]
        power = squares.op_type == "Pow" and self._number(squares.input[1]) == 2
        return self._reduced(node, squares.input[0]) if same or power else None

    def _behind(self, name: str) -> NodeProto | None:
        """Returns the node that makes a divisor, behind what keeps it from zero and brings it to a shape."""
        while (node := self._made_by.get(name)) is not None:
            if node.op_type in _PASSED or self._keeps_from_zero(node):
                name = node.input[0]
            elif node.op_type in ("Add", "Max") and len(node.input) == 2 and self._is_tiny(node.input[0]):
                name = node.input[1]
            else:
                return node
        return None

    def _keeps_from_zero(self, node: NodeProto) -> bool:
        if node.op_type in ("Add", "Max"):
            return len(node.input) == 2 and self._is_tiny(node.input[1])
        has_top = len(node.input) > 2 and bool(node.input[2])
        return node.op_type == "Clip" and len(node.input) > 1 and self._is_tiny(node.input[1]) and not has_top

    def _is_tiny(self, name: str) -> bool:
        number = self._number(name)
        return number is not None and 0 <= number <= _TINY

    def _number(self, name: str) -> float | None:
        value = self._constant(name)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def _constant(self, name: str) -> NDArray[Any] | None:
        if name in self._constants:
            return np.asarray(self._constants[name])
        node = self._made_by.get(name)
        if node is None or node.op_type != "Constant":
            return None
        for attribute in node.attribute:
            if attribute.name == "value":
                return np.asarray(numpy_helper.to_array(attribute.t))
            if attribute.name in ("value_float", "value_int", "value_ints"):
                return np.asarray(helper.get_attribute_value(attribute))
        return None

    def _reduced(self, node: NodeProto, source: str) -> tuple[str, int] | None:
        """Returns the source and the axis, if it is one that stays with the extent 1."""
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        axes = attributes.get("axes")
        if axes is None and len(node.input) > 1 and node.input[1]:
            axes = self._constant(node.input[1])
        if axes is None or np.size(axes) != 1 or not attributes.get("keepdims", 1):
            return None
        return source, int(np.reshape(axes, -1)[0])
