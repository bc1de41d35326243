"""Comparisons of computed values in exact programs: over whole ranges, at ties, chosen between, encrypted; and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from cases import in_tiers
from onnx import ModelProto, NodeProto, helper
from onnx_models import model, runtime
from sessions import Sessions

import cloakwork as cw
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate
from cloakwork.models.errors import CompileError, NoParameterSetError, UnsupportedOperatorError

TOY = parameter_set("toy_large")
OPERATORS = ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
FLOATS = {"to": 1}


def compiled(
    proto: ModelProto, x: np.ndarray, input_bits: int = 8, activation_bits: int = 4, **options: Any
) -> CompiledModel:
    settings = {"input_bits": input_bits, "activation_bits": activation_bits}
    return cw.compile(proto, x, **{"precision": "exact", **settings, "weight_bits": 8, "accuracy": 0, **options})


def toy(proto: ModelProto, x: np.ndarray, **options: Any) -> CompiledModel:
    return compiled(proto, x, sets=[TOY], precision="exact_64", **options)


def encrypted(sessions: Sessions, made: CompiledModel, x: np.ndarray) -> np.ndarray:
    key, session = sessions(TOY.name)
    return np.asarray(made.predict(x, how="encrypted", key=key, session=session))


def as_number(nodes: list[NodeProto], width: int) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """Booleans `c` [batch, width] as the digits of one number: a sum, so that the server has to compare."""
    cast = helper.make_node("Cast", ["c"], ["f"], **FLOATS)
    digits = (2.0 ** np.arange(width, dtype=np.float32))[:, None]
    return [*nodes, cast, helper.make_node("MatMul", ["f", "digits"], ["y"])], {"digits": digits}


def of_two(operator: str, weights: np.ndarray, bias: np.ndarray) -> ModelProto:
    """operator(x weights[0] + bias, x weights[1]) of two columns or more."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["p"]),
        helper.make_node("MatMul", ["x", "v"], ["q"]),
        helper.make_node(operator, ["p", "q"], ["c"], name="compare"),
    ]
    nodes, digits = as_number(nodes, weights.shape[2])
    return model(nodes, [weights.shape[1]], {"w": weights[0], "v": weights[1], "b": bias, **digits})


