"""Quantisers of training frameworks (Brevitas, QONNX): integers of any number of bits as real numbers, weights and activations alike.

    Quant(x) = (round(clip(x / scale + zero point, low, high)) - zero point) scale

Source: [PUB+22], as the operators IntQuant (formerly Quant) and BipolarQuant of QONNX have it, version 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import Constant, Context, Encrypted, Grid, OnnxNode, operator
from cloakwork.models.onnx_import.quantised import dequantised, quantised

# Quantisers beside what integers pass through unchanged, as ONNX Runtime moves them: `rounding="onnxruntime"`.
#
#     DequantizeLinear - MaxPool - Conv            is    DequantizeLinear - MaxPool - (QuantizeLinear - DequantizeLinear) - Conv
#     Conv - Reshape - QuantizeLinear              is    Conv - (QuantizeLinear - DequantizeLinear) - Reshape - QuantizeLinear
#
# The pairs in brackets change no number, and behind them (before them) an integer kernel fits. `quantize_static` writes such pairs itself,
# PyTorch's exporter does not. Flatten is none of these operators: a layer behind one computes in floats. Of a function that has no integer
# kernel it makes no difference, and exact programs want its results on the model's grid:
#
#     Tanh - MaxPool - Flatten - QuantizeLinear    is    Tanh - (QuantizeLinear - DequantizeLinear) - MaxPool - Flatten - QuantizeLinear

_FUNCTIONS: Final = (
    "Celu", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Mish", "Selu", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
)  # fmt: skip
_PASSED: Final = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")

Constants = Mapping[str, NDArray[Any]]
Edge = tuple[NodeProto, int]  # a node and the number of one of its inputs


def with_moved_quantisers(nodes: Sequence[NodeProto], constants: Constants, outputs: Iterable[str]) -> list[NodeProto]:
    """Returns nodes, in order, with these pairs."""
    graph = _Graph([NodeProto.FromString(node.SerializeToString()) for node in nodes], constants, frozenset(outputs))
    for node in [*graph.nodes]:
        if node.op_type == "DequantizeLinear" and graph.has_one_scale(node):
            graph.forward(node)
    for node in [*graph.nodes]:
        if node.op_type == "QuantizeLinear" and graph.has_one_scale(node):
            graph.backward(node)
    return graph.nodes


class _Graph:
    def __init__(self, nodes: list[NodeProto], constants: Constants, outputs: frozenset[str]) -> None:
        self.nodes, self._constants, self._outputs = nodes, constants, outputs
        self._producer = {name: node for node in nodes for name in node.output}
        self._readers: defaultdict[str, list[NodeProto]] = defaultdict(list)  # once for every input
        for node in nodes:
            for name in filter(None, node.input):
                self._readers[name].append(node)

    def has_one_scale(self, node: NodeProto) -> bool:
        parameters = [self._constants.get(name) for name in node.input[1:3] if name]
        return bool(parameters) and all(value is not None and value.size == 1 for value in parameters)

    def forward(self, dequantiser: NodeProto) -> None:
        """Moves pairs behind every operator that the dequantiser's integers pass through, on all ways that do not end in a quantiser.

        It may have other readers: ONNX Runtime gives each one a dequantiser of its own first.
        """
        waiting = [dequantiser.output[0]]
        while waiting:
            name = waiting.pop()
            for passed in list(self._readers[name]):
                if not self._passes(passed, name) or passed.output[0] in self._outputs:
                    continue
                result = passed.output[0]
                readers = [node for node in self._readers[result] if node.op_type != "QuantizeLinear"]
                if readers:
                    waiting.append(self._insert(passed, result, readers, dequantiser.input[1:3]))

    def backward(self, quantiser: NodeProto) -> None:
        """Moves pairs before every operator that leads to the quantiser and nowhere else."""
        name = quantiser.input[0]
        while self._only_reader(name) is not None:
            passed = self._producer.get(name)
            if passed is None or not self._passes(passed, passed.input[0] if passed.input else ""):
                self._behind_function(name, quantiser)
                return
            name = passed.input[0]
            source = self._producer.get(name)
            if source is None or source.op_type == "DequantizeLinear" or self._only_reader(name) is None:
                return
            self._insert(source, name, [passed], quantiser.input[1:3])

    def _behind_function(self, name: str, quantiser: NodeProto) -> None:
        """A pair behind a function without an integer kernel, from which a Flatten and more leads to the quantiser and nowhere else."""
        reader = quantiser
        while (passed := self._producer.get(name)) is not None and self._only_reader(name) is not None:
            if passed.op_type in _FUNCTIONS:
                if reader is not quantiser:
                    self._insert(passed, name, [reader], quantiser.input[1:3])
                return
            if passed.op_type != "Flatten" and not self._passes(passed, passed.input[0] if passed.input else ""):
                return
            name, reader = passed.input[0], passed

    def _passes(self, node: NodeProto, name: str) -> bool:
        """Whether integers of that name pass through unchanged, to one result."""
        standard = node.domain in ("", "ai.onnx") and node.op_type in _PASSED
        return standard and len(node.output) == 1 and bool(name) and list(node.input).index(name) == 0

    def _only_reader(self, name: str) -> NodeProto | None:
        readers = self._readers[name]
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _insert(self, source: NodeProto, name: str, readers: Sequence[NodeProto], scale: Sequence[str]) -> str:
        """Returns a pair between a result of `source` and those readers, who see its name: that is returned."""
        integers, values = self._free(f"{name}/integers"), self._free(f"{name}/values")
        pair = [
            helper.make_node("QuantizeLinear", [name, *scale], [integers], integers),
            helper.make_node("DequantizeLinear", [integers, *scale], [values], values),
        ]
        place = next(i for i, node in enumerate(self.nodes) if node is source) + 1
        self.nodes[place:place] = pair
        self._producer |= {integers: pair[0], values: pair[1]}
        for reader in readers:
            for i, read in enumerate(reader.input):
                if read == name:
                    reader.input[i] = values
            self._readers[values].append(reader)
        moved = {id(reader) for reader in readers}
        self._readers[name] = [node for node in self._readers[name] if id(node) not in moved] + [pair[0]]
        self._readers[integers].append(pair[1])
        return values

    def _free(self, name: str) -> str:
        while name in self._producer or name in self._constants or name in self._outputs:
            name += "_"
        return name


_DOMAINS: Final = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
_MOST_BITS: Final = 32
_ROUNDINGS: Final[dict[str, Callable[[NDArray[Any]], NDArray[Any]]]] = {
    "ROUND": np.rint,
    "FLOOR": np.floor,
    "CEIL": np.ceil,
}


def _names(*operators: str) -> tuple[str, ...]:
    return tuple(f"{domain}:{name}" for domain in _DOMAINS for name in operators)


_QUANT, _BIPOLAR = _names("Quant", "IntQuant"), _names("BipolarQuant")
QUANTISERS: Final = frozenset((*_QUANT, *_BIPOLAR))


@operator(
    *_QUANT,
    restrictions=f"scale, zero point and bits (one number, 1 to {_MOST_BITS}) constant; rounding_mode ROUND, FLOOR or CEIL; free at both ends of the "
    "model, where the client rounds",
)
def quant(context: Context, node: OnnxNode) -> Encrypted:
    """Adds one look-up, fused with the function before."""
    x = node.encrypted(0)
    quantiser = _Quantiser.of(node, x.shape)
    if quantiser.is_bipolar:
        return Encrypted(_signs(context, x, quantiser.scale, quantiser.zero))
    return Encrypted(quantiser.on_wires(context, x))


@operator(*_BIPOLAR, restrictions="scale constant")
def bipolar_quant(context: Context, node: OnnxNode) -> Encrypted:
    """Returns the scale, negated where x is negative: one look-up."""
    x = node.encrypted(0)
    scale = _scale(node, x.shape)
    return Encrypted(_signs(context, x, scale, np.zeros_like(scale)))


def of_constants(node: OnnxNode) -> list[Constant]:
    """Returns the same for weights, in their precision. UnsupportedNode: they are no floats, in which a scale would be lost."""
    x = node.constant(0)
    if not np.issubdtype(x.dtype, np.floating):
        raise UnsupportedNode(f"expected floats as input 0, got {x.dtype}; export the weights as float32")
    if node.operator == "BipolarQuant":
        scale = _scale(node, x.shape)
        return [np.where(x >= 0, scale, -scale).astype(x.dtype)]
    quantiser = _Quantiser.of(node, x.shape)
    scale, zero = quantiser.scale.astype(x.dtype), quantiser.zero.astype(x.dtype)
    y = x / scale + zero
    y = np.where(y >= 0, 1, -1) if quantiser.is_bipolar else quantiser.rounding(np.clip(y, *quantiser.ends))
    return [(y.astype(x.dtype) - zero) * scale]


@dataclass(frozen=True, eq=False)
class _Quantiser:
    """A quantiser. Args: scale, zero: broadcast with x."""

    scale: Constant
    zero: Constant
    bits: int
    signed: bool
    narrow: bool
    rounding: Callable[[NDArray[Any]], NDArray[Any]]

    @classmethod
    def of(cls, node: OnnxNode, shape: tuple[int, ...]) -> _Quantiser:
        scale, zero = _scale(node, shape), _parameter(node, 2, "zero point", shape)
        bits = np.asarray(node.constant(3), dtype=np.float64)
        if bits.size != 1 or not (1 <= bits.item() <= _MOST_BITS) or bits.item() != int(bits.item()):
            raise UnsupportedNode(
                f"has {_shown(bits)} bits; expected one whole number from 1 to {_MOST_BITS}: export with one bit width for the tensor"
            )
        mode = node.attributes.get("rounding_mode", b"ROUND")
        name = (mode.decode(errors="replace") if isinstance(mode, bytes) else str(mode)).upper()
        if name not in _ROUNDINGS:
            raise UnsupportedNode(f"rounds by '{name}'; expected one of {', '.join(_ROUNDINGS)}")
        signed, narrow = (bool(node.attributes.get(key, value)) for key, value in (("signed", 1), ("narrow", 0)))
        return cls(scale, zero, int(bits.item()), signed, narrow, _ROUNDINGS[name])

    @property
    def is_bipolar(self) -> bool:
        """One bit with a sign is no integer of two's complement: 1 and -1."""
        return self.bits == 1 and self.signed

    @property
    def ends(self) -> tuple[float, float]:
        """(-128, 127) of 8 bits, (-127, 127) when narrow; unsigned (0, 255) and (0, 254)."""
        if self.signed:
            most = 2.0 ** (self.bits - 1)
            return self.narrow - most, most - 1
        return 0.0, 2.0**self.bits - 1 - self.narrow

    def on_wires(self, context: Context, x: Indices) -> Indices:
        low, high = self.ends
        if self.rounding is np.rint:
            # round(x / scale + zero) is round(x / scale) + zero but for halves beside odd zero points, and ones that are no integers.
            if not np.array_equal(self.zero / 2, np.rint(self.zero / 2)):
                x = context.lookup(x, "Affine", np.ones_like(self.zero), self.zero * self.scale)
                integers = quantised(context, x, self.scale, np.zeros_like(self.zero), self.ends)
            else:
                integers = quantised(context, x, self.scale, self.zero, self.ends)
        else:
            integers = context.lookup(x, "Affine", 1 / self.scale, self.zero)
            integers = context.lookup(integers, "Floor" if self.rounding is np.floor else "Ceil")
            integers = context.mark(context.lookup(integers, "Clip", low, high), Grid(1.0, low, high))
        return dequantised(context, integers, self.scale, self.zero)


