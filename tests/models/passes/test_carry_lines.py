"""What is straight in a function passes beside its look-up: the same network, with less noise."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx_models import mlp, model

import cloakwork as cw
import cloakwork.models.compile.stages as stages
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.approximate.statistics import statistics
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.graph.ir import Graph
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.bound_ranges import bound_ranges
from cloakwork.models.passes.carry_lines import carry_lines
from cloakwork.models.runtime.interpreter import interpret


def active(rng: np.random.Generator, *, hidden: int = 12, every: int = 2, bias: float = 8.0) -> ModelProto:
    """A ReLU network of whose hidden units every second one, or other, is active whatever the sample."""
    w = rng.standard_normal((hidden, 6)).astype(np.float32)
    b = np.where(np.arange(hidden) % every == 0, bias, 0.0).astype(np.float32)
    v = rng.standard_normal((2, hidden)).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="hidden", transB=1),
        helper.make_node("Relu", ["h"], ["a"], name="relu"),
        helper.make_node("Gemm", ["a", "v"], ["y"], name="answer", transB=1),
    ]
    return model(nodes, [6], {"w": w, "b": b, "v": v})


def convolutions(rng: np.random.Generator, activation: str, kernel: int = 5) -> ModelProto:
    """A padded convolution, and one that sees the whole of its result, or windows of it."""
    size = 6 - kernel
    w = 0.3 * rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
    v = 0.3 * rng.standard_normal((4, 3, kernel, kernel)).astype(np.float32)
    u = rng.standard_normal((2, 4 * size * size)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node(activation, ["c"], ["a"], name="activation"),
        helper.make_node("Conv", ["a", "v"], ["d"], name="second"),
        helper.make_node(activation, ["d"], ["e"], name="again"),
        helper.make_node("Flatten", ["e"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "u"], ["y"], name="answer", transB=1),
    ]
    return model(nodes, [2, 5, 5], {"w": w, "v": v, "u": u})


def bounded(proto: ModelProto, x: np.ndarray) -> Graph:
    return bound_ranges(restructure(import_onnx(proto)), x)


@pytest.mark.parametrize("name", ["active", "tanh", "sigmoid", "convolutions, tanh", "convolutions, softplus"])
def test_the_network_is_the_same(name: str) -> None:
    rng = np.random.default_rng(1)
    if name == "active":
        proto, shape = active(rng), (6,)
    elif name.startswith("convolutions"):
        proto, shape = convolutions(rng, {"tanh": "Tanh", "softplus": "Softplus"}[name.split(", ")[1]]), (2, 5, 5)
    else:
        proto, shape = mlp(rng, [6, 9, 7, 3], activation=name.capitalize()), (6,)
    x = 0.5 * rng.standard_normal((120, *shape))
    graph = bounded(proto, x)
    moved = carry_lines(graph, statistics(graph, x))
    assert moved is not None and moved.bootstraps == graph.bootstraps
    far = 5 * rng.standard_normal((40, *shape))  # beyond every range: the sum is the function everywhere
    np.testing.assert_allclose(interpret(moved, far), interpret(graph, far), rtol=1e-9, atol=1e-9)


def test_what_mostly_bends_and_what_refreshes_stays() -> None:
    rng = np.random.default_rng(2)
    proto, x = active(rng, every=1, bias=-6.0), rng.standard_normal((200, 6))
    for network in (proto, mlp(rng, [6, 9, 3], activation="Identity")):
        graph = bounded(network, x)
        assert carry_lines(graph, statistics(graph, x)) is None


def test_windows_of_convolutions_do_not_grow() -> None:
    rng = np.random.default_rng(6)
    graph = bounded(convolutions(rng, "Softplus", kernel=3), x := 0.5 * rng.standard_normal((120, 2, 5, 5)))
    moved = carry_lines(graph, statistics(graph, x))
    assert moved is not None
    assert [node.gather.shape for node in moved.linears[:-1]] == [node.gather.shape for node in graph.linears[:-1]]
    assert (
        moved.linears[-1].gather.shape[1] > graph.linears[-1].gather.shape[1]
    )  # a dense layer reads what the second one reads


def test_integer_weights_stay_integers() -> None:
    rng = np.random.default_rng(3)
    proto = active(rng)
    for constant in proto.graph.initializer:
        if constant.name in ("w", "v"):
            values = rng.integers(-9, 10, tuple(constant.dims)).astype(np.float32)
            constant.CopyFrom(helper.make_tensor(constant.name, 1, constant.dims, values.tobytes(), raw=True))
    graph = bounded(proto, x := rng.standard_normal((100, 6)))
    assert carry_lines(graph, statistics(graph, x)) is None


def error(made: CompiledModel, x: np.ndarray) -> float:
    return float(np.square(made.predict(x, how="simulate", seed=4) - made.predict_float(x)).mean()) ** 0.5


def test_units_that_are_always_active_bring_next_to_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    proto, x = active(rng, every=1, bias=20.0), rng.standard_normal((300, 6))
    options = {"sets": [parameter_set("nn2")], "precision": 4.0, "weight_bits": 2, "accuracy": 0}
    made = cw.compile(proto, x, **options)
    assert "w x" in made.details
    monkeypatch.setattr(stages, "carry_lines", lambda *_: None)
    assert error(made, x) < 0.1 * error(cw.compile(proto, x, **options), x)


def test_encrypted_it_is_what_was_simulated() -> None:
    rng = np.random.default_rng(5)
    proto, x = active(rng), rng.standard_normal((200, 6))
    made = cw.compile(proto, x, sets=[parameter_set("toy_two_limb")], precision=4.0, accuracy=0)
    expected, simulated = made.predict(x[:40]), made.predict(x[:40], how="simulate", seed=1)
    found = made.predict(x[:40], how="encrypted")
    deviation = float((simulated - expected).std())
    assert (
        0.6 * deviation < float((found - expected).std()) < 1.6 * deviation
    )  # 80 numbers: six standard deviations either way
    assert np.corrcoef(found.reshape(-1), made.predict_float(x[:40]).reshape(-1))[0, 1] > 0.9