def both_ways(bias: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias that compare x0 + bias with x1, and x1 + bias with x0."""
    turned = np.eye(2, dtype=np.float32)
    return np.stack([turned, turned[::-1]]), np.full(2, bias, dtype=np.float32)


def compared(operator: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The number [samples, 1] that `as_number` makes."""
    held = {
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Equal": np.equal,
    }
    bits = held[operator](left, right)
    return (bits * 2.0 ** np.arange(bits.shape[1])).sum(axis=1)[:, None]


@pytest.mark.parametrize("operator", in_tiers(OPERATORS, quick=("Less", "Equal")))
def test_all_pairs_of_eight_bits(operator: str) -> None:
    """65,536 pairs: every difference of nine bits."""
    weights, bias = both_ways(0.0)
    x = np.array(list(product(range(256), repeat=2)), dtype=np.float32)
    made = compiled(of_two(operator, weights, bias), x)
    np.testing.assert_array_equal(made.predict(x), compared(operator, x, x[:, ::-1]))
    report = made.report()
    assert report["parameter_set"] == "large16" and 4 <= report["bootstraps"] <= 16
    assert report["failure_log2"] <= -128 and made.program.output_unit > 0


@pytest.mark.parametrize("operator", in_tiers(OPERATORS, quick=("LessOrEqual", "Greater")))
def test_sums_of_fifteen_bits_and_a_sign(operator: str) -> None:
    """Around ties, where a wrong lowest bit shows, and anywhere."""
    random = np.random.default_rng(3)
    weights = np.array([[[60, 1], [1, 0], [0, 3]], [[-60, 0], [0, 0], [-1, -99]]], dtype=np.float32)
    bias = np.array([-31.0, 0], dtype=np.float32)
    proto = of_two(operator, weights, bias)
    x = random.integers(0, 256, (3000, 3)).astype(np.float32)
    x[0], x[1] = 0, 255
    x[2:1500, 0], x[2:1500, 1:] = 0, random.integers(14, 18, (1498, 2))  # 120 x0 + x1 + x2 - 31 close to 0
    made = compiled(proto, x)
    expected = compared(operator, x @ weights[0] + bias, x @ weights[1])
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(expected[:40], runtime(proto, x[:40]))
    np.testing.assert_array_equal(made.predict(x), expected)
    np.testing.assert_array_equal(made.predict(x[:500], how="simulate", seed=5), expected[:500])
    assert made.report()["failure_log2"] <= -128


@pytest.mark.parametrize(
    ("operator", "constant_first"),
    in_tiers(
        product(("Less", "GreaterOrEqual", "Equal"), (False, True)), quick=[("GreaterOrEqual", False), ("Less", True)]
    ),
)
def test_with_a_threshold_of_the_model(operator: str, constant_first: bool) -> None:
    weights, thresholds = np.array([[3, 1], [-2, 5], [1, -7]], dtype=np.float32), np.array([11, -40], dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node(operator, ["t", "s"] if constant_first else ["s", "t"], ["c"]),
    ]
    nodes, digits = as_number(nodes, 2)
    proto = model(nodes, [3], {"w": weights, "t": thresholds, **digits})
    x = np.random.default_rng(0).integers(0, 64, (2000, 3)).astype(np.float32)
    x[0], x[1] = 0, 63
    made = compiled(proto, x, input_bits=6)
    np.testing.assert_array_equal(made.predict(x), runtime(proto, x))


def test_a_narrow_difference_takes_one_look_up() -> None:
    x = np.array(list(product(range(4), repeat=2)), dtype=np.float32)
    proto = of_two("Less", *both_ways(0.0))
    made = compiled(proto, x, input_bits=2)
    assert made.report()["bootstraps"] == 2 and made.report()["parameter_set"] != "large16"
    np.testing.assert_array_equal(made.predict(x), runtime(proto, x))


@pytest.mark.parametrize("operator", ["Less", "Equal"])
def test_encrypted_at_ties_and_next_to_them(sessions: Sessions, operator: str) -> None:
    proto = of_two(operator, *both_ways(-3.0))
    pairs = [[0, 0], [255, 255], [130, 127], [131, 127], [129, 127], [3, 0], [2, 0], [4, 0], [255, 0], [0, 255]]
    x = np.array(pairs, dtype=np.float32)
    made = toy(proto, x)
    assert made.report()["bootstraps"] > 2
    np.testing.assert_array_equal(encrypted(sessions, made, x), runtime(proto, x))


def oblique_tree(leaves: list[float]) -> ModelProto:
    """Three linear forms of 8 columns against thresholds; the third or the second decides by the first."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["forms"]),
        helper.make_node("Less", ["forms", "t"], ["c"], name="splits"),
        helper.make_node("Split", ["c"], ["c0", "c1", "c2"], axis=1, num_outputs=3),
        helper.make_node("Where", ["c1", "l0", "l1"], ["below"]),
        helper.make_node("Where", ["c2", "l2", "l3"], ["above"]),
        helper.make_node("Where", ["c0", "below", "above"], ["y"], name="root"),
    ]
    constants = {
        "w": random.integers(-7, 8, (8, 3)).astype(np.float32),
        "t": np.array([5.0, -11, 20], dtype=np.float32),
        **{f"l{i}": np.array([[leaf]], dtype=np.float32) for i, leaf in enumerate(leaves)},
    }
    return model(nodes, [8], constants, opset=18)


@pytest.mark.parametrize(
    "leaves", in_tiers([[0, 1, 2, 1], [1.5, 3.25, -2.0, 7.0], [-1, -1, 3, 4]], quick=[[1.5, 3.25, -2.0, 7.0]])
)
def test_an_oblique_tree(sessions: Sessions, leaves: list[float]) -> None:
    proto = oblique_tree(leaves)
    x = np.random.default_rng(1).integers(0, 16, (600, 8)).astype(np.float32)
    x[0], x[1] = 0, 15
    made = compiled(proto, x, input_bits=4)
    np.testing.assert_array_equal(made.predict(x), runtime(proto, x))
    on_toy = toy(proto, x, input_bits=4)
    np.testing.assert_array_equal(encrypted(sessions, on_toy, x[:8]), runtime(proto, x[:8]))


def test_a_choice_between_sums(sessions: Sessions) -> None:
    """Where(a < b, a + 2 b, 3 - b): both small, their difference and a bit read by one look-up."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "offset"], ["sums"]),
        helper.make_node("Split", ["sums"], ["a", "b", "first", "second"], axis=1, num_outputs=4),
        helper.make_node("Less", ["a", "b"], ["c"]),
        helper.make_node("Where", ["c", "first", "second"], ["y"]),
    ]
    weights = np.array([[1, 0, 1, 0], [0, 1, 2, -1]], dtype=np.float32)
    proto = model(nodes, [2], {"w": weights, "offset": np.array([0, 0, 0, 3], dtype=np.float32)}, opset=18)
    x = np.array(list(product(range(4), repeat=2)), dtype=np.float32)
    made = toy(proto, x, input_bits=2, activation_bits=6)
    np.testing.assert_array_equal(made.predict(x), runtime(proto, x))
    np.testing.assert_array_equal(encrypted(sessions, made, x), runtime(proto, x))


