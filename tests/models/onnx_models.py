"""Small ONNX models made with onnx.helper, and their values by ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


def model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = OPSET,
    output_type: int = TensorProto.FLOAT,
    output: str = "y",
) -> onnx.ModelProto:
    """A model from `x` [batch, *shape] to `y`."""
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info(output, output_type, None)],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def runtime(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """ONNX Runtime, sample by sample, as the batch counts as 1 at import."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = [session.run(None, {"x": sample[None].astype(np.float32)})[0] for sample in x]
    return np.concatenate(rows)


def single(
    operator: str, shape: Sequence[int], constants: dict[str, Any] | None = None, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node; `constants` are its further inputs in order."""
    opset = attributes.pop("opset", OPSET)
    inputs = attributes.pop("inputs", ["x", *(constants or {})])
    output_type = attributes.pop("output_type", TensorProto.FLOAT)
    node = helper.make_node(operator, inputs, ["y"], name=f"the_{operator}", **attributes)
    return model([node], shape, constants, opset=opset, output_type=output_type)


def mlp(rng: np.random.Generator, sizes: Sequence[int], activation: str = "Relu") -> onnx.ModelProto:
    """Gemm and activation layers with random weights."""
    nodes, constants, name = [], {}, "x"
    for i, (width, rows) in enumerate(itertools.pairwise(sizes)):
        constants[f"w{i}"] = (rng.standard_normal((rows, width)) / np.sqrt(width)).astype(np.float32)
        constants[f"b{i}"] = (0.1 * rng.standard_normal(rows)).astype(np.float32)
        last = i == len(sizes) - 2
        nodes.append(
            helper.make_node("Gemm", [name, f"w{i}", f"b{i}"], ["y" if last else f"z{i}"], name=f"layer{i}", transB=1)
        )
        if not last:
            nodes.append(helper.make_node(activation, [f"z{i}"], [f"a{i}"], name=f"activation{i}"))
            name = f"a{i}"
    return model(nodes, sizes[:1], constants)


def residual_images(channels: int = 8, size: int = 12) -> onnx.ModelProto:
    """Three colours, a convolution, a block of two with what it read added, one by steps of two, a dense layer: weights of no meaning."""
    rng = np.random.default_rng(11)
    shapes = {"stem": (channels, 3), "first": (channels, channels), "second": (channels, channels)}
    shapes["wide"] = (2 * channels, channels)
    constants: dict[str, Any] = {
        name: (rng.standard_normal((*shape, 3, 3)) / np.sqrt(9 * shape[1])).astype(np.float32)
        for name, shape in shapes.items()
    }
    constants["dense"] = rng.standard_normal((4, 2 * channels * (size // 2) ** 2)).astype(np.float32) / size

    def convolution(read: str, name: str, made: str, step: int = 1) -> onnx.NodeProto:
        return helper.make_node("Conv", [read, name], [made], name=name, pads=[1, 1, 1, 1], strides=[step, step])

    nodes = [
        convolution("x", "stem", "c0"),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu0"),
        convolution("r0", "first", "c1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        convolution("r1", "second", "c2"),
        helper.make_node("Add", ["c2", "r0"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["r2"], name="relu2"),
        convolution("r2", "wide", "c3", 2),
        helper.make_node("Relu", ["c3"], ["r3"], name="relu3"),
        helper.make_node("Flatten", ["r3"], ["f"]),
        helper.make_node("Gemm", ["f", "dense"], ["y"], name="dense", transB=1),
    ]
    return model(nodes, [3, size, size], constants)
