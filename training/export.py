"""A trained `torch.nn.Sequential` as standard ONNX: int8 weights and their scales per channel before DequantizeLinear, ranges beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.training.layers import (
    NoisyMaxPool2d,
    NoisyReLU,
    QuantConv2d,
    QuantLinear,
    SeenByLookup,
    Tensor,
    _IntegerRows,
)
from cloakwork.training.pytorch import torch

OPSET: Final = 17
_INPUT_SLACK: Final = 1.005  # room for the noise of fresh encryptions
_FUNCTIONS: Final = {"ReLU": "Relu", "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Identity": "Identity"}


def to_onnx(model: torch.nn.Sequential, name: str, input_shape: Sequence[int]) -> onnx.ModelProto:
    """Exports a model to ONNX. Args: input_shape: without the batch.

    Raises:
        ValueError: a layer that it does not know.
    """
    graph = _Graph()
    value = "input"
    for key, layer in model.named_children():
        value = graph.add(layer, _label(key, layer), value)
    graph.nodes[-1].output[0] = "scores"
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", *_extents(model, input_shape)])]
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", *input_shape])]
    proto = helper.make_model(
        helper.make_graph(graph.nodes, name, inputs, outputs, graph.constants),
        producer_name="cloakwork",
        ir_version=8,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    onnx.checker.check_model(proto)
    return proto


def write(model: torch.nn.Sequential, path: Path, name: str, input_shape: Sequence[int]) -> None:
    path.write_bytes(to_onnx(model, name, input_shape).SerializeToString())


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, layer: torch.nn.Module, label: str, value: str) -> str:
        if isinstance(layer, QuantLinear):
            return self._node("Gemm", label, [value, *self._weights(layer, label)], transB=1)
        if isinstance(layer, QuantConv2d):
            stride = list(layer.stride)
            kernel = list(layer.kernel_size)
            return self._node("Conv", label, [value, *self._weights(layer, label)], strides=stride, kernel_shape=kernel)
        if isinstance(layer, NoisyMaxPool2d):
            return self._node("MaxPool", label, [value], kernel_shape=[2, 2], strides=[2, 2])
        if isinstance(layer, torch.nn.Flatten):
            return self._node("Flatten", label, [value])
        if isinstance(layer, torch.nn.Unflatten):
            shape = self._constant(f"{label}.shape", np.array([-1, *layer.unflattened_size], dtype=np.int64))
            return self._node("Reshape", label, [value, shape])
        operator = "Relu" if isinstance(layer, NoisyReLU) else _FUNCTIONS.get(type(layer).__name__)
        if operator is None:
            raise ValueError(
                f"export: expected layers of cloakwork.training or {', '.join(_FUNCTIONS)}, got {type(layer).__name__}"
            )
        return self._node(operator, label, [value])

    def _node(self, operator: str, label: str, inputs: list[str], **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [f"{label}.out"], name=label, **attributes))
        return f"{label}.out"

    def _weights(self, layer: _IntegerRows, label: str) -> list[str]:
        integers = self._constant(f"{label}.weight.integers", _array(layer.integers()).astype(np.int8))
        scales = self._constant(f"{label}.weight.scales", _array(layer.row_steps()).astype(np.float32))
        zeros = self._constant(f"{label}.weight.zeros", np.zeros(len(layer.weight), dtype=np.int8))
        weight = self._node("DequantizeLinear", f"{label}.weight", [integers, scales, zeros], axis=0)
        return [weight, self._constant(f"{label}.bias", _array(cast(Tensor, layer.bias)).astype(np.float32))]

    def _constant(self, name: str, array: NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def pools(model: torch.nn.Sequential) -> bool:
    """Whether the compiler makes other layers of it than the model has."""
    return any(isinstance(layer, NoisyMaxPool2d) for layer in model)


def ranges_json(model: torch.nn.Sequential, input_range: tuple[float, float] = (0.0, 1.0)) -> str:
    """Returns the learned ranges as `cloakwork.models.calibration.Calibration.to_json` writes ranges; for a model without pooling.

    Raises:
        ValueError: the model pools, so that the compiler's layers are others; calibrate with data.
    """
    if pools(model):
        raise ValueError("ranges: expected a model without max-pool; calibrate with data")
    seen = [layer.seen for layer in model if isinstance(layer, _IntegerRows)]
    rows = [{"low": _edge(part, -1), "high": _edge(part, 1)} for part in seen if part is not None]
    fields = {"cloakwork_calibration": 1, "input_range": list(input_range), "learned": True, "rows": rows}
    return json.dumps(fields, separators=(",", ":")) + "\n"


def layer_noise(model: torch.nn.Sequential) -> dict[str, float]:
    """Returns noise by the names of the exported layers: noise in per cent of the half torus at which the compiler gives back the integers as they
    are.

    The compiler leaves room for rounding, 1/12 for each weight that is not zero, before it chooses the step.
    """
    result = {}
    for key, layer in model.named_children():
        if not isinstance(layer, _IntegerRows) or layer.seen is None or layer.seen.noise is None:
            continue
        squares = used = 0.0
        if layer.largest_norm is not None:
            integers = layer.integers().flatten(1)
            squares, used = float((integers**2).sum(dim=1).max()), float((integers != 0).sum(dim=1).max())
        deviation = layer.seen.noise.deviation((squares + used / 12) ** 0.5, layer.seen.is_output)
        slack = _INPUT_SLACK if layer.largest_norm is None else 1.0
        result[_label(key, layer)] = 200 * slack * deviation
    return result


def trained_options(model: torch.nn.Sequential) -> dict[str, Any]:
    """Return options of `cloakwork.compile` that give the integers and ranges as trained; for models without pooling, and ranges of `ranges_json`."""
    precision = {name: float(np.ceil(percent * 1e4) / 1e4) for name, percent in layer_noise(model).items()}
    noises = [part.noise for part in model.modules() if isinstance(part, SeenByLookup)]
    sets = sorted({noise.parameter_set for noise in noises if noise is not None})
    options = {"precision": precision, "weight_bits": 2, "margin": 0.0, "sets": sets}
    structured = any(parameter_set(name).structured_secret for name in sets)
    return {**options, **({"structured": True} if structured else {})}


def _label(key: str, layer: torch.nn.Module) -> str:
    """Returns a layer's name in the file: its own in the module, or its type and position where it has none."""
    return f"{type(layer).__name__.lower()}_{key}" if key.isdigit() else key


def _edge(part: SeenByLookup, side: int) -> list[list[float]]:
    """Returns [1, rows]"""
    edge = (part.high + part.low) / 2 + side * part.half_range
    return [[float(f"{value:.6g}") for value in _array(edge).tolist()]]


def _extents(model: torch.nn.Sequential, input_shape: Sequence[int]) -> list[int]:
    device = next(model.parameters()).device
    with torch.no_grad():
        return list(model.eval()(torch.zeros(1, *input_shape, device=device)).shape[1:])


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