def extremes(columns: int) -> ModelProto:
    """max(a, b) + 3 min(a, b) of two sums of the columns."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["sums"]),
        helper.make_node("Split", ["sums"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Max", ["a", "b"], ["m"]),
        helper.make_node("Min", ["a", "b"], ["n"]),
        helper.make_node("Concat", ["m", "n"], ["both"], axis=1),
        helper.make_node("MatMul", ["both", "times"], ["y"]),
    ]
    weights = np.eye(2) if columns == 2 else np.array([[9, 1], [2, -5], [1, 4]])
    constants = {"w": weights.astype(np.float32), "times": np.array([[1], [3]], dtype=np.float32)}
    return model(nodes, [columns], constants, opset=18)


@pytest.mark.parametrize(
    ("columns", "input_bits"), in_tiers([(2, 3), (2, 8), (2, 11), (3, 4), (3, 6)], quick=[(2, 3), (3, 4)])
)
def test_extremes_of_two_sums(columns: int, input_bits: int) -> None:
    """By one look-up of a difference where it fits, put together of bits elsewhere."""
    x = np.random.default_rng(4).integers(0, 1 << input_bits, (2000, columns)).astype(np.float32)
    x[0], x[1], x[2:200] = 0, (1 << input_bits) - 1, x[2:200, :1]
    proto = extremes(columns)
    made = compiled(proto, x, input_bits=input_bits, activation_bits=3)
    np.testing.assert_allclose(made.predict(x), runtime(proto, x), atol=1e-6)
    assert made.report()["failure_log2"] <= -128


def test_extremes_encrypted(sessions: Sessions) -> None:
    x = np.array([[0, 0], [255, 255], [0, 255], [255, 0], [128, 127], [127, 128], [200, 3], [16, 15]], dtype=np.float32)
    proto = extremes(2)
    made = toy(proto, x)
    assert made.report()["bootstraps"] > 4 and made.program.output_unit > 0
    np.testing.assert_array_equal(encrypted(sessions, made, x), runtime(proto, x))


def test_a_chain_of_extremes() -> None:
    """The least of four, and how many are within 5 of it."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c", "d"], axis=1, num_outputs=4),
        helper.make_node("Min", ["a", "b", "c", "d"], ["least"]),
        helper.make_node("Sub", ["x", "least"], ["above"]),
        helper.make_node("Less", ["above", "five"], ["near"]),
        helper.make_node("Cast", ["near"], ["f"], **FLOATS),
        helper.make_node("ReduceSum", ["f", "axes"], ["y"]),
    ]
    proto = model(nodes, [4], {"five": np.float32(5), "axes": np.array([1])}, opset=18)
    x = np.random.default_rng(2).integers(0, 256, (800, 4)).astype(np.float32)
    x[0], x[1], x[2:400] = 0, 255, x[2:400, :1] + np.random.default_rng(3).integers(0, 8, (398, 4))
    x = np.minimum(x, 255)
    made = compiled(proto, x)
    np.testing.assert_array_equal(np.asarray(made.predict(x)).reshape(-1), runtime(proto, x).reshape(-1))


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_extremes_with_constants(operator: str) -> None:
    """Of sums of which every third integer occurs, and a bound that is none of them."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["sums"]),
        helper.make_node(operator, ["sums", "bound"], ["m"]),
        helper.make_node("MatMul", ["m", "times"], ["y"]),
    ]
    constants = {
        "w": np.array([[3, 1], [-3, 2]], dtype=np.float32),
        "b": np.array([2, -5], dtype=np.float32),
        "bound": np.array([7, 100], dtype=np.float32),
        "times": np.array([[1], [2]], dtype=np.float32),
    }
    x = np.array(list(product(range(0, 64, 3), repeat=2)), dtype=np.float32)
    proto = model(nodes, [2], constants)
    made = compiled(proto, x, input_bits=6)
    np.testing.assert_allclose(made.predict(x), runtime(proto, x), atol=1e-6)
    np.testing.assert_array_equal(made.predict(x, how="simulate", seed=2), made.predict(x))


def test_a_choice_by_an_equality_that_hardly_ever_holds() -> None:
    """No grid of points meets it, calibration samples neither."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], axis=1, num_outputs=3),
        helper.make_node("Equal", ["a", "eleven"], ["bit"]),
        helper.make_node("Where", ["bit", "b", "c"], ["y"]),
    ]
    proto = model(nodes, [3], {"eleven": np.array([[11]], dtype=np.float32)}, opset=18)
    x = np.random.default_rng(0).integers(0, 16, (300, 3)).astype(np.float32)
    x[0], x[1] = 0, 15
    never = x[x[:, 0] != 11]
    for samples in (x, never):
        made = compiled(proto, samples, input_bits=4, activation_bits=5)
        np.testing.assert_array_equal(made.predict(x), runtime(proto, x))


