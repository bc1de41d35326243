"""Small networks with several inputs or outputs, and their values by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]
KINDS = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64}


def network(
    nodes: Sequence[tuple[Any, ...]],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    kinds: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Args:
    nodes: (operator, operands, results[, attributes]), names parted by spaces; a node is named like its first result.
    inputs: shapes without the batch.
    kinds: of inputs and outputs that are not float.
    """
    made = [
        helper.make_node(op, operands.split(), results.split(), name=results.split()[0], **(more[0] if more else {}))
        for op, operands, results, *more in nodes
    ]
    kind = dict(kinds or {})
    fixed = {name: np.asarray(value) for name, value in (constants or {}).items()}
    graph = helper.make_graph(
        made,
        "several",
        [
            helper.make_tensor_value_info(n, kind.get(n, TensorProto.FLOAT), ["batch", *shape])
            for n, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind.get(name, TensorProto.FLOAT), None) for name in outputs],
        [
            numpy_helper.from_array(v.astype(np.float32) if v.dtype == np.float64 else v, name)
            for name, v in fixed.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def runtime(proto: onnx.ModelProto, x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime, sample by sample, as the batch counts as 1 at import."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    types = {each.name: np.float32 if each.type == "tensor(float)" else np.int64 for each in session.get_inputs()}
    rows = [
        session.run(None, {name: x[name][i : i + 1].astype(kind) for name, kind in types.items()})
        for i in range(len(next(iter(x.values()))))
    ]
    return {name: np.concatenate([row[j] for row in rows]) for j, name in enumerate(names)}


def image_and_table(rng: np.random.Generator, table: int = 3) -> onnx.ModelProto:
    """A convolution on `image` [1, 4, 4] and a dense layer on `table`, joined: class probabilities, and the layer before them."""

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])

    nodes = [
        ("Conv", "image kernel", "conv"), ("Relu", "conv", "edges"), ("Flatten", "edges", "flat"),
        ("MatMul", "table dense", "columns"), ("Tanh", "columns", "bent"), ("Concat", "flat bent", "joined", {"axis": 1}),
        ("MatMul", "joined mix", "embedding"), ("Relu", "embedding", "active"), ("MatMul", "active head", "scores"),
        ("Softmax", "scores", "probabilities", {"axis": 1}),
    ]  # fmt: skip
    constants = {
        "kernel": weights(1, 1, 3, 3), "dense": weights(table, 2), "mix": weights(6, 4), "head": 3 * weights(4, 3)
    }  # fmt: skip
    return network(nodes, {"image": [1, 4, 4], "table": [table]}, ["probabilities", "embedding"], constants)


def samples(rng: np.random.Generator, count: int, table: int = 3) -> dict[str, np.ndarray]:
    return {"image": rng.uniform(0, 1, (count, 1, 4, 4)), "table": rng.standard_normal((count, table))}
