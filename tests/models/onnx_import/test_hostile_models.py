"""Models that nobody should have written: circles, damaged constants, shapes without bound, and graphs of thousands of nodes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx_models import mlp, model, runtime

import cloakwork as cw
from cloakwork.models.compiler import calibrate
from cloakwork.models.errors import CompileError, UnsupportedOperatorError
from cloakwork.models.onnx_import import context
from cloakwork.models.onnx_import.context import MOST_NUMBERS

RNG = np.random.default_rng(8)
X = RNG.uniform(-1, 1, (60, 4))
BIG = np.array([2**20, 2**20])


def relu(*names: str) -> list[NodeProto]:
    return [helper.make_node("Relu", [a], [b], name=f"to {b}") for a, b in itertools.pairwise(names)]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([helper.make_node("Add", ["x", "b"], ["a"], name="first"), *relu("a", "b", "y")], "'first', 'to b', 'to y' depend on each other"),
        ([helper.make_node("Add", ["x", "y"], ["y"], name="own tail")], "'own tail' depend on each other in a circle"),
        ([*relu("x", "y"), helper.make_node("Sigmoid", ["x"], ["y"], name="second")], "'y' is made twice, last by node 'second'"),
        ([helper.make_node("Relu", ["x"], ["x"], name="onto itself")], "'x' is made twice"),
        ([helper.make_node("Add", ["x", "w"], ["y"], name="alone")], "node 'alone' reads 'w', which nothing in the file makes"),
        (relu("x", "z"), "nothing in the file makes its output 'y'"),
        ([*relu("x", "y"), helper.make_node("Relu", ["x"], [], name="idle")], r"node 'idle' \(Relu\) makes nothing"),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_computed(nodes: list[NodeProto], says: str) -> None:
    with pytest.raises(CompileError, match=says):
        cw.compile(model(nodes, [4]), X)


def test_nodes_in_another_order_compile_to_the_same_numbers() -> None:
    proto = mlp(RNG, [4, 3, 2])
    turned = ModelProto.FromString(proto.SerializeToString())
    del turned.graph.node[:]
    turned.graph.node.extend(reversed(proto.graph.node))
    first, second = (cw.compile(each, X, accuracy=0) for each in (turned, proto))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


def _with(name: str, value: Any) -> ModelProto:
    proto = mlp(np.random.default_rng(1), [4, 3, 2])
    weights = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
    array = np.frombuffer(weights.raw_data, np.float32).copy()
    array[0] = value
    weights.raw_data = array.tobytes()
    return proto


@pytest.mark.parametrize("profile", ["fast", "exact"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["w0", "b0", "w1"])
def test_weights_that_are_no_numbers(name: str, value: float, profile: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match="weights that are not finite"):
        cw.compile(_with(name, value), X, precision=profile)
    with pytest.raises(UnsupportedOperatorError, match="not finite"):
        calibrate(_with(name, value), X)


def test_constants_that_are_no_numbers() -> None:
    for node in ("Add", "Mul", "Pow", "PRelu"):
        with pytest.raises(UnsupportedOperatorError, match="constant that is not finite"):
            cw.compile(model([helper.make_node(node, ["x", "c"], ["y"])], [4], {"c": np.float32("nan")}), X)
    bounds = {"low": np.float32("-inf"), "high": np.float32("inf")}  # bounds may be
    total = helper.make_node("ReduceSum", ["c", "axes"], ["y"])
    clipped = model(
        [helper.make_node("Clip", ["x", "low", "high"], ["c"]), total], [4], {**bounds, "axes": np.array([1])}
    )
    assert cw.compile(clipped, X).program.bootstraps


def test_numbers_that_overflow_when_layers_are_folded() -> None:
    nodes = [helper.make_node("Mul", ["x" if i == 0 else f"t{i - 1}", "c"], [f"t{i}"]) for i in range(30)]
    with pytest.raises(CompileError, match="not finite|overflow"):
        cw.compile(model([*nodes, *relu("t29", "y")], [4], {"c": np.float32(1e38)}), X)


def test_damaged_constants() -> None:
    short, negative, outside = (mlp(np.random.default_rng(1), [4, 3, 2]) for _ in range(3))
    short.graph.initializer[0].raw_data = short.graph.initializer[0].raw_data[:-1]
    negative.graph.initializer[0].dims[0] = -3
    outside.graph.initializer[0].data_location = TensorProto.EXTERNAL
    for proto, says in (
        (short, "'w0' is damaged"),
        (negative, "'w0' is damaged"),
        (outside, "'w0' lies in another file"),
    ):
        with pytest.raises(CompileError, match=says):
            cw.compile(proto, X)


def node(operator: str, *inputs: str, to: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [to], **attributes)


PIXELS = {"c": np.array([1, 1, 2, 2])}
LONG = np.ones((2**16, 1), np.float32)
HUGE: dict[str, tuple[list[NodeProto], dict[str, Any]]] = {
    "Expand": ([node("Expand", "x", "n")], {"n": np.array([2**20, 2**20, 4])}),
    "Tile": ([node("Tile", "x", "n")], {"n": BIG}),
    "Pad": ([node("Pad", "x", "n")], {"n": np.array([0, 2**40, 0, 0])}),
    "Gather": (
        [node("Expand", "x", "m", to="r"), node("Gather", "r", "n", axis=2)],
        {"n": np.zeros(2**17, int), "m": np.array([1, 2**17, 4])},
    ),
    "outer sum": (
        [
            node("Expand", "x", "m", to="r"),
            node("Transpose", "r", to="t", perm=[0, 2, 1]),
            node("Expand", "t", "k", to="u"),
            node("Add", "r", "u"),
        ],
        {"m": np.array([2**14, 1, 4]), "k": np.array([1, 4, 2**14])},
    ),
    "MatMul": (
        [node("Reshape", "x", "c", to="t"), node("MatMul", "t", "n")],
        {"c": np.array([1, 4, 1]), "n": np.ones((1, 2**24), np.float32)},
    ),
    "window": (
        [
            node("Reshape", "x", "c", to="t"),
            node("MaxPool", "t", kernel_shape=[2**20, 2**20], pads=[2**20 - 1] * 4),
        ],
        PIXELS,
    ),
    "padding": (
        [node("Reshape", "x", "c", to="t"), node("Conv", "t", "w", pads=[2**30] * 4)],
        {**PIXELS, "w": np.ones((1, 1, 1, 1), np.float32)},
    ),
    "ConstantOfShape": ([node("ConstantOfShape", "n", to="t"), node("Add", "x", "t")], {"n": BIG}),
    "Range": (
        [node("Range", "a", "b", "d", to="t"), node("Add", "x", "t")],
        {"a": np.int64(0), "b": np.int64(2**50), "d": np.int64(1)},
    ),
    "constant product": ([node("MatMul", "l", "r", to="t"), node("Add", "x", "t")], {"l": LONG, "r": LONG.T}),
    "random": ([node("RandomNormal", to="t", shape=[2**20, 2**20]), node("Add", "x", "t")], {}),
    "doubling": (
        [
            node("Identity", "x", to="t0"),
            *(node("Concat", f"t{i}", f"t{i}", to=f"t{i + 1}", axis=1) for i in range(60)),
            node("Relu", "t60"),
        ],
        {},
    ),
}


@pytest.mark.parametrize("limit", [1 << 20, pytest.param(MOST_NUMBERS, marks=pytest.mark.tier("all"))])
@pytest.mark.parametrize("name", HUGE)
def test_shapes_without_bound_are_refused_before_they_are_allocated(
    name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the limit some are: half a gigabyte of numbers at the real one."""
    monkeypatch.setattr(context, "MOST_NUMBERS", limit)
    nodes, constants = HUGE[name]
    with pytest.raises(
        UnsupportedOperatorError, match=r"(tensor|constant) of (\d+ numbers|unknown size)|brings .* numbers"
    ):
        cw.compile(model(nodes, [4], constants), X)


