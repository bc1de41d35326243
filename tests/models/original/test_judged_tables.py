"""Files of ONNX-ML, judged by ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import cloakwork as cw
from cloakwork.models.errors import ImportFaultError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.onnx_ml import compile_onnx_ml

X = np.random.default_rng(20261128).normal(size=(100, 2))


def classifier(*outputs: str) -> onnx.ModelProto:
    node = helper.make_node(
        "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", coefficients=[1.0, -1.0, -1.0, 1.0], intercepts=[0.1, -0.1],
        classlabels_ints=[3, 7], post_transform="SOFTMAX",
    )  # fmt: skip
    kinds = {"label": (TensorProto.INT64, ["n"]), "scores": (TensorProto.FLOAT, ["n", 2])}
    graph = helper.make_graph(
        [node],
        "table",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info(name, *kinds[name]) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("outputs", [("label", "scores"), ("label",), ("scores",)], ids=" ".join)
def test_a_file_tells_labels_or_scores_or_both(outputs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(cw.compile(classifier(*outputs), X).predict(X)) == {3, 7}
    right = compile_onnx_ml.import_onnx_ml

    def wrong(model: onnx.ModelProto) -> object:
        steps, found = right(model)
        assert isinstance(found, LinearModel)
        return steps, replace(found, intercept=found.intercept + np.arange(found.outputs) + 1)

    monkeypatch.setattr(compile_onnx_ml, "import_onnx_ml", wrong)
    with pytest.raises(ImportFaultError, match=r"as imported 'table' gives .* by ONNX Runtime"):
        cw.compile(classifier(*outputs), X)


def test_the_program_is_compared_with_the_file_too() -> None:
    made = cw.compile(classifier("label", "scores"), X)
    assert str(made).startswith("as your model: 100.0 % of labels (100 samples, at least 97.4 %)")
    only_scores = cw.compile(classifier("scores"), X)
    assert only_scores.program.facts.original is None


def test_a_fault_of_ours_is_not_taken_for_samples_that_nobody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: LinearModel, x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError

    monkeypatch.setattr(LinearModel, "scores", broken)
    with pytest.raises(ZeroDivisionError):
        cw.compile(classifier("label", "scores"), X)
