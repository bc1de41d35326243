"""Functions at the model's end are the client's: no look-up, in every mode, in files, and checked as strangers may have written them."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx_models import model, runtime

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime import Runtime

RNG = np.random.default_rng(41)
W = RNG.standard_normal((5, 3)).astype(np.float32)
V = RNG.standard_normal((3, 2)).astype(np.float32)
X = RNG.uniform(-1, 1, (200, 5))


def ending(*last: Any, kind: int = TensorProto.FLOAT, **constants: Any) -> ModelProto:
    """Gemm, Relu, Gemm to `z` [batch, 2], then these nodes (operator, operands, result[, attributes])."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["z"], name="second"),
    ]
    nodes += [
        helper.make_node(op, operands.split(), [result], **(more[0] if more else {}))
        for op, operands, result, *more in last
    ]
    fixed = {name: np.asarray(value, dtype=np.float32) for name, value in constants.items()}
    return model(nodes, [5], {"w": W, "v": V, **fixed}, output_type=kind)


ENDS = {
    "Sigmoid": (ending(("Sigmoid", "z", "y")), "Sigmoid(x)"),
    "Tanh": (ending(("Tanh", "z", "y")), "Tanh(x)"),
    "Sigmoid written out": (ending(("Neg", "z", "n"), ("Exp", "n", "e"), ("Add", "one e", "d"), ("Div", "one d", "y"), one=1), "Reciprocal"),
    "LogSigmoid": (ending(("Sigmoid", "z", "s"), ("Log", "s", "y")), "Log(Sigmoid(x))"),
    "LogSigmoid of Softplus": (ending(("Neg", "z", "n"), ("Softplus", "n", "s"), ("Neg", "s", "y")), "Softplus"),
    "scaled Tanh": (ending(("Tanh", "z", "t"), ("Mul", "t c", "m"), ("Add", "m c", "y"), c=2.5), "Affine"),
    "GELU": (ending(("Div", "z c", "d"), ("Erf", "d", "e"), ("Add", "e one", "f"), ("Mul", "z f", "y"), c=1.414, one=1), "Erf"),
    "bounded": (ending(("Clip", "z low", "y"), low=0.1), "Clip(x)"),
    "decided": (ending(("Sigmoid", "z", "s"), ("Greater", "s c", "b"), ("Cast", "b", "y", {"to": 1}), c=0.5), "Greater(Sigmoid(x))"),
    "whole numbers": (
        ending(("Sigmoid", "z", "s"), ("Greater", "s c", "b"), ("Cast", "b", "y", {"to": 7}), kind=TensorProto.INT64, c=0.5), "Greater"),
    "largest": (ending(("Sigmoid", "z", "s"), ("ArgMax", "s", "y", {"axis": 1, "keepdims": 0}), kind=TensorProto.INT64), "Sigmoid"),
    "both classes": (
        ending(("Gather", "z first", "c", {"axis": 1}), ("Sigmoid", "c", "p"), ("Sub", "one p", "q"), ("Concat", "q p", "y", {"axis": 1}), one=1),
        " or "),
}  # fmt: skip
ENDS["both classes"][0].graph.initializer.append(helper.make_tensor("first", TensorProto.INT64, [1], [0]))


@pytest.mark.parametrize("name", ENDS)
def test_no_lookup_and_the_models_values(name: str) -> None:
    proto, title = ENDS[name]
    made = cw.compile(proto, X, precision="balanced", weight_bits=3, accuracy=0)
    assert made.report()["bootstraps"] == 3  # of the hidden ReLU
    assert title in made.report()["client_steps"][0] and title in made.details
    expected = runtime(proto, X).astype(np.float64)
    np.testing.assert_allclose(made.predict_float(X).reshape(expected.shape), expected, atol=1e-5)
    spread = max(float(expected.std()), 0.1)
    for mode in ("clear", "simulate"):
        got = made.predict(X, how=mode, seed=1)
        assert got.shape == expected.shape
        assert np.abs(got - expected).mean() < 0.5 * spread
    again = program_from_bytes(program_to_bytes(made.program))
    assert program_to_bytes(again) == program_to_bytes(made.program)
    client = ClientSpecification.from_json(made.client.to_json())
    phases = RNG.uniform(-0.3, 0.3, (4, made.client.output_scale.size))
    np.testing.assert_array_equal(client.output(phases), made.client.output(phases))


