"""Networks trained in seconds, quantised as ONNX Runtime's own tool writes them, and every integer that ONNX Runtime's kernels answer.

float model -> quantise (QDQ or QOperator, per tensor or per channel, activations and weights of 8 or 4 bits)
            -> kernels (what ONNX Runtime's optimiser makes of it: QLinearConv, QGemm, QLinearMatMul, ..)
            -> integers (the value of every integer tensor)

ONNX Runtime's sums of products of uint8 and int8 saturate in pairs at 16 bits on x86 processors without VNNI. There its kernels run on
the same integers plus 128, as uint8 (`moved`): sums of products of uint8 are right everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper
from onnx_models import model
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from torch import nn

from cloakwork.models.graph.ir import Graph
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.original.onnx_file import moved, saturates
from cloakwork.models.runtime.interpreter import interpret

IMAGE: Final = (1, 28, 28)
_QUANTISED: Final = ("int8", "uint8", "int4", "uint4", "int16", "uint16")
_ALL_KERNELS: Final = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
_NO_KERNELS: Final = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


# --- networks ----------------------------------------------------------------------------------------------------------------------


def trained_dense(
    x: np.ndarray, labels: np.ndarray, hidden: int | Sequence[int] = 64, epochs: int = 4
) -> onnx.ModelProto:
    """Gemm - ReLU - .. - Gemm on x [samples, numbers] with 10 classes. Args: hidden: widths of one or several layers."""
    torch.manual_seed(15)
    sizes = [x.shape[1], *([hidden] if isinstance(hidden, int) else hidden), 10]
    dense = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)]
    parts = [part for layer in dense for part in (layer, nn.ReLU())]
    _train(nn.Sequential(*parts[:-1]), x, labels, epochs)
    last, read = len(dense) - 1, "x"
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, torch.Tensor] = {}
    for i, layer in enumerate(dense):
        constants |= {f"w{i}": layer.weight, f"b{i}": layer.bias}
        made = "y" if i == last else f"h{i}"
        nodes.append(helper.make_node("Gemm", [read, f"w{i}", f"b{i}"], [made], transB=1, name=f"dense{i}"))
        if i < last:
            read = f"r{i}"
            nodes.append(helper.make_node("Relu", [made], [read], name=f"relu{i}"))
    return model(nodes, [x.shape[1]], _arrays(constants))


def trained_convolutional(x: np.ndarray, labels: np.ndarray, epochs: int = 4) -> onnx.ModelProto:
    """Conv 5x5 by steps of 2 - ReLU - max-pool - Conv 3x3 - ReLU - Gemm on images x [samples, 1, 28, 28] with 10 classes."""
    torch.manual_seed(15)
    network = nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(192, 10)
    )  # fmt: skip
    _train(network, x, labels, epochs)
    layers = (network[0], network[3], network[6])
    constants = {f"{kind}{i}": value for i, layer in enumerate(layers) for kind, value in (("w", layer.weight), ("b", layer.bias))}  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], strides=[2, 2], name="conv0"),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu0"),
        helper.make_node("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2], name="pool0"),
        helper.make_node("Conv", ["p0", "w1", "b1"], ["c1"], name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Flatten", ["r1"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1, name="dense2"),
    ]
    return model(nodes, IMAGE, _arrays(constants))


def trained_strided(
    x: np.ndarray, labels: np.ndarray, channels: tuple[int, int] = (4, 8), epochs: int = 4
) -> onnx.ModelProto:
    """Conv 5x5 by steps of 2 - ReLU - Conv 3x3 by steps of 2 - ReLU - Gemm on images x [samples, 1, 28, 28] with 10 classes."""
    torch.manual_seed(15)
    first, second = channels
    network = nn.Sequential(
        nn.Conv2d(1, first, 5, stride=2), nn.ReLU(), nn.Conv2d(first, second, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(25 * second, 10)
    )  # fmt: skip
    _train(network, x, labels, epochs)
    layers = (network[0], network[2], network[5])
    constants = {f"{kind}{i}": value for i, layer in enumerate(layers) for kind, value in (("w", layer.weight), ("b", layer.bias))}  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], strides=[2, 2], name="conv0"),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu0"),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], strides=[2, 2], name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Flatten", ["r1"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1, name="dense2"),
    ]
    return model(nodes, IMAGE, _arrays(constants))


def _train(network: nn.Module, x: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    inputs, targets = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(labels)
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(64):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _arrays(constants: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy() for name, value in constants.items()}


# --- quantisers --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """How ONNX Runtime's tool is asked to quantise."""

    operators: bool = False  # QOperator; otherwise QDQ
    per_channel: bool = False
    activations: QuantType = QuantType.QUInt8
    weights: QuantType = QuantType.QInt8
    symmetric: bool = False

    def __str__(self) -> str:
        form, spread = "QOperator" if self.operators else "QDQ", "channel" if self.per_channel else "tensor"
        return f"{form}-{spread}-{self.activations}-{self.weights}{'-symmetric' if self.symmetric else ''}"


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, x: np.ndarray) -> None:
        self._rest = iter(x)

    def get_next(self) -> dict[str, np.ndarray] | None:
        sample = next(self._rest, None)
        return None if sample is None else {"x": sample[None].astype(np.float32)}


