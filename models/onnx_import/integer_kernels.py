"""Integer networks as ONNX Runtime's kernels compute them: `rounding="onnxruntime"`.

A kernel sums products of integers in int32 and multiplies the sum once, in float32:

    y = saturate(round_half_even(float32(sum) * M) + zero point),  M = (alpha x_scale) w_scale / y_scale, each operation in float32

QDQ models say the same in real numbers. ONNX Runtime runs an integer kernel in place of each group of nodes

    DequantizeLinear (x, weights, bias) - Conv, Gemm or MatMul [- Relu] - QuantizeLinear
    DequantizeLinear (all inputs) - Add, Mul, AveragePool, GlobalAveragePool or Concat [- Relu] - QuantizeLinear (integer_arithmetic.py)

and so does `with_kernels`, on the conditions of ONNX Runtime's QDQ selectors; the product is that of its MlasRequantizeOutput.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import Constant, Context

_Constants = Mapping[str, NDArray[Any]]
_MADE_UP: Final = (
    ValueError,
    IndexError,
    TypeError,
    ArithmeticError,
)  # from attributes and constants that are not as ONNX has them
_EIGHT_BITS: Final = ("int8", "uint8")
_DEQUANTISER, _QUANTISER = "DequantizeLinear", "QuantizeLinear"


def requantised(
    context: Context,
    accumulator: Indices,
    scales: tuple[Constant, Constant, Constant],
    alpha: float,
    ends: tuple[float, float, float],
) -> Indices:
    """Returns wires of a kernel's result. Args: scales: of x, weights and result, to broadcast with `accumulator`; ends: zero point, least, most."""
    x, weights, result = (np.asarray(scale, dtype=np.float32) for scale in scales)
    with np.errstate(all="ignore"):  # what is not finite is refused below
        multiplier = np.float32(alpha) * x * weights / result
        unit: Reals = alpha * x.astype(np.float64) * weights.astype(np.float64)
    if not ((unit > 0).all() and (result > 0).all()):
        raise UnsupportedNode("has a scale, or alpha, that is not positive; quantise the model again")
    return context.lookup(accumulator, "Requantize", unit, multiplier, *ends)


def with_kernels(nodes: Sequence[NodeProto], constants: _Constants, outputs: Iterable[str]) -> list[NodeProto]:
    """Returns nodes, in order, with an integer operator in place of each group, and without those that nothing reads any more."""
    groups = _Groups(nodes, constants, frozenset(outputs))
    replaced = [groups.kernel_of(node) or node for node in nodes]
    return _without_unread(nodes, replaced, groups.outputs)


