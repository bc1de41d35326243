"""Ranges of the inputs of networks: round ones or the caller's own, by names of columns, channels and inputs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model, runtime, single
from several_tensors import image_and_table, network, samples

import cloakwork as cw
from cloakwork.models.client_steps import Columns, Rescale, Standardise
from cloakwork.models.compile.scaled_columns import ScaledColumns
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate
from cloakwork.models.criteria.feature_ranges import are_round
from cloakwork.models.errors import CalibratedRangeWarning, CompileError

RNG = np.random.default_rng(0)
UNIT = np.array([1.0, 1000.0, 0.001, 30.0])
COLUMNS = RNG.normal(size=(400, 4)) * UNIT


def two_layers(rng: np.random.Generator) -> Any:
    """A classifier of columns of sizes UNIT."""
    arrays = {
        "w": (rng.standard_normal((4, 8)) / UNIT[:, None]).astype(np.float32),
        "v": rng.standard_normal((8, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
        helper.make_node("Relu", ["m"], ["a"], name="activation"),
        helper.make_node("MatMul", ["a", "v"], ["y"], name="second"),
    ]
    return model(nodes, [4], arrays)


NETWORK = two_layers(np.random.default_rng(1))
ROUND, OTHER = "ranges of features in round numbers", "ranges of features to all digits"


def told(compiled: CompiledModel) -> dict[str, int]:
    return {each["what"]: each["count"] for each in compiled.report()["discloses"]}


def rescale_of(compiled: CompiledModel) -> Rescale:
    (found,) = [step for step in compiled.program.input_steps if isinstance(step, Rescale)]
    return found


def agreement(compiled: CompiledModel, x: np.ndarray) -> float:
    clear = compiled.predict_float(x).argmax(axis=1)
    return float((compiled.predict(x, how="simulate", seed=1).argmax(axis=1) == clear).mean())


def test_ranges_of_columns_are_round_and_around_the_samples() -> None:
    compiled = cw.compile(NETWORK, COLUMNS)
    step = rescale_of(compiled)
    assert (step.lower < COLUMNS.min(axis=0)).all() and (step.upper > COLUMNS.max(axis=0)).all()
    assert all(are_round(low, high) for low, high in zip(step.lower.tolist(), step.upper.tolist(), strict=True))
    assert told(compiled)[ROUND] == 4 and OTHER not in told(compiled)
    assert agreement(compiled, COLUMNS) > 0.97


def test_columns_that_are_alike_have_one_round_range() -> None:
    x = np.random.default_rng(3).uniform(-0.9371, 2.0433, (300, 4))
    compiled = cw.compile(mlp(np.random.default_rng(2), [4, 6, 3]), x)
    assert compiled.client.input_range == (-1.0, 2.1) and told(compiled)[ROUND] == 1
    recorded = cw.compile(
        mlp(np.random.default_rng(2), [4, 6, 3]), calibrate(mlp(np.random.default_rng(2), [4, 6, 3]), x)
    )
    assert recorded.client.input_range == (-1.0, 2.1)


def test_exact_networks_keep_the_ends_of_the_samples() -> None:
    """Few bits of input have to serve the range alone, and whole numbers stay whole: 0 to 15 in four bits."""
    x = np.random.default_rng(3).integers(0, 16, (300, 4)).astype(np.float64)
    exact = {"precision": "exact_64", "input_bits": 4, "accumulator_bits": 5, "accuracy": 0}
    compiled = cw.compile(mlp(np.random.default_rng(2), [4, 3, 3]), x, **exact)
    np.testing.assert_array_equal(compiled.client.inputs(x), x)
    odd = cw.compile(mlp(np.random.default_rng(2), [4, 3, 3]), x * 1.01 + 0.123, **exact)
    assert odd.client.input_range[1] == pytest.approx(15 * 1.01 + 0.123)


def test_ranges_that_were_given_are_taken() -> None:
    given = {0: (-6.0, 6.25), "feature 2": (-0.0061, 0.006), 3: (-200.0, 200.0)}
    compiled = cw.compile(NETWORK, COLUMNS, ranges=given)
    step = rescale_of(compiled)
    assert [step.lower[i] for i in (0, 2, 3)] == [-6.0, -0.0061, -200.0]
    assert [step.upper[i] for i in (0, 2, 3)] == [6.25, 0.006, 200.0]
    assert told(compiled)[OTHER] == 2 and agreement(compiled, COLUMNS) > 0.95
    alike = cw.compile(mlp(np.random.default_rng(2), [4, 6, 3]), COLUMNS / UNIT, ranges={1: (-5, 5)})
    assert (rescale_of(alike).lower[1], rescale_of(alike).upper[1]) == (-5, 5)


def test_samples_beyond_a_given_range_are_told() -> None:
    with pytest.warns(CalibratedRangeWarning, match="ranges: .* of 400 samples .* range that was given") as caught:
        compiled = cw.compile(NETWORK, COLUMNS, ranges={3: (-20.0, 20.0)}, accuracy=0)
    assert "'feature 3'" in str(caught[0].message)
    with pytest.warns(CalibratedRangeWarning, match="1 of 1 samples .*'feature 3'"):
        far = compiled.predict(np.array([[0, 0, 0, 500.0]]))
    np.testing.assert_allclose(far, compiled.predict(np.array([[0, 0, 0, 20.0]])))


def test_a_channel_and_an_input_of_several() -> None:
    proto, x = image_and_table(np.random.default_rng(2)), samples(np.random.default_rng(3), 300)
    names = list(x)
    reach = {name: float(np.abs(x[name]).max()) * 1.25 for name in names}
    compiled = cw.compile(proto, x, accuracy=0, ranges={names[0]: (-reach[names[0]], reach[names[0]])})
    tensors = compiled.program.input_steps[0]
    first, second = (steps[-1] for steps in tensors.steps)
    assert first.upper.reshape(-1).tolist() == [reach[names[0]]]
    ends = zip(second.lower.reshape(-1).tolist(), second.upper.reshape(-1).tolist(), strict=True)
    assert all(are_round(low, high) for low, high in ends)
    with pytest.raises(CompileError, match="there is no feature 'column'; expected "):
        cw.compile(proto, x, accuracy=0, ranges={"column": (0, 1)})


def rounding(*names: str) -> Any:
    """A network that rounds its inputs itself."""
    nodes: list[Any] = []
    for name in names:
        nodes += [("QuantizeLinear", f"{name} s z", f"i{name}"), ("DequantizeLinear", f"i{name} s z", f"d{name}")]
    joined = " ".join(f"d{name}" for name in names)
    nodes += [("Concat", joined, "c", {"axis": 1}), ("MatMul", "c w", "h"), ("Relu", "h", "y")]
    constants = {"s": np.float32(0.125), "z": np.int8(0), "w": RNG.integers(-3, 4, (2 * len(names), 3)) * 0.5}
    return network(nodes, {name: [2] for name in names}, ["y"], constants)


@pytest.mark.parametrize(
    ("proto", "x", "ranges", "message"),
    [
        (NETWORK, COLUMNS, {"age": (0, 1)}, "no feature 'age'; expected feature "),
        (NETWORK, COLUMNS, {4: (0, 1)}, "numbers from 0 to 3, got 4"),
        (NETWORK, COLUMNS, {0: (1, 1)}, "two ascending finite numbers for 'feature 0', got 1 and 1"),
        (NETWORK, COLUMNS, {0: (0, float("nan"))}, "two ascending finite numbers for 'feature 0', got 0 and nan"),
        (NETWORK, COLUMNS, [(0, 1)], "expected a dict by name or number of a feature, got list"),
        (
            NETWORK,
            calibrate(NETWORK, COLUMNS),
            {0: (0, 1)},
            "expected samples beside it, not recorded ranges",
        ),
        (rounding("p"), None, {0: (0, 1)}, "the model's own quantiser .* says the range of its input"),
        (rounding("p", "q"), None, {"p": (0, 1)}, "the model's own quantiser .* says the range of its input"),
    ],
)
def test_what_is_wrong_is_named(proto: Any, x: Any, ranges: Any, message: str) -> None:
    with warnings.catch_warnings(), pytest.raises(CompileError, match=message):
        warnings.simplefilter("error")
        cw.compile(proto, x, ranges=ranges)


def test_a_scaler_becomes_part_of_a_network_that_starts_with_a_matrix() -> None:
    scaling = Standardise(COLUMNS.mean(axis=0) + np.array([0, 0, 7, 0]), np.array([0.5, 1e-3, -2e3, 1.0]))
    steps = (Columns(4, ("a", "b", "c", "d")), scaling)
    found = ScaledColumns.of(NETWORK, steps, COLUMNS, {"b": (-5000, 5000)}, rounded=True)
    assert found.steps == steps[:1] and found.ranges[1] == (-5000, 5000)  # type: ignore[index]
    assert all(are_round(*ends) for ends in found.ranges.values())
    values = cw.compile(found.model, COLUMNS, accuracy=0, ranges=found.ranges).predict_float(COLUMNS)
    expected = runtime(NETWORK, scaling(COLUMNS))
    np.testing.assert_allclose(values, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("proto", [rounding("p"), single("Relu", [2])], ids=["quantiser", "function"])
def test_a_scaler_stays_the_clients_elsewhere(proto: Any) -> None:
    steps = (Columns(2), Standardise(np.ones(2), np.full(2, 2.0)))
    found = ScaledColumns.of(proto, steps, COLUMNS[:, :2], None, rounded=True)
    assert found.model is proto and found.steps == steps and not found.ranges
    np.testing.assert_array_equal(found.samples, (COLUMNS[:, :2] - 1) * 2)
