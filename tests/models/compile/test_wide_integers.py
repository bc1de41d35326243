"""Choices, ReLUs and maxima of wide integers in exact programs: nothing is rounded that is integer already; over ranges, at ties, encrypted."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from cases import in_tiers
from onnx import ModelProto, NodeProto, helper
from onnx_models import model, runtime

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import NoParameterSetError, RoundedIntegersWarning


def compiled(
    proto: ModelProto, x: np.ndarray, input_bits: int, activation_bits: int = 3, **options: Any
) -> CompiledModel:
    settings = {"input_bits": input_bits, "activation_bits": activation_bits}
    return cw.compile(proto, x, **{"precision": "exact", **settings, "weight_bits": 8, "accuracy": 0, **options})


def integers(input_bits: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Samples that reach both ends, of every column."""
    x = np.random.default_rng(seed).integers(0, 1 << input_bits, shape).astype(np.float32)
    x[0], x[1] = 0, (1 << input_bits) - 1
    return x


def equals(made: CompiledModel, proto: ModelProto, x: np.ndarray, simulated: int = 200) -> None:
    """In the clear, and with the noise of a key."""
    expected = runtime(proto, x)
    np.testing.assert_array_equal(np.rint(2 * np.asarray(made.predict(x))) / 2, expected)
    assert np.abs(np.asarray(made.predict(x)) - expected).max() < 1e-6
    noisy = np.asarray(made.predict(x[:simulated], how="simulate", seed=11))
    allowed = 1e-6 if made.program.output_unit else 0.01 * np.ptp(expected)  # its noise is more than half a unit there
    assert np.abs(noisy - expected[:simulated]).max() < allowed
    assert made.report()["failure_log2"] <= -128


def choice(weights: np.ndarray, bias: list[float], condition: str = "Less") -> ModelProto:
    """Where(a < b, p, q) of four sums."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "bias"], ["sums"]),
        helper.make_node("Split", ["sums"], ["a", "b", "p", "q"], axis=1, num_outputs=4),
        helper.make_node(condition, ["a", "b"], ["c"]),
        helper.make_node("Where", ["c", "p", "q"], ["y"], name="choice"),
    ]
    return model(nodes, [len(weights)], {"w": weights, "bias": np.array(bias, dtype=np.float32)}, opset=18)


# The third and the fourth column chosen from: their difference has as many bits, sign included.
SUMS = {
    10: (5, [[1, 2, 9, -1], [2, 1, 0, 3], [1, 1, -2, 1]]),
    13: (8, [[3, 1, 6, -2], [1, 3, -3, 2], [-2, -2, 1, -2]]),
    15: (8, [[9, -4, 30, 1], [-4, 9, 1, 10], [5, 5, -10, 11]]),
    16: (8, [[9, -4, 40, -10], [-4, 9, 1, 20], [5, 5, -40, 10]]),
}


@pytest.mark.parametrize(
    ("bits", "condition"), in_tiers(product(SUMS, ("Less", "Equal")), quick=[(10, "Equal"), (15, "Less")])
)
def test_choices_of_sums_of_many_bits(bits: int, condition: str) -> None:
    input_bits, weights = SUMS[bits]
    x = integers(input_bits, (1500, 3))
    x[2:700, 1] = x[2:700, 0]
    if condition == "Less":
        x[300:700, 1] = np.minimum(x[300:700, 1] + 1, x.max())
    proto = choice(np.array(weights, dtype=np.float32), [0, 0, 17, -450], condition)
    made = compiled(proto, x, input_bits)
    equals(made, proto, x)
    report = made.report()
    assert report["parameter_set"] == "large16" and 6 < report["bootstraps"] < 40 and made.program.output_unit > 0


def test_a_choice_by_two_comparisons_one_of_them_negated() -> None:
    """The condition is a sum of bits with a constant; a choice of a choice, added to what it was chosen from."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["sums"]),
        helper.make_node("Split", ["sums"], ["a", "b", "p", "q", "t"], axis=1, num_outputs=5),
        helper.make_node("Less", ["a", "b"], ["c"]),
        helper.make_node("Greater", ["p", "t"], ["d"]),
        helper.make_node("Not", ["d"], ["e"]),
        helper.make_node("Where", ["c", "p", "q"], ["inner"]),
        helper.make_node("Where", ["e", "inner", "t"], ["outer"]),
        helper.make_node("Add", ["outer", "a"], ["y"]),
    ]
    weights = np.random.default_rng(21).integers(-9, 10, (3, 5)).astype(np.float32)
    proto = model(nodes, [3], {"w": weights}, opset=18)
    x = integers(8, (600, 3), seed=5)
    equals(compiled(proto, x, 8), proto, x)


