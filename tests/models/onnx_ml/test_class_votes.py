"""Weights of trees for odd classes: the answers of ONNX Runtime, or a reason why what the file means is open."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from cases import case
from drawn_votes import DrawnTrees, drawn_trees
from onnx import TensorProto, helper

import cloakwork as cw
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.models.errors import CompileError, ImportFaultError, UnsupportedOperatorError
from cloakwork.models.onnx_ml.importer import Network, import_onnx_ml

SAMPLES = np.array([[-1.0], [1.0]], dtype=np.float32)
HALF, LOW = 1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(0.25))  # the logistic functions of 0.5 and -0.25


def stump(
    left: dict[int, float], right: dict[int, float], labels: list[Any], post: str, **more: Any
) -> onnx.ModelProto:
    """Args: left, right: the weights of classes where x <= 0 and elsewhere."""
    texts = isinstance(labels[0], str)
    name = "classlabels_strings" if texts else "classlabels_int64s"
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.0, 0.0, 0.0], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0] * (len(left) + len(right)), class_nodeids=[1] * len(left) + [2] * len(right),
        class_ids=[*left, *right], class_weights=[*left.values(), *right.values()], post_transform=post,
        **{name: labels}, **more,
    )  # fmt: skip
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING if texts else TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", None]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


ANSWERED = {
    "shares of the second, labels reversed": (
        stump({0: 0.25}, {0: 0.75}, [1, 0], "NONE"), [1, 0], [[0.75, 0.25], [0.25, 0.75]],
    ),
    "the second's alone": (stump({1: -0.25}, {1: 0.5}, [7, 3], "NONE"), [7, 3], [[0, -0.25], [0, 0.5]]),
    "the second's alone, LOGISTIC": (
        stump({1: -0.25}, {1: 0.5}, ["no", "yes"], "LOGISTIC"), ["no", "yes"], [[0.5, LOW], [0.5, HALF]],
    ),
    "the second's alone, SOFTMAX": (
        stump({1: -0.25}, {1: 0.5}, [7, 3], "SOFTMAX"), [7, 3], [[1 - LOW, LOW], [1 - HALF, HALF]],
    ),
    "opposite": (
        stump({0: 0.25, 1: -0.25}, {0: -0.5, 1: 0.5}, ["yes", "no"], "LOGISTIC"),
        ["yes", "no"],
        [[1 - LOW, LOW], [1 - HALF, HALF]],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("model", "labels", "probabilities"), ANSWERED.values(), ids=ANSWERED)
def test_two_classes(model: onnx.ModelProto, labels: list[Any], probabilities: list[list[float]]) -> None:
    _, imported = import_onnx_ml(model)
    assert not isinstance(imported, Network)
    assert imported.evaluate(SAMPLES).tolist() == labels
    np.testing.assert_allclose(imported.probabilities(SAMPLES), probabilities, atol=1e-9)


REFUSED = {
    "one class": (stump({0: -0.25}, {0: 0.5}, [7], "NONE"), "names one class"),
    "class 2 of 2": (stump({2: -0.25}, {0: 0.5}, [0, 1], "NONE"), "expected class_ids 0 to 1"),
    "logistic shares": (stump({0: 0.25}, {0: 0.75}, [0, 1], "LOGISTIC"), "decides at a score of 1/2"),
    "positive": (stump({1: 0.25}, {1: 0.75}, [0, 1], "NONE"), "second of two classes alone and none is negative"),
    "second with base": (stump({1: -0.25}, {1: 0.5}, [0, 1], "NONE", base_values=[0.0, 0.5]), "and base values"),
    "two base values": (stump({0: -0.25}, {0: 0.5}, [0, 1], "NONE", base_values=[0.0, 0.5]), "2 base values for 1"),
    "shares of both": (stump({0: 0.25, 1: 0.75}, {0: 0.5, 1: 0.5}, [0, 1], "NONE"), "by the sign of the second"),
    "lacking": (stump({0: 0.0}, {0: -0.5, 1: 0.5}, [0, 1], "SOFTMAX"), "by the sign of the second"),
    "opposite with base": (
        stump({0: 0.25, 1: -0.25}, {0: -0.5, 1: 0.5}, [0, 1], "NONE", base_values=[0.0, 0.0]), "by the sign",
    ),
    "opposite of odd labels": (
        stump({0: 0.25, 1: -0.25}, {0: -0.5, 1: 0.5}, [7, 3], "NONE"), r"\[7, 3\]: ONNX Runtime answers 0 or 1",
    ),
    "one of three": (stump({1: 0.25}, {1: 0.75}, [0, 1, 2], "NONE"), "of one class of 3"),
    "left out": (stump({0: -0.25, 1: -0.5}, {1: -0.5, 2: -0.25}, [0, 1, 2], "NONE"), "write the zeros"),
    "one base value of three": (
        stump({0: 0.2, 1: 0.3, 2: 0.5}, {0: 0.5, 1: 0.3, 2: 0.2}, [0, 1, 2], "NONE", base_values=[0.5]), "1 base values",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("model", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_open_is_refused(model: onnx.ModelProto, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        import_onnx_ml(model)


def end_of(stranger: DrawnTrees, runtime: Any) -> str:
    """ "right", or why it was refused. AssertionError for another answer; whatever else is raised is a fault too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = cw.compile(stranger.model, stranger.samples, thresholds="client")
        except ImportFaultError:
            raise
        except UnsupportedOperatorError as error:
            return str(error).split("': ")[-1][:80]
    said = runtime.InferenceSession(stranger.model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": stranger.samples}
    )
    if len(said) == 1:
        answers = compiled.predict(stranger.samples).reshape(said[0].shape)
        np.testing.assert_allclose(answers, said[0], atol=2e-5)
        return "right"
    assert (compiled.predict(stranger.samples) == said[0]).all()
    try:
        scores = compiled.predict_proba(stranger.samples)
    except ParameterError:
        scores = compiled.predict(stranger.samples, output="scores")
    scores = np.concatenate([-scores, scores], axis=1) if scores.shape[1] == 1 else scores  # decision values
    np.testing.assert_allclose(scores, said[1], atol=2e-5)
    return "right"


@pytest.mark.parametrize(
    "seeds",
    [
        range(40),
        pytest.param(range(100, 400), marks=pytest.mark.tier("all")),
        pytest.param(range(1000, 2000), marks=pytest.mark.tier("release")),
    ],
    ids=str,
)
def test_drawn_files_answer_as_by_onnx_runtime(seeds: range) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    ends: Counter[str] = Counter()
    for seed in seeds:
        stranger = drawn_trees(seed)
        with case("seed", seed, stranger.name):
            ends[end_of(stranger, runtime)] += 1
    sys.stdout.write("".join(f"{count} {end}\n" for end, count in ends.most_common()))  # shown by -rP
    assert ends["right"] >= 0.25 * len(seeds), ends