def test_hysteresis() -> None:
    """On above 40, off below 20, else as before, which is a column of its own of the same range, 0 or 63."""
    nodes = [
        helper.make_node("Split", ["x"], ["level", "state"], axis=1, num_outputs=2),
        helper.make_node("Greater", ["state", "middle"], ["was_on"]),
        helper.make_node("Cast", ["was_on"], ["before"], **FLOATS),
        helper.make_node("Greater", ["level", "high"], ["on"]),
        helper.make_node("Less", ["level", "low"], ["off"]),
        helper.make_node("Where", ["off", "zero", "before"], ["kept"]),
        helper.make_node("Where", ["on", "one", "kept"], ["y"]),
    ]
    numbers = {"high": 40, "low": 20, "middle": 31, "zero": 0, "one": 1}
    proto = model(nodes, [2], {name: np.array([[n]], dtype=np.float32) for name, n in numbers.items()}, opset=18)
    x = np.array(list(product(range(64), (0, 63))), dtype=np.float32)
    made = compiled(proto, x, input_bits=6, activation_bits=2)
    np.testing.assert_array_equal(made.predict(x), runtime(proto, x))
    np.testing.assert_array_equal(made.predict(x, how="simulate", seed=2), made.predict(x))


def test_prototypes_within_a_radius() -> None:
    """How many of 8 prototypes are nearer than a radius: squares of the columns are the client's, distances linear in them."""
    random = np.random.default_rng(7)
    prototypes = random.integers(0, 8, (8, 2)).astype(np.float32)
    weights = np.concatenate([-2 * prototypes.T, np.ones((2, 8))]).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["distances"]),
        helper.make_node("LessOrEqual", ["distances", "radius"], ["c"]),
        helper.make_node("Cast", ["c"], ["f"], **FLOATS),
        helper.make_node("ReduceSum", ["f", "axes"], ["y"]),
    ]
    constants = {"w": weights, "b": (prototypes**2).sum(axis=1), "radius": np.float32(13), "axes": np.array([1])}
    proto = model(nodes, [4], constants)
    points = np.array(list(product(range(8), repeat=2)), dtype=np.float32)
    x = np.concatenate([points, points**2], axis=1)
    made = compiled(proto, np.concatenate([x, np.full((1, 4), 63)]), input_bits=6)
    expected = (np.square(points[:, None] - prototypes[None]).sum(axis=2) <= 13).sum(axis=1)
    np.testing.assert_array_equal(np.asarray(made.predict(x)).reshape(-1), expected)


def test_comparisons_of_a_program_in_a_file(sessions: Sessions, tmp_path: Any) -> None:
    x = np.random.default_rng(1).integers(0, 16, (100, 8)).astype(np.float32)
    made = toy(oblique_tree([1.5, 3.25, -2.0, 7.0]), x, input_bits=4)
    made.save(tmp_path / "tree.clkm")
    loaded = CompiledModel.load(tmp_path / "tree.clkm")
    np.testing.assert_array_equal(loaded.predict(x), made.predict(x))
    np.testing.assert_array_equal(encrypted(sessions, loaded, x[:3]), made.predict(x[:3]))