def layers(weights: list[np.ndarray], biases: list[list[float]]) -> ModelProto:
    """Dense layers with ReLUs between them, and a sum of the last one's results."""
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    wire = "x"
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        constants |= {f"w{number}": weight.astype(np.float32), f"b{number}": np.array(bias, dtype=np.float32)}
        last = number == len(weights) - 1
        nodes.append(helper.make_node("Gemm", [wire, f"w{number}", f"b{number}"], ["y" if last else f"s{number}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"s{number}"], [f"r{number}"], name=f"relu{number}"))
            wire = f"r{number}"
    return model(nodes, [weights[0].shape[0]], constants)


FIRST = np.array([[3, 1, -2], [-5, 2, 7], [1, -1, 1]])
SECOND = np.array([[1, 2], [1, -1], [3, 1]])


@pytest.mark.parametrize("input_bits", in_tiers((2, 3, 5, 8, 9), quick=(3, 8)))
def test_relu_of_sums_of_integers(input_bits: int) -> None:
    """A row that is never negative on few bits; half an integer among the biases."""
    proto = layers([FIRST, SECOND], [[-31, 0.5 if input_bits < 4 else 9, 300], [2, 0]])
    x = integers(input_bits, (1000, 3), seed=2)
    equals(compiled(proto, x, input_bits), proto, x)


def test_relu_behind_relu() -> None:
    proto = layers([FIRST, SECOND, np.array([[1], [-2]])], [[-9, 5, 0], [-200, 7], [0]])
    x = integers(6, (1000, 3), seed=3)
    equals(compiled(proto, x, 6), proto, x)


@pytest.mark.parametrize(
    ("operator", "columns", "input_bits"),
    in_tiers(
        [(*each, bits) for each in (("ReduceMax", 5), ("ReduceMin", 3), ("ReduceMax", 2)) for bits in (3, 8)],
        quick=[("ReduceMin", 3, 3), ("ReduceMax", 2, 8)],
    ),
)
def test_extremes_along_an_axis(operator: str, columns: int, input_bits: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node(operator, ["s", "axes"], ["y"], keepdims=1),
    ]
    weights = np.random.default_rng(columns).integers(-9, 10, (3, columns)).astype(np.float32)
    proto = model(nodes, [3], {"w": weights, "axes": np.array([1])}, opset=18)
    x = integers(input_bits, (600, 3), seed=4)
    equals(compiled(proto, x, input_bits), proto, x)


@pytest.mark.parametrize("relu", in_tiers((False, True), quick=(True,)))
def test_max_pool_of_a_convolution(relu: bool) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]) if relu else helper.make_node("Identity", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    random = np.random.default_rng(8)
    kernels, last = random.integers(-5, 6, (1, 1, 2, 2)), random.integers(-3, 4, (4, 2))
    proto = model(nodes, [1, 5, 5], {"w": kernels.astype(np.float32), "v": last.astype(np.float32)})
    x = integers(5, (300, 1, 5, 5), seed=6)
    equals(compiled(proto, x, 5), proto, x)


def test_maxima_of_constants_and_sums_behind_a_relu() -> None:
    """What reads them reads nothing else of their scale."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["s"]),
        helper.make_node("Min", ["s", "bound"], ["m"]),
        helper.make_node("MatMul", ["m", "v"], ["y"]),
    ]
    constants = {
        "w": FIRST.astype(np.float32),
        "bound": np.array([200, -300, 10_000], dtype=np.float32),
        "v": np.array([[3], [1], [5]], dtype=np.float32),
    }
    proto = model(nodes, [3], constants)
    x = integers(8, (800, 3), seed=9)
    equals(compiled(proto, x, 8), proto, x)


# --- encrypted -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session() -> tuple[ClientKey, Session]:
    """Of a set that is no toy."""
    key = ClientKey._from_entropy(parameter_set("large16"), bytes(range(7, 39)))
    return key, Session(key.evaluation_keys())


def encrypted(made: CompiledModel, x: np.ndarray, session: tuple[ClientKey, Session]) -> np.ndarray:
    assert made.report()["parameter_set"] == "large16" and made.program.output_unit > 0
    return np.asarray(made.predict(x, how="encrypted", key=session[0], session=session[1]))


@pytest.mark.tier("all")
def test_choices_encrypted(session: tuple[ClientKey, Session]) -> None:
    proto = choice(np.array(SUMS[13][1], dtype=np.float32), [0, 0, 17, -450])
    x = integers(8, (200, 3))
    made = compiled(proto, x, 8)
    x[2:6] = [[7, 7, 3], [7, 8, 3], [8, 7, 3], [255, 254, 0]]
    np.testing.assert_array_equal(encrypted(made, x[:12], session), runtime(proto, x[:12]))


@pytest.mark.tier("all")
def test_relu_encrypted(session: tuple[ClientKey, Session]) -> None:
    proto = layers([FIRST, SECOND], [[-31, 1, 4], [2, 0]])
    x = integers(8, (200, 3), seed=1)
    made = compiled(proto, x, 8)
    np.testing.assert_array_equal(encrypted(made, x[:6], session), runtime(proto, x[:6]))


@pytest.mark.tier("all")
def test_extremes_along_an_axis_encrypted(session: tuple[ClientKey, Session]) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("ReduceMax", ["s", "axes"], ["y"], keepdims=1),
    ]
    proto = model(nodes, [3], {"w": FIRST.astype(np.float32), "axes": np.array([1])}, opset=18)
    x = integers(7, (200, 3), seed=4)
    made = compiled(proto, x, 7)
    np.testing.assert_array_equal(encrypted(made, x[:6], session), runtime(proto, x[:6]))


# --- what is rounded, and what is refused ---------------------------------------------------------------------------------------------


def test_a_relu_of_real_numbers_is_rounded() -> None:
    random = np.random.default_rng(0)
    proto = layers([random.normal(size=(3, 4)), random.normal(size=(4, 2))], [[0.1, 0.2, 0.3, 0.4], [0, 0]])
    x = random.normal(size=(300, 3)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = compiled(proto, x, 3)
    formulas = [step.operator for node in made.program.graph.lookups for step in node.steps]
    assert "QuantizeLinear" in formulas or "Table" in formulas
    assert np.abs(made.predict(x) - runtime(proto, x)).max() > 1e-3


def test_integers_that_no_set_serves_are_rounded_with_a_warning() -> None:
    """Sums grow by more than two bits from layer to layer, up to 17."""
    inner = [np.array([[3, -2], [2, 5]]), np.array([[4, -2], [-3, 5]]), np.array([[5, -4], [2, 3]])]
    proto = layers([FIRST[:, :2], *inner, np.array([[1], [1]])], [[-9, 5], [0, 0], [7, 0], [1, 1], [0]])
    x = integers(6, (300, 3), seed=3)
    with pytest.warns(RoundedIntegersWarning, match=r"results of 'relu0', .* are rounded to 2 bits.*too many"):
        compiled(proto, x, 6, activation_bits=2, sets=["large16"])


def test_choices_that_are_too_wide_are_refused_with_bits() -> None:
    proto = choice(np.array(SUMS[16][1], dtype=np.float32), [0, 0, 17, -450])
    with pytest.raises(NoParameterSetError, match=r"'choice' \(Gate\(x\)\) reads an accumulator of 1\d bits.*too many"):
        compiled(proto, integers(10, (300, 3)), 10, sets=["large16"])