def test_a_declared_input_without_bound() -> None:
    with pytest.raises(CompileError, match=f"at most {MOST_NUMBERS} numbers"):
        cw.compile(model(relu("x", "y"), [2**40, 2**40]), X)


def chain(operators: list[str], count: int) -> ModelProto:
    nodes: list[NodeProto] = []
    constants: dict[str, Any] = {"c": np.float32(0.01), "m": np.float32(1.001), "w": np.eye(4, dtype=np.float32) * 0.9}
    constants |= {"wide": np.array([1, 8]), "start": np.array([2]), "end": np.array([6]), "axis": np.array([1])}
    second = {"Add": ["c"], "Mul": ["m"], "MatMul": ["w"], "Reshape": ["wide"], "Slice": ["start", "end", "axis"]}
    for i in range(count):
        name, operator = "x" if i == 0 else f"t{i - 1}", operators[i % len(operators)]
        inputs = (
            [name, name]
            if operator == "Concat"
            else [name, "x"]
            if operator == "Skip"
            else [name, *second.get(operator, [])]
        )
        options = {"axis": 1} if operator == "Concat" else {}
        nodes.append(helper.make_node("Add" if operator == "Skip" else operator, inputs, [f"t{i}"], **options))
    return model([*nodes, helper.make_node("Identity", [f"t{count - 1}"], ["y"])], [4], constants)


CHAINS = (
    ["Add", "Relu", "Identity", "Mul"], ["Relu"], ["Tanh", "Add"], ["Add"], ["Skip", "Mul"], ["Concat", "Reshape", "Slice"], ["MatMul", "Relu"],
)  # fmt: skip


@pytest.mark.parametrize("operators", CHAINS, ids="-".join)
def test_long_chains_compile(operators: list[str]) -> None:
    proto = chain(operators, 60)
    made = cw.compile(proto, X, accuracy=0)
    np.testing.assert_allclose(made.predict_float(X[:5]), runtime(proto, X[:5]), atol=1e-4)


@pytest.mark.tier("all")
@pytest.mark.parametrize("operators", CHAINS, ids="-".join)
def test_thousands_of_nodes_compile(operators: list[str]) -> None:
    """In time proportional to their number: these take seconds, and the suite's time limit otherwise."""
    long = chain(operators, 1500)
    made = cw.compile(long, X, accuracy=0)
    np.testing.assert_allclose(made.predict_float(X[:3]), runtime(long, X[:3]), rtol=1e-3, atol=1e-3)