def _signs(context: Context, x: Indices, scale: Constant, zero: Constant) -> Indices:
    """Returns (1 - zero) scale where x / scale + zero >= 0, else (-1 - zero) scale."""
    not_negative = context.lookup(x, "GreaterOrEqual", -zero * scale)
    return context.lookup(not_negative, "Affine", 2 * scale, -(1 + zero) * scale)


def _scale(node: OnnxNode, shape: tuple[int, ...]) -> Constant:
    scale = _parameter(node, 1, "scale", shape)
    if not (scale > 0).all():
        raise UnsupportedNode("has a scale that is not positive; quantise the model again")
    return scale


def _parameter(node: OnnxNode, index: int, what: str, shape: tuple[int, ...]) -> Constant:
    """Returns the parameter of one number, or as many dimensions as x. UnsupportedNode: it does not fit x, or is not finite."""
    parameter = np.asarray(node.constant(index), dtype=np.float64)
    if not np.isfinite(parameter).all():
        raise UnsupportedNode(f"has a {what} that is not finite; quantise the model again")
    if parameter.size == 1:
        return parameter.reshape(())
    try:
        fits = np.broadcast_shapes(parameter.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise UnsupportedNode(
            f"has a {what} of shape {list(parameter.shape)}, which does not broadcast to {list(shape)}"
        )
    return parameter


def _shown(bits: NDArray[np.float64]) -> str:
    return f"{bits.item():g}" if bits.size == 1 else f"{bits.size} numbers of"
