"""ONNX Runtime's sums of products of integers, right on every processor: the reference evaluator of the package onnx is the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from cloakwork.models.original import onnx_file
from cloakwork.models.original.onnx_file import moved

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
KINDS: dict[type, int] = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


def drawn(rng: np.random.Generator, operator: str, left: type, right: type) -> tuple[onnx.ModelProto, np.ndarray]:
    """A sum of products of extreme integers, and its input; every other model has zero points."""
    shapes = {"MatMulInteger": ([3, 16], [16, 4]), "ConvInteger": ([1, 2, 6, 6], [3, 2, 3, 3])}[operator]
    ends = [np.array([np.iinfo(kind).min, np.iinfo(kind).max], dtype=kind) for kind in (left, right)]
    x, weights = (rng.choice(end, shape) for end, shape in zip(ends, shapes, strict=True))
    zeros = [
        numpy_helper.from_array(np.array(rng.choice(end)), name) for end, name in zip(ends, ("zx", "zw"), strict=True)
    ]
    zeros = zeros if rng.random() < 0.5 else []
    node = helper.make_node(operator, ["x", "w", *(each.name for each in zeros)], ["y"])
    inputs = [helper.make_tensor_value_info("x", KINDS[left], shapes[0])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, None)]
    graph = helper.make_graph([node], "sum", inputs, outputs, [numpy_helper.from_array(weights, "w"), *zeros])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), x


@pytest.mark.parametrize("operator", ["MatMulInteger", "ConvInteger"])
def test_moved_sums_are_the_reference_evaluators(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "saturates", lambda: True)
    rng, differ = np.random.default_rng(3), 0
    for left in KINDS:
        for right in KINDS:
            for _ in range(5):
                model, x = drawn(rng, operator, left, right)
                if left is np.int8 and operator == "ConvInteger":
                    continue  # ONNX Runtime has no kernel for it
                (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
                opened: Any = onnx_file.opened(model)
                assert opened is not None and opened[0] == "ONNX Runtime"
                np.testing.assert_array_equal(opened[1](["y"], {"x": x})[0], expected)
                differ += moved(model) != model
    assert differ >= 5
