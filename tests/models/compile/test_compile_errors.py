"""What cannot be compiled, and how it is said."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx_models import mlp, model, runtime, single

import cloakwork as cw
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.errors import CompileError, NoParameterSetError, ShapeError, UnsupportedOperatorError
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(3)


def test_all_unsupported_nodes_are_reported_at_once_with_their_names() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="fine"),
        helper.make_node("Pow", ["a", "x"], ["b"], name="gate"),
        helper.make_node("Sigmoid", ["b"], ["c"], name="follows"),
        helper.make_node("NonZero", ["a"], ["d"], name="normal"),
        helper.make_node("ArgMax", ["a"], ["e"], name="best", axis=1),
        helper.make_node("Relu", ["e"], ["f"], name="after_best"),
        helper.make_node("Add", ["f", "c"], ["y"], name="sum"),
    ]
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_onnx(model(nodes, [4]))
    text = str(caught.value)
    for label in ("'gate'", "'normal'", "'after_best'"):
        assert label in text
    for label in ("'fine'", "'follows'", "'sum'"):
        assert label not in text
    assert text.startswith("3 node(s)")
    assert "decrypt first: the number of results depends on the data" in text


@pytest.mark.parametrize(
    ("operator", "axis", "output_type"),
    [("Softmax", -1, TensorProto.FLOAT), ("LogSoftmax", 1, TensorProto.FLOAT), ("ArgMax", 1, TensorProto.INT64)],
)
def test_final_operators_move_to_the_client(operator: str, axis: int, output_type: int) -> None:
    proto = single(operator, [5], axis=axis, output_type=output_type)
    calibration = RNG.uniform(-2, 2, (100, 5))
    compiled = cw.compile(proto, calibration)
    x = calibration[:7]
    assert compiled.report()["client_steps"] == [operator] and compiled.report()["bootstraps"] == 0
    np.testing.assert_allclose(compiled.predict_float(x), runtime(proto, x), atol=1e-6)


@pytest.mark.parametrize(
    "proto",
    [
        single("ReduceMean", [3]),
        single("ReduceMax", [3]),
        single("ArgMax", [3], output_type=TensorProto.INT64),
        single("Softmax", [3, 2], axis=1, opset=11),
        single("Pow", [3], inputs=["x", "x"]),
        single("Mod", [3], {"c": np.zeros(3, dtype=np.float32)}, fmod=1),
        single("Div", [3], {"c": np.zeros(3, dtype=np.float32)}),
    ],
)  # fmt: skip
def test_unsupported_uses_of_supported_operators(proto: ModelProto) -> None:
    with pytest.raises(UnsupportedOperatorError, match=f"the_{proto.graph.node[0].op_type}"):
        import_onnx(proto)


def test_no_parameter_set_names_layer_need_and_nearest_set() -> None:
    rng = np.random.default_rng(5)
    proto = mlp(rng, [8, 48, 48, 48, 2])
    with pytest.raises(NoParameterSetError) as caught:
        cw.compile(proto, rng.uniform(-1, 1, (50, 8)), weight_bits=8, precision="fast", sets=[parameter_set("nn2")])
    text = str(caught.value)
    assert "'layer3' needs weights of at least 8 bits" in text and "'nn2'" in text and "2 %" in text


def test_deep_network_takes_a_set_for_large_weights() -> None:
    compiled = cw.compile(
        mlp(RNG, [8, 48, 48, 48, 2]), RNG.uniform(-1, 1, (50, 8)), weight_bits=6, precision=1.0, accuracy=0
    )
    assert bootstrap_cost(compiled.program.parameters) > bootstrap_cost(parameter_set("nn2"))


def test_wrong_models_and_calls() -> None:
    with pytest.raises(CompileError, match="opset 11 or newer"):
        import_onnx(single("Relu", [3], opset=9))
    batched = single("Relu", [3])
    batched.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    with pytest.raises(CompileError, match="batches of 8"):
        import_onnx(batched)
    graph = import_onnx(single("Relu", [3]))
    with pytest.raises(ShapeError, match="samples come first"):
        interpret(graph, np.zeros((2, 4)))
    with pytest.raises(CompileError, match="precision"):
        cw.compile(single("Relu", [3]), np.ones((4, 3)), precision="quick")
    for profile in (0, -1.0, 11, float("nan"), {"nowhere": "fast"}, {"*": "quick"}):
        with pytest.raises(CompileError, match="precision"):
            cw.compile(single("Relu", [3]), np.ones((4, 3)), precision=profile)
    with pytest.raises(CompileError, match="not finite"):
        nodes = [helper.make_node("Log", ["x"], ["l"]), helper.make_node("MatMul", ["l", "w"], ["y"])]
        cw.compile(model(nodes, [3], {"w": np.ones((3, 1), np.float32)}), np.array([[1.0, 0.0, 2.0]]))
