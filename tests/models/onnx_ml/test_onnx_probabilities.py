"""What follows the scores of ONNX-ML models, beside the standard's own evaluator: of each class by itself, shares, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import cloakwork as cw
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.onnx_ml.importer import Network, import_onnx_ml

X = np.random.default_rng(2).normal(size=(200, 2)).astype(np.float32)
ML = "ai.onnx.ml"


def model(nodes: list[onnx.NodeProto], result: str, *constants: onnx.TensorProto) -> onnx.ModelProto:
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info(result, TensorProto.FLOAT, ["n", None]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])]
    labelled = any("label" in node.output for node in nodes)
    graph = helper.make_graph(nodes, "g", inputs, outputs if labelled else outputs[1:], list(constants))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def linear(post: str, classes: int, rows: int | None = None) -> onnx.NodeProto:
    rng = np.random.default_rng(classes)
    rows = classes if rows is None else rows
    return helper.make_node(
        "LinearClassifier", ["x"], ["label", "p"], domain=ML, coefficients=rng.normal(size=2 * rows).tolist(),
        intercepts=rng.normal(size=rows).tolist(), classlabels_ints=[7, 3, 5, 1][:classes], post_transform=post,
    )  # fmt: skip


def trees(post: str, classes: int, lowest: float = -1.0, **more: Any) -> onnx.NodeProto:
    weights = np.random.default_rng(classes).uniform(lowest, 1, 2 * classes)
    if classes == 2:  # else runtimes decide in different ways
        weights[1::2] = -weights[::2]
    return helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "p"], domain=ML, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.1, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], class_treeids=[0] * 2 * classes,
        class_nodeids=[1] * classes + [2] * classes, class_ids=[*range(classes)] * 2, class_weights=weights.tolist(),
        classlabels_int64s=[7, 3, 5, 1][:classes] if classes > 2 else [0, 1], post_transform=post, **more,
    )  # fmt: skip


def shared(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [node, helper.make_node("Normalizer", ["p"], ["q"], domain=ML, norm="L1")]


def agrees(proto: onnx.ModelProto) -> Any:
    labels, probabilities = ReferenceEvaluator(proto).run(None, {"x": X})
    _, found = import_onnx_ml(proto)
    assert not isinstance(found, Network)
    assert (found.evaluate(X) == labels).all()
    np.testing.assert_allclose(found.probabilities(X), probabilities, atol=1e-5)
    return found


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("make", [linear, trees], ids=["linear", "trees"])
def test_probabilities_of_classes_by_themselves(make: Any, classes: int) -> None:
    for post in ("LOGISTIC", "SOFTMAX"):
        agrees(model([make(post, classes)], "p"))
        agrees(model(shared(make(post, classes)), "q"))
    options: dict[str, Any] = {"thresholds": "client"} if make is trees else {}
    told = cw.compile(model([make("LOGISTIC", 3)], "p"), X, tell="labels", accuracy=0.95, **options)
    expected = ReferenceEvaluator(model([make("LOGISTIC", 3)], "p")).run(None, {"x": X})[0]
    assert (told.predict(X) == expected).mean() >= (1.0 if make is trees else 0.97)


def test_shares_of_scores() -> None:
    assert agrees(model(shared(trees("NONE", 3, 0.1)), "q")).transform == "shares"
    for node in (trees("NONE", 3), linear("NONE", 3)):
        with pytest.raises(UnsupportedOperatorError, match="either sign that a Normalizer divides"):
            import_onnx_ml(model(shared(node), "q"))


@pytest.mark.parametrize("divided", [False, True], ids=["each", "shares"])
@pytest.mark.parametrize("classes", [2, 3])
def test_standard_operators(classes: int, divided: bool) -> None:
    rng = np.random.default_rng(classes)
    arrays = {
        "w": rng.normal(size=(2, classes)).astype(np.float32),
        "labels": np.array([7, 3, 5])[:classes],
        "axis": np.array([1]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Sigmoid", ["z"], ["s"]),
        helper.make_node("ReduceSum", ["s", "axis"], ["t"], keepdims=1),
        helper.make_node("Div", ["s", "t"], ["q"]),
        helper.make_node("ArgMax", ["s"], ["best"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["labels", "best"], ["row"], domain=ML),
        helper.make_node("Reshape", ["row", "flat"], ["label"]),
    ]  # fmt: skip
    arrays["flat"] = np.array([-1])
    kept = nodes if divided else [node for node in nodes if node.op_type not in ("ReduceSum", "Div")]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    agrees(model(kept, "q" if divided else "s", *constants))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (linear("SOFTMAX", 2, rows=1), "post_transform of one score"),
        (helper.make_node("LinearRegressor", ["x"], ["p"], domain=ML, coefficients=[1.0, 2.0], post_transform="LOGISTIC"), "of one score"),
        (linear("PROBIT", 3), "post_transform PROBIT; expected one of"),
        (trees("SOFTMAX_ZERO", 3), "post_transform SOFTMAX_ZERO; expected one of"),
        (trees("SOFTMAX", 3, base_values=[0.1, 0.2]), "2 base values for 3 scores"),
    ],
    ids=["softmax", "regression", "probit", "zero", "base"],
)  # fmt: skip
def test_what_runtimes_read_in_different_ways_is_refused(node: onnx.NodeProto, message: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=message):
        import_onnx_ml(model([node], "p"))
