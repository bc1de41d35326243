"""The parts that keep ordinary networks accurate: tails, equalised look-ups, rounding by data, rescaled inputs, the compiler's check of its work."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.models.approximate.integer_rows import Compensation, rounded
from cloakwork.models.approximate.statistics import statistics
from cloakwork.models.calibration import BEYOND, largest, tail_end
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate
from cloakwork.models.errors import AccuracyError, AccuracyWarning, CalibratedRangeWarning, CompileError
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.bound_ranges import bound_ranges
from cloakwork.models.passes.equalise_lookups import equalise_lookups
from cloakwork.models.passes.rescale_input import InputRanges, rescale_input
from cloakwork.models.runtime.interpreter import interpret, simulate


def two_layers(rng: np.random.Generator, features: int, hidden: int, unit: np.ndarray, activation: str = "Relu"):
    """A classifier of columns of sizes `unit`, its channels of very different range."""
    spread = 10.0 ** rng.uniform(-2, 1, hidden)
    arrays = {
        "w": (rng.standard_normal((features, hidden)) / unit[:, None] * spread).astype(np.float32),
        "b": (rng.standard_normal(hidden) * spread).astype(np.float32),
        "v": (rng.standard_normal((hidden, 4)) / spread[:, None]).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
        helper.make_node("Add", ["m", "b"], ["h"], name="bias"),
        helper.make_node(activation, ["h"], ["a"], name="activation"),
        helper.make_node("MatMul", ["a", "v"], ["y"], name="second"),
    ]
    return model(nodes, [features], arrays)


def agreement(made: CompiledModel, x: np.ndarray, seed: int = 3) -> float:
    clear = made.predict_float(x).argmax(axis=1)
    return float((made.predict(x, how="simulate", seed=seed).argmax(axis=1) == clear).mean())


@pytest.mark.parametrize("activation", ["Relu", "Tanh"])
def test_columns_and_channels_of_very_different_size(activation: str) -> None:
    """Both were fatal: one scale for all inputs, and a narrow channel that takes the bits of its layer."""
    rng = np.random.default_rng(5)
    unit = 10.0 ** rng.uniform(-3, 4, 20)
    x = (rng.standard_normal((900, 20)) + rng.uniform(-2, 2, 20)) * unit
    made = cw.compile(two_layers(rng, 20, 24, unit, activation), x[:400])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibratedRangeWarning)
        assert agreement(made, x[400:]) >= 0.96
    check = made.report()["check"]
    assert check["measure"] == "agreement" and check["value"] >= 0.97 and set(check["layers"]) >= {"first", "second"}


def test_values_outside_of_a_column_are_named_and_saturate() -> None:
    rng = np.random.default_rng(6)
    unit = np.array([1000.0, 1.0, 0.01])
    x = rng.uniform(-1, 1, (400, 3)) * unit
    made = cw.compile(two_layers(rng, 3, 12, unit), x)
    far, end = x[:1].copy(), x[:1].copy()
    far[0, 1], end[0, 1] = 50.0, made.client.input_steps[0].upper[1]
    with pytest.warns(CalibratedRangeWarning, match="1 of 1 samples"):
        found = made.predict(far)
    np.testing.assert_allclose(found, made.predict(end))


def test_rescaling_keeps_the_model_and_leaves_alike_columns_alone() -> None:
    rng = np.random.default_rng(7)
    unit = np.array([500.0, 2.0, 0.05, 1.0])
    graph = restructure(import_onnx(two_layers(rng, 4, 6, unit)))
    x = rng.standard_normal((300, 4)) * unit + unit
    rescaled, step = rescale_input(graph, x, InputRanges())
    assert step is not None
    inside = np.clip(x, step.lower, step.upper)
    np.testing.assert_allclose(interpret(rescaled, step(x)), interpret(graph, inside), rtol=1e-9, atol=1e-9)
    assert np.abs(step(x)).max() <= 1 + 1e-12
    assert rescale_input(graph, rng.standard_normal((300, 4)), InputRanges())[1] is None
    pixels = rng.uniform(0, 1, (300, 4)) * (rng.random((300, 4)) < [0.01, 0.9, 0.9, 0.9])  # one is hardly ever on
    assert rescale_input(graph, pixels, InputRanges())[1] is None


def test_equalised_lookups_are_the_same_function() -> None:
    rng = np.random.default_rng(8)
    w = rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
    v = rng.standard_normal((2, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["a"], name="sigmoid"),
        helper.make_node("Conv", ["a", "v"], ["y"], name="second", pads=[1, 1, 1, 1]),
    ]
    graph = restructure(import_onnx(model(nodes, [2, 6, 6], {"w": w, "v": v})))
    x = rng.standard_normal((80, 2, 6, 6))
    bounded = bound_ranges(graph, x)
    equalised, stats = equalise_lookups(bounded, statistics(bounded, x))
    np.testing.assert_allclose(stats.values, statistics(equalised, x).values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(stats.sensitivity, statistics(equalised, x).sensitivity, rtol=1e-9)
    np.testing.assert_allclose(interpret(equalised, x), interpret(graph, x), rtol=1e-9, atol=1e-9)
    assert any(step.operator == "Affine" for step in equalised.lookups[0].steps)


def test_values_beyond_the_range_read_about_the_end_and_do_not_turn_round() -> None:
    """A look-up of ReLU far beyond its calibrated range: it used to read the other end of the table, with its sign turned."""
    arrays = {"w": np.eye(2, dtype=np.float32), "v": np.eye(2, dtype=np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["a"], name="relu"),
        helper.make_node("MatMul", ["a", "v"], ["y"], name="second"),
    ]
    rng = np.random.default_rng(9)
    made = cw.compile(model(nodes, [2], arrays), rng.uniform(-1, 1, (300, 2)), precision="balanced", accuracy=0)
    graph = made.program.graph
    assert graph.scale is not None and graph.upper is not None
    first = graph.linears[0].first_wire
    end = float(graph.upper[first])
    for beyond in (0.1, 0.3, 0.6):
        value = end * (1 + beyond)
        phases = np.full((1, 2), value) * graph.scale[: graph.input.size]
        out = simulate(made.program, phases, noisy=False) / graph.scale[graph.output] + graph.offset[graph.output]
        assert np.abs(out - end).max() < 0.12 * end


def test_later_weights_make_up_for_the_rounding_of_earlier_ones() -> None:
    rng = np.random.default_rng(10)
    mixing = rng.standard_normal((6, 24))
    x = np.maximum(rng.standard_normal((2000, 6)) @ mixing + 0.3 * rng.standard_normal((2000, 24)), 0)
    weights, steps = rng.standard_normal((16, 24)), np.full((16, 24), 0.7)
    errors = []
    for compensation in (None, Compensation.of(x[:1000])):
        off = rounded(weights, steps, compensation) * steps - weights
        errors.append(float((x[1000:] @ off.T).var(axis=0).mean()))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
def test_fitted_tails_end_where_one_value_in_ten_thousand_lies_beyond(draw: str) -> None:
    rng = np.random.default_rng(11)
    sample = (lambda n: rng.uniform(-1, 1, n)) if draw == "uniform" else (lambda n: getattr(rng, f"standard_{draw}")(n))
    values = sample((600, 200))
    ends = tail_end(largest(values), len(values), np.ptp(values, axis=0))
    fresh = np.sort(sample(400_000))
    share = 1 - np.searchsorted(fresh, ends) / len(fresh)
    assert share.mean() < 8 * BEYOND
    assert (ends > np.quantile(fresh, 0.998)).all()


def test_what_loses_too_much_is_an_error_that_names_the_layer_or_a_warning() -> None:
    rng = np.random.default_rng(12)
    proto, x = mlp(rng, [8, 32, 32, 32, 4]), rng.uniform(-1, 1, (300, 8))
    options = {"precision": 5.0, "sets": ["nn2"], "weight_bits": 2}
    with pytest.raises(AccuracyError, match=r"would decide as the clear one on .* of \d+ samples.*layer 'layer\d'"):
        cw.compile(proto, x, **options)
    with pytest.warns(AccuracyWarning, match="97 % were asked for"):
        made = cw.compile(proto, x, allow_loss=True, **options)
    assert made.report()["check"]["value"] < 0.97
    assert "check" not in cw.compile(proto, x, accuracy=0, **options).report()
    for wrong in ({"accuracy": 1.5}, {"task": "ranking"}, {"weight_bits": 9}):
        with pytest.raises(CompileError):
            cw.compile(proto, x, **wrong)


def test_a_regression_is_checked_by_its_error() -> None:
    rng = np.random.default_rng(13)
    made = cw.compile(mlp(rng, [6, 24, 1]), rng.uniform(-1, 1, (300, 6)))
    check = made.report()["check"]
    assert check["measure"] == "closeness" and 0.97 <= check["at_least"] <= check["value"] <= 1
    assert 0 <= check["outside_share"] <= check["outside_share_at_most"] < 0.2


def test_tails_travel_with_a_calibration_and_a_check_with_the_program(tmp_path: Path) -> None:
    rng = np.random.default_rng(14)
    proto, x = mlp(rng, [6, 16, 3]), rng.uniform(-1, 1, (300, 6))
    seen = calibrate(proto, x)
    again = type(seen).from_json(seen.to_json())
    assert again.reach is not None and seen.reach is not None
    for (low, high), (low_again, high_again) in zip(seen.reach, again.reach, strict=True):
        np.testing.assert_allclose(low, low_again, rtol=1e-5)
        np.testing.assert_allclose(high, high_again, rtol=1e-5)
    made = cw.compile(proto, x)
    made.save(tmp_path / "m.clkm")
    loaded = CompiledModel.load(tmp_path / "m.clkm")
    assert loaded.report() == made.report()
    text = loaded.details
    assert "simulated on 300 samples, 100 of which it has not been fitted to: it decides" in text
    assert "median row" in text