def test_a_binary_network_encrypted_on_a_server() -> None:
    proto = ENDS["Sigmoid"][0]
    made = cw.compile(proto, X, precision=4.0, weight_bits=3, accuracy=0, sets=[parameter_set("toy_two_limb")])
    key = ClientKey._from_entropy(made.program.parameters, bytes(range(32)))
    client = ClientSpecification.from_json(made.client.to_json())
    server = Runtime(program_from_bytes(program_to_bytes(made.program)), Session(key.evaluation_keys()))
    probabilities = client.decrypt(key, server.answer(client.encrypt(key, X[:3])))
    assert ((probabilities > 0) & (probabilities < 1)).all()
    np.testing.assert_allclose(probabilities, runtime(proto, X[:3]), atol=0.2)


def test_weights_stay_with_the_server() -> None:
    """Functions with many parameters, and whole networks of one number, are computed encrypted."""
    channels = ending(("Mul", "z c", "m"), ("Tanh", "m", "t"), ("Mul", "t d", "y"), c=[[1.5, 2.5]], d=[[3, 4]])
    assert cw.compile(channels, X, accuracy=0).report()["bootstraps"] == 3  # two functions: eight numbers
    w, v = RNG.standard_normal((1, 12)).astype(np.float32), RNG.standard_normal((12, 1)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    made = cw.compile(model(nodes, [1], {"w": w, "v": v}), RNG.uniform(-1, 1, (50, 1)), accuracy=0)
    assert made.report()["bootstraps"] == 1 and not made.report()["client_steps"]


def test_exact_profile() -> None:
    small = {"input_bits": 2, "activation_bits": 2, "accumulator_bits": 3}
    toy = [parameter_set("toy_two_limb")]
    made = cw.compile(ENDS["Sigmoid"][0], X, precision="exact_64", weight_bits=2, accuracy=0, **small, sets=toy)
    assert made.report()["client_steps"] == ["Sigmoid(x)"]
    assert ((made.predict(X) > 0) & (made.predict(X) < 1)).all()


def test_specifications_of_strangers() -> None:
    fields = json.loads(cw.compile(ENDS["scaled Tanh"][0], X, accuracy=0).client.to_json())
    assert ClientSpecification.from_json(json.dumps(fields)).to_json()
    (step,) = fields["client_steps"]
    assert [name for name, *_ in step["functions"][0]] == ["Tanh", "Affine", "Affine"]
    wrong: list[Any] = [
        {}, {"functions": []}, {**step, "more": 1}, {**step, "which": [0]}, {**step, "which": [1, 0]},
        {**step, "which": [-1, 0]}, {**step, "which": "0"},
        {**step, "functions": []}, {**step, "functions": [[]] * 9},
        *({**step, "functions": [program]} for program in (
            [["Exec", [], [1]]], [["Table", [1.0], [1]]], [["Snap", [1.0, 0.0], [1]]], [["Tanh", [], [2]]], [["Tanh", [1.0], [1]]],
            [["Affine", [1.0], [1]]], [["Affine", [1.0, None], [1]]], [["Affine", [1e999, 0.0], [1]]], [["Mul", [], [1]]], [["Tanh", [], [1]]] * 25,
            [["Sum", [1.0] * 30, [1] * 29]],
            [["Tanh", []]], [[["Tanh"], [], [1]]], "Tanh", [["Tanh", [], 1]],
        )),
    ]  # fmt: skip
    for entry in wrong:
        changed = copy.deepcopy(fields)
        changed["client_steps"] = [entry]
        with pytest.raises(SerializationError):
            ClientSpecification.from_json(json.dumps(changed))


ROOTS = {
    "root": ending(("Mul", "z z", "s"), ("ReduceSum", "s axes", "t"), ("Sqrt", "t", "y"), axes=[1]),
    "power": ending(("Mul", "z z", "s"), ("Pow", "s c", "y"), c=0.5),
    "logarithm": ending(("Abs", "z", "s"), ("ReduceMean", "s", "t", {"axes": [1]}), ("Log", "t", "y")),
    "root beside its argument": ending(("Abs", "z", "b"), ("Sub", "b one", "s"), ("Relu", "s", "p"), ("Sqrt", "p", "q"), ("Mul", "q p", "y"), one=1),
}  # fmt: skip


@pytest.mark.parametrize("name", ROOTS)
def test_roots_and_logarithms_of_what_noise_carries_below_zero_are_finite(name: str) -> None:
    proto = ROOTS[name]
    if name == "root":
        axes = next(each for each in proto.graph.initializer if each.name == "axes")
        axes.CopyFrom(numpy_helper.from_array(np.array([1], dtype=np.int64), "axes"))
    made = cw.compile(proto, X, accuracy=0, task="regression")
    found = np.stack([made.predict(0.1 * X, how="simulate", seed=seed) for seed in range(10)])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(made.predict_float(X), runtime(proto, X), rtol=1e-4, atol=1e-5)