class _Groups:
    def __init__(self, nodes: Sequence[NodeProto], constants: _Constants, outputs: frozenset[str]) -> None:
        self.constants, self.outputs = constants, outputs
        self.producer = {name: node for node in nodes for name in node.output}
        self.readers = Counter(name for node in nodes for name in node.input)

    def kernel_of(self, node: NodeProto) -> NodeProto | None:
        """Returns the integer operator that ends in this quantiser; None where it ends no group."""
        try:
            return self._kernel(node)
        except _MADE_UP:
            return None  # no valid ONNX: the importer says what is wrong with which node

    def _kernel(self, node: NodeProto) -> NodeProto | None:
        result = self._quantisation(node, _QUANTISER)
        if result is None or result[1].dtype.name not in _EIGHT_BITS:
            return None
        layer = self._alone(node.input[0])
        if layer is not None and layer.op_type == "Relu" and int(result[1]) == np.iinfo(result[1].dtype).min:
            layer = self._alone(layer.input[0])  # saturation is the ReLU
        if layer is None or layer.domain not in ("", "ai.onnx") or layer.op_type not in _KERNELS:
            return None
        fits = self._has_kernel if layer.op_type in _PRODUCTS else self._has_arithmetic
        if not fits(layer, result[1].dtype):
            return None
        return _KERNELS[layer.op_type](self, layer, node)

    def dequantiser(self, layer: NodeProto, index: int) -> NodeProto | None:
        """Finds where the input of a layer comes from."""
        producer = self.producer.get(layer.input[index]) if index < len(layer.input) else None
        return producer if producer is not None and producer.op_type == _DEQUANTISER else None

    def three(self, layer: NodeProto, index: int) -> list[str]:
        """Names values, scale and zero point of an input."""
        dequantiser = self.dequantiser(layer, index)
        assert dequantiser is not None
        return list(dequantiser.input[:3])

    def _alone(self, name: str) -> NodeProto | None:
        """Returns the node that makes what one node reads and nobody else sees."""
        seen = self.readers[name] != 1 or name in self.outputs
        return None if seen else self.producer.get(name)

    def _quantisation(self, node: NodeProto | None, operator: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Returns scale and zero point that are constant and not in blocks."""
        if node is None or node.op_type != operator or len(node.input) < 3 or attribute(node, "block_size", 0):
            return None
        scale, zero = (self.constants.get(name) for name in node.input[1:3])
        if scale is None or zero is None or scale.dtype != np.float32 or (operator == _QUANTISER and scale.size != 1):
            return None
        return scale, zero.reshape(()) if zero.size == 1 else zero

    def _has_arithmetic(self, layer: NodeProto, kind: np.dtype[Any]) -> bool:
        """Whether all inputs have 8 bits of one kind and one scale each; not all of them constant."""
        quantisations = [
            self._quantisation(self.dequantiser(layer, index), _DEQUANTISER) for index in range(len(layer.input))
        ]
        if not all(each is not None and each[0].size == 1 and each[1].dtype == kind for each in quantisations):
            return False
        if any(extent != 1 for extent in attribute(layer, "dilations", [])):
            return False
        return any(self.three(layer, index)[0] not in self.constants for index in range(len(quantisations)))

    def _has_kernel(self, layer: NodeProto, kind: np.dtype[Any]) -> bool:
        """Activations of 8 bits of one kind, weights of 8 bits that are constant, a bias of int32."""
        x, weights = (self._quantisation(self.dequantiser(layer, index), _DEQUANTISER) for index in (0, 1))
        if x is None or weights is None or x[0].size != 1 or x[1].dtype != kind:
            return False
        if self.three(layer, 0)[0] in self.constants or self.three(layer, 1)[0] not in self.constants:
            return False
        integers = self.constants[self.three(layer, 1)[0]]
        if integers.dtype.name not in _EIGHT_BITS or not self._along_rows(layer, integers, weights[0]):
            return False
        return len(layer.input) < 3 or not layer.input[2] or self._has_bias(layer, x[0], weights[0])

    def _along_rows(self, layer: NodeProto, weights: NDArray[Any], scale: NDArray[Any]) -> bool:
        """Whether scales are one for all, or one for each row of the result."""
        if scale.size == 1:
            return True
        given = self.dequantiser(layer, 1)
        assert given is not None
        first = layer.op_type == "Conv" or (layer.op_type == "Gemm" and bool(attribute(layer, "transB", 0)))
        return int(attribute(given, "axis", 1)) % weights.ndim == (0 if first else weights.ndim - 1)

    def _has_bias(self, layer: NodeProto, x: NDArray[Any], weights: NDArray[Any]) -> bool:
        """Whether the bias is int32 in units of the product of both scales."""
        given = self.dequantiser(layer, 2)
        if given is None or any(attribute(layer, name, 1.0) != 1.0 for name in ("alpha", "beta")):
            return False
        integers, scale = (self.constants.get(name) for name in given.input[:2])
        if integers is None or scale is None or integers.dtype != np.int32:
            return False
        zero = self.constants.get(given.input[2]) if len(given.input) > 2 and given.input[2] else None
        return (zero is None or not zero.any()) and np.allclose(scale, x * weights, rtol=1e-5, atol=0.0)


def _conv(groups: _Groups, layer: NodeProto, quantiser: NodeProto) -> NodeProto:
    inputs = [*groups.three(layer, 0), *groups.three(layer, 1), *quantiser.input[1:3], *_bias(groups, layer)]
    return _made("QLinearConv", "", inputs, layer, quantiser)


def _gemm(groups: _Groups, layer: NodeProto, quantiser: NodeProto) -> NodeProto:
    bias = _bias(groups, layer) or [""]
    inputs = [*groups.three(layer, 0), *groups.three(layer, 1), *bias, *quantiser.input[1:3]]
    return _made("QGemm", "com.microsoft", inputs, layer, quantiser)


def _matmul(groups: _Groups, layer: NodeProto, quantiser: NodeProto) -> NodeProto:
    inputs = [*groups.three(layer, 0), *groups.three(layer, 1), *quantiser.input[1:3]]
    return _made("QLinearMatMul", "", inputs, layer, quantiser)


def _arithmetic(groups: _Groups, layer: NodeProto, quantiser: NodeProto) -> NodeProto:
    inputs = [name for index in range(len(layer.input)) for name in groups.three(layer, index)]
    result = list(quantiser.input[1:3])
    given = [*result, *inputs] if layer.op_type == "Concat" else [*inputs, *result]
    return _made("QLinear" + layer.op_type, "com.microsoft", given, layer, quantiser)


_PRODUCTS: Final = {"Conv": _conv, "Gemm": _gemm, "MatMul": _matmul}
_KERNELS: Final = _PRODUCTS | dict.fromkeys(("Add", "AveragePool", "Concat", "GlobalAveragePool", "Mul"), _arithmetic)


def _bias(groups: _Groups, layer: NodeProto) -> list[str]:
    return groups.three(layer, 2)[:1] if len(layer.input) > 2 and layer.input[2] else []


def _made(operator: str, domain: str, inputs: Sequence[str], layer: NodeProto, quantiser: NodeProto) -> NodeProto:
    node = helper.make_node(operator, inputs, quantiser.output, layer.name, domain=domain)
    node.attribute.extend(attribute for attribute in layer.attribute if attribute.name != "beta")
    return node


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """Reads an attribute of a node that is not imported yet."""
    proto = next((attribute for attribute in node.attribute if attribute.name == name), None)
    return default if proto is None else helper.get_attribute_value(proto)


def _without_unread(
    before: Sequence[NodeProto], nodes: Sequence[NodeProto], outputs: frozenset[str]
) -> list[NodeProto]:
    """Leaves out what only the groups read: what nothing read before stays."""
    read_before = {name for node in before for name in node.input}
    kept: list[NodeProto] = []
    read = set(outputs)
    for node in reversed(nodes):
        was_read = any(name in read_before for name in node.output)
        if not was_read or read.intersection(node.output):
            kept.append(node)
            read.update(node.input)
    return kept[::-1]


# Biases of floats as ONNX Runtime's integer kernels have them: `rounding="onnxruntime"`.
#
# PyTorch's exporter quantises weights and activations, and leaves biases as they are. Before it looks for integer kernels, ONNX Runtime
# (seen with 1.31) writes such a bias as an integer in units of the products:
#
#     bias -> DequantizeLinear(int32(round_half_even(bias / s)), s),  s = x_scale w_scale, each operation in float32
#
# where the layer reads an input with one scale and ends, perhaps behind ReLU or Clip, in a quantiser. With or without a kernel, that bias is
# what it adds.

_LAYERS: Final = ("Conv", "ConvTranspose", "Gemm")
_BETWEEN: Final = ("Relu", "Clip")  # a layer and its quantiser
_MOST: Final = 2**31

Constants = Mapping[str, NDArray[Any]]


def with_integer_biases(
    nodes: Sequence[NodeProto], constants: Constants
) -> tuple[list[NodeProto], dict[str, NDArray[Any]]]:
    """Returns nodes, in order, with a dequantiser before each such layer, and the constants that these read."""
    producer = {name: node for node in nodes for name in node.output}
    readers: defaultdict[str, list[NodeProto]] = defaultdict(list)
    for node in nodes:
        for name in set(node.input):
            readers[name].append(node)
    changed: list[NodeProto] = []
    biases: dict[str, NDArray[Any]] = {}
    for node in nodes:
        bias = constants.get(node.input[2]) if len(node.input) > 2 else None
        units = _units(node, producer, constants) if bias is not None and _ends_in_quantiser(node, readers) else None
        integers = None if bias is None or units is None else _integers(bias, units)
        if units is None or integers is None:
            changed.append(node)
            continue
        stem = f"{node.output[0]}/bias"
        while any(f"{stem}{end}" in producer or f"{stem}{end}" in constants for end in ("", "/integers", "/scale")):
            stem += "_"
        biases |= {f"{stem}/integers": integers, f"{stem}/scale": units}
        changed.append(helper.make_node("DequantizeLinear", [*biases][-2:], [stem], stem, axis=0))
        layer = NodeProto.FromString(node.SerializeToString())
        layer.input[2] = stem
        changed.append(layer)
    return changed, biases


def _ends_in_quantiser(node: NodeProto, readers: Mapping[str, Sequence[NodeProto]]) -> bool:
    """Through nothing but ReLU and Clip, each read by one node."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in _LAYERS or len(node.output) != 1:
        return False
    while len(node.output) == 1 and len(readers.get(node.output[0], ())) == 1:
        node = readers[node.output[0]][0]
        if node.op_type == "QuantizeLinear":
            return True
        if node.op_type not in _BETWEEN:
            return False
    return False


def _units(node: NodeProto, producer: Mapping[str, NodeProto], constants: Constants) -> NDArray[Any] | None:
    """Returns the units of the sums of a layer, in float32: one, or one for each row of the result; None where the layer has no integers."""
    scales = []
    for dequantiser in (producer.get(name) for name in node.input[:2]):
        if dequantiser is None or dequantiser.op_type != "DequantizeLinear" or len(dequantiser.input) < 2:
            return None
        scales.append((dequantiser, constants.get(dequantiser.input[1])))
    (_, x), (given, weights) = scales
    if x is None or weights is None or x.size != 1 or x.dtype != np.float32 or weights.dtype != np.float32:
        return None
    if weights.size > 1 and (attribute(given, "block_size", 0) or not _by_rows(node, given, weights, constants)):
        return None
    return np.asarray(x.reshape(()) * weights, dtype=np.float32)


def _by_rows(node: NodeProto, given: NodeProto, scale: NDArray[Any], constants: Constants) -> bool:
    """Whether weights have a scale for each number that the bias has."""
    bias, weights = constants.get(node.input[2]) if len(node.input) > 2 else None, constants.get(given.input[0])
    if bias is None or weights is None or scale.ndim != 1 or scale.size != bias.size:
        return False
    rows = 0 if node.op_type != "Gemm" or attribute(node, "transB", 0) else 1
    return bool(int(attribute(given, "axis", 1)) % weights.ndim == rows)


def _integers(bias: NDArray[Any], units: NDArray[Any]) -> NDArray[np.int32] | None:
    """None: what is no vector of floats, or does not fit."""
    if bias.dtype != np.float32 or bias.ndim != 1:
        return None
    with np.errstate(all="ignore"):
        integers = np.rint(bias / units)
    fits = np.isfinite(integers).all() and (np.abs(integers) < _MOST).all()
    return integers.astype(np.int32) if fits else None
