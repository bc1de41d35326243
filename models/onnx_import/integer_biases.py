"""Biases of floats as ONNX Runtime's integer kernels have them: `rounding="onnxruntime"`.

PyTorch's exporter quantises weights and activations, and leaves biases as they are. Before it looks for integer kernels, ONNX Runtime
(seen with 1.31) writes such a bias as an integer in units of the products:

    bias -> DequantizeLinear(int32(round_half_even(bias / s)), s),  s = x_scale w_scale, each operation in float32

where the layer reads an input with one scale and ends, perhaps behind ReLU or Clip, in a quantiser. With or without a kernel, that bias is
what it adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from cloakwork.models.onnx_import.integer_kernels import attribute

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