def test_the_compilers_check_counts_no_circle_as_outside() -> None:
    x = np.random.default_rng(1).integers(0, 16, (400, 8)).astype(np.float32)
    made = compiled(oblique_tree([0, 1, 2, 1]), x, input_bits=4, accuracy=0.99)
    check = made.report()["check"]
    assert check["value"] > 0.9999 and check["outside_share"] == 0


# --- what is refused -----------------------------------------------------------------------------------------------------------------


def test_ranges_too_wide_are_refused_with_bits() -> None:
    weights = np.array([[[127, 1], [1, 1]], [[0, 0], [126, 0]]], dtype=np.float32)
    proto = of_two("Less", weights, np.zeros(2, dtype=np.float32))
    x = np.random.default_rng(0).integers(0, 4096, (200, 2)).astype(np.float32)
    with pytest.raises(
        NoParameterSetError,
        match=r"'compare' \(Less\(x\)\) reads an accumulator of 2\d bits, sign included.*at most 1\d fit|are compared",
    ):
        compiled(proto, x, input_bits=12, sets=["large16"])


def test_extremes_at_another_scale_are_refused() -> None:
    """A third of an extreme: no sum of halves of what it compares."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Max", ["a", "b"], ["m"]),
        helper.make_node("Min", ["a", "b"], ["n"]),
        helper.make_node("Mul", ["m", "n"], ["y"], name="product"),
    ]
    x = np.random.default_rng(0).integers(0, 256, (200, 2)).astype(np.float32)
    with pytest.raises(NoParameterSetError, match="'product'.*at most"):
        compiled(model(nodes, [2], {}, opset=18), x, activation_bits=12)


def test_functions_of_many_steps_are_refused() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("Tanh", ["s"], ["a"], name="bend"),
        helper.make_node("MatMul", ["a", "v"], ["y"]),
    ]
    weights = np.array([[0.01, 0.02], [0.013, -0.01]], dtype=np.float32)
    proto = model(nodes, [2], {"w": weights, "v": np.ones((2, 1), dtype=np.float32)})
    x = np.random.default_rng(0).integers(0, 256, (200, 2)).astype(np.float32)
    with pytest.raises(
        NoParameterSetError,
        match=r"'bend'.*it has \d+ steps, and at most 64 that are not alike are found by comparisons",
    ):
        compiled(proto, x, activation_bits=8)


@pytest.mark.parametrize("operator", ["Less", "Equal", "Max", "Min"])
def test_shapes_that_do_not_broadcast(operator: str) -> None:
    nodes = [helper.make_node(operator, ["x", "t"], ["y"], name="odd")]
    with pytest.raises(UnsupportedOperatorError, match=r"'odd'.*do not broadcast"):
        compiled(model(nodes, [3], {"t": np.zeros(2, dtype=np.float32)}), np.zeros((4, 3), dtype=np.float32))


@pytest.mark.parametrize("operator", ["Less", "Greater", "Max", "Min"])
def test_thresholds_that_are_no_numbers(operator: str) -> None:
    nodes = [helper.make_node(operator, ["x", "t"], ["y"], name="odd")]
    with pytest.raises(UnsupportedOperatorError, match=r"'odd'.*not finite"):
        compiled(model(nodes, [3], {"t": np.full(3, np.nan, dtype=np.float32)}), np.zeros((4, 3), dtype=np.float32))


def test_constants_to_choose_from_that_are_no_numbers() -> None:
    nodes = [
        helper.make_node("Less", ["x", "t"], ["c"]),
        helper.make_node("Where", ["c", "x", "bad"], ["y"], name="odd"),
    ]
    constants = {"t": np.zeros(3, dtype=np.float32), "bad": np.full(3, np.nan, dtype=np.float32)}
    with pytest.raises(UnsupportedOperatorError, match=r"'odd'.*not finite"):
        compiled(model(nodes, [3], constants), np.zeros((4, 3), dtype=np.float32))


def test_recorded_ranges_do_not_say_how_far_choices_are_apart() -> None:
    proto = oblique_tree([0, 1, 2, 1])
    x = np.random.default_rng(1).integers(0, 16, (100, 8)).astype(np.float32)
    seen = calibrate(proto, x, exact=True)
    with pytest.raises(CompileError, match="expected samples, not recorded ranges"):
        cw.compile(proto, seen, precision="exact")