def quantise(proto: onnx.ModelProto, x: np.ndarray, form: Format) -> onnx.ModelProto:
    """The tool's model. Args: x: calibration samples."""
    with TemporaryDirectory() as folder, _quiet():
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantised.onnx"
        onnx.save(proto, source)
        quantize_static(
            source,
            target,
            _Samples(x),
            quant_format=QuantFormat.QOperator if form.operators else QuantFormat.QDQ,
            per_channel=form.per_channel,
            activation_type=form.activations,
            weight_type=form.weights,
            extra_options={"ActivationSymmetric": form.symmetric},
        )
        return onnx.load(target)


@contextmanager
def _quiet() -> Iterator[None]:
    """The tool recommends pre-processing."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


# --- ONNX Runtime ------------------------------------------------------------------------------------------------------------------


def kernels(proto: onnx.ModelProto) -> onnx.ModelProto:
    """What ONNX Runtime's optimiser makes of a model: integer operators in place of QDQ groups."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options = _options(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)
        options.optimized_model_filepath = str(path)
        # int8 stays int8: by itself ONNX Runtime moves it to uint8 on x86, the same integers plus 128 by other names
        options.add_session_config_entry("session.qdqisint8allowed", "1")
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(path)


def integers(proto: onnx.ModelProto, x: np.ndarray, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The value of every integer tensor of a model, or of those named, and of its outputs; its nodes run as they are."""
    names = integer_tensors(proto) if names is None else names
    outputs = [output.name for output in proto.graph.output]
    wanted = [*names, *(name for name in outputs if name not in names)]
    runs = with_outputs(moved(proto) if saturates() else proto, wanted)
    session = onnxruntime.InferenceSession(runs.SerializeToString(), _options(_NO_KERNELS), providers=["CPUExecutionProvider"])  # fmt: skip
    parts = [session.run(wanted, {"x": part.astype(np.float32)}) for part in np.array_split(x, max(1, len(x) // 1000))]
    return {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(wanted)}


def answers(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The first output, optimised as ONNX Runtime does for itself."""
    runs, level = (moved(kernels(proto)), _NO_KERNELS) if saturates() else (proto, _ALL_KERNELS)
    session = onnxruntime.InferenceSession(runs.SerializeToString(), _options(level), providers=["CPUExecutionProvider"])  # fmt: skip
    parts = np.array_split(x, max(1, len(x) // 1000))
    return np.concatenate([session.run(None, {"x": part.astype(np.float32)})[0] for part in parts])


def output_scale(proto: onnx.ModelProto) -> float:
    """Of the output's integers, as the tool names it."""
    return next(float(onnx.numpy_helper.to_array(each)) for each in proto.graph.initializer if each.name == "y_scale")


def integer_tensors(proto: onnx.ModelProto) -> list[str]:
    """Names of results, not constants, that are integers of few bits: what QuantizeLinear and QLinear operators answer, and what moves them."""
    found = onnx.shape_inference.infer_shapes(proto).graph
    constants = {constant.name for constant in proto.graph.initializer}
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*found.value_info, *found.output)}
    known = {name for name, kind in kinds.items() if kind and str(helper.tensor_dtype_to_np_dtype(kind)) in _QUANTISED}
    made = [name for node in proto.graph.node for name in node.output]
    by_operator = {node.output[0] for node in proto.graph.node if node.op_type in _REQUANTISING and _has_scale(node)}
    return [name for name in made if (name in known or name in by_operator) and name not in constants]


_REQUANTISING: Final = {
    "QuantizeLinear": 2, "QLinearConv": 7, "QLinearMatMul": 7, "QGemm": 8, "QLinearAdd": 7, "QLinearMul": 7, "QLinearSigmoid": 4,
    "QLinearLeakyRelu": 4, "QLinearAveragePool": 4, "QLinearGlobalAveragePool": 4, "QLinearConcat": 1,
}  # fmt: skip


def _has_scale(node: onnx.NodeProto) -> bool:
    return len(node.input) >= _REQUANTISING[node.op_type] and bool(node.input[_REQUANTISING[node.op_type] - 1])


def with_outputs(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with these tensors as its outputs."""
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    del changed.graph.output[:]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return changed


def _options(level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options


# --- ours --------------------------------------------------------------------------------------------------------------------------


def imported(proto: onnx.ModelProto, name: str, **options: Any) -> Graph:
    """The graph of one tensor of a model."""
    return import_onnx(with_outputs(proto, [name]), **options)


def evaluated(proto: onnx.ModelProto, x: np.ndarray, name: str, **options: Any) -> np.ndarray:
    """One tensor of a model, by our importer and interpreter."""
    return interpret(imported(proto, name, **options), x)
