"""What clients of linear models are told: round ranges or the caller's own, units that are powers of two, no intercepts."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.client_steps import Columns, Combine, Polynomials, Rescale, Standardise
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CalibratedRangeWarning, CompileError
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.linear.linear_quantisation import OUTPUT_LIMIT

TOY = "toy_two_limb"
LUT3 = "lut3"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)) * [1, 20, 0.01, 3] + [0, 100, -5, 1]


@pytest.fixture(scope="module")
def keys() -> tuple[ClientKey, Session]:
    key = ClientKey.generate(TOY)
    return key, Session(key.evaluation_keys())


def step_of(compiled: CompiledModel, kind: type) -> Any:
    """The one of its kind."""
    steps = (*compiled.program.input_steps, *compiled.program.output_steps)
    (found,) = [step for step in steps if isinstance(step, kind)]
    return found


def told(compiled: CompiledModel) -> dict[str, int]:
    return {each["what"]: each["count"] for each in compiled.report()["discloses"]}


def is_power_of_two(numbers: Any) -> bool:
    return bool((np.frexp(np.asarray(numbers, dtype=np.float64))[0] == 0.5).all())


def test_intercepts_are_added_on_the_server() -> None:
    model = LinearModel(RNG.normal(size=(3, 4)), RNG.normal(size=3), labels=np.arange(3), transform="softmax")
    x = X - X.mean(axis=0)
    compiled = compile_linear(model, x)
    combine = step_of(compiled, Combine)
    assert not combine.offset.any() and "constants of scores" not in told(compiled)
    assert np.count_nonzero(compiled.program.graph.linears[0].bias) == 3
    assert np.abs(compiled.predict(x, output="scores") - model.scores(x)).max() < 1e-2


def test_units_are_powers_of_two_and_one_for_scores_that_are_compared() -> None:
    coefficients = RNG.normal(size=(3, 4)) * [[1], [30], [900]]
    labels = compile_linear(LinearModel(coefficients, np.zeros(3), labels=np.arange(3)), X)
    values = compile_linear(LinearModel(coefficients, np.zeros(3)), X)
    for compiled, units in ((labels, 1), (values, 3)):
        scale = step_of(compiled, Combine).matrix.diagonal()
        assert is_power_of_two(scale) and len(np.unique(scale)) == units == told(compiled)["units of scores"]
        step = compiled.client.input_scale
        assert (step * 2**60) % 2 ** (60 + math.floor(math.log2(step)) - 7) == 0  # eight significant bits
        assert is_power_of_two(compiled.client.input_range[1])
    relative = np.abs(values.predict(X) - (X @ coefficients.T)).max(axis=0) / np.abs(X @ coefficients.T).max(axis=0)
    assert relative.max() < 1e-3  # small outputs are not rounded to the unit of large ones


@pytest.mark.parametrize("offset", [0.0, 7.3, -3e3, 1e6 + 1 / 3, -1e6, 1e12])
def test_a_large_intercept_costs_no_precision(keys: tuple[ClientKey, Session], offset: float) -> None:
    """Targets around 10^6 with a spread of 1: the client keeps a round number, the server adds the rest."""
    key, session = keys
    model = LinearModel(np.array([[0.5, -0.01, 20.0, 0.1]]), np.array([offset]))
    compiled, plain = (
        compile_linear(each, X, sets=TOY) for each in (model, LinearModel(model.coefficients, np.zeros(1)))
    )
    kept = float(step_of(compiled, Combine).offset[0])
    centre = step_of(compiled, Rescale).offset
    half = (step_of(compiled, Rescale).upper - step_of(compiled, Rescale).lower) / 2
    reach = float(np.abs(model.coefficients * half).sum())
    assert abs(kept - offset - model.coefficients[0] @ centre) <= reach
    assert kept == 0 or (kept / 2 ** math.floor(math.log2(reach))) % 1 == 0, "a multiple of about what features change"
    assert told(compiled).get("constants of scores", 0) == (kept != 0)
    assert (kept != 0) == (abs(offset + model.coefficients[0] @ centre) > reach)
    corners = np.where(np.sign(model.coefficients) * [[1], [-1]] > 0, centre + half, centre - half)
    points = np.concatenate([X[:20], corners])
    error = np.abs(compiled.predict(points) - model.scores(points)[:, 0]).max()
    assert error <= 3 * np.abs(plain.predict(X) - X @ model.coefficients[0]).max() + 4 * math.ulp(offset)
    encrypted = compiled.predict(points, how="encrypted", key=key, session=session)
    np.testing.assert_array_equal(encrypted, compiled.predict(points))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.booleans())
def test_sums_stay_within_the_torus(seed: int, outputs: int, compared: bool) -> None:
    """All features at the end that is worst for an output, whatever the intercept."""
    rng = np.random.default_rng(seed)
    coefficients = rng.normal(size=(outputs, 5)) * np.exp(rng.normal(0, 3, (outputs, 1)))
    coefficients[rng.random((outputs, 5)) < 0.3] = 0
    intercept = rng.normal(size=outputs) * np.exp(rng.normal(0, 5, outputs))
    labels = np.arange(outputs) if compared and outputs > 2 else None
    compiled = compile_linear(LinearModel(coefficients, intercept, labels=labels), rng.normal(size=(50, 5)), accuracy=0)
    node = compiled.program.graph.linears[0]
    levels = compiled.client.input_range[1]
    most = np.abs(node.weights[0]).sum(axis=1) * levels + np.abs(node.bias[0])
    assert (most * compiled.client.input_scale <= OUTPUT_LIMIT * (1 + 1e-9)).all()
    np.testing.assert_array_equal(node.bias, np.rint(node.bias))


def test_scaling_before_the_model_becomes_part_of_it() -> None:
    model = LinearModel(RNG.normal(size=(2, 4)), RNG.normal(size=2), labels=np.array(["a", "b"]))
    mean, scale = X.mean(axis=0), 1 / X.std(axis=0)
    steps = (Columns(4, tuple("abcd")), Standardise(mean, scale), Standardise(np.full(4, 0.5), np.full(4, 2.0)))
    compiled = compile_linear(model, X, preprocessing=steps)
    assert "means and scales of features" not in told(compiled) and told(compiled)[ROUND] == 4
    clear = model.scores(((X - mean) * scale - 0.5) * 2)
    assert np.abs(compiled.predict(X, output="scores") - clear).max() < 1e-2
    curved = (*steps[:2], Polynomials(np.concatenate([np.eye(4), 2 * np.eye(4)]).astype(np.int64)))
    model = LinearModel(RNG.normal(size=(1, 8)), np.zeros(1))
    assert told(compile_linear(model, X, preprocessing=curved))["means and scales of features"] == 4


ROUND, OTHER = "ranges of features in round numbers", "ranges of features to all digits"


def test_ranges_that_were_given_are_taken() -> None:
    model = LinearModel(np.ones((1, 4)), np.zeros(1), feature_names=tuple("abcd"))
    given_ranges = {"a": (-10, 10), 2: (-5.5, -4.123)}
    step = step_of(compile_linear(model, X, ranges=given_ranges), Rescale)
    assert (step.lower[0], step.upper[0], step.lower[2], step.upper[2]) == (-10, 10, -5.5, -4.123)
    assert told(compile_linear(model, X, ranges=given_ranges))[OTHER] == 1
    every = dict.fromkeys("abcd", (-200.0, 200.0))
    without = compile_linear(model, ranges=every)
    assert without.client.to_json() == compile_linear(model, X, ranges=every).client.to_json()
    assert told(without)[ROUND] == 4 and OTHER not in told(without)


def test_a_range_narrower_than_the_data_is_told_and_saturates() -> None:
    model = LinearModel(np.ones((1, 4)), np.zeros(1), feature_names=tuple("abcd"))
    with pytest.warns(CalibratedRangeWarning, match=r"ranges: \d+ of 300 .* beyond the range that was given") as caught:
        compiled = compile_linear(model, X, ranges={"a": (-0.5, 0.5)}, accuracy=0.5)
    assert "in columns 'a')" in str(caught[0].message) and caught[0].filename == __file__
    with pytest.warns(CalibratedRangeWarning, match="1 of 1 samples"):
        assert compiled.predict(np.array([[9.0, 100, -5, 1]])) == pytest.approx([96.5], abs=0.05)
    with (
        pytest.warns(CalibratedRangeWarning),
        pytest.raises(CompileError, match="beyond the ranges that were given in ranges, it keeps"),
    ):
        compile_linear(model, X, ranges={"b": (99, 101)})


def test_ranges_of_one_population_are_equal_and_around_its_samples() -> None:
    model = LinearModel(np.ones((1, 3)), np.zeros(1))
    specifications = set()
    for seed in range(5):
        x = np.random.default_rng(seed).uniform([-3.17, 0, 1000], [8.44, 1, 1070], (5000, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = compile_linear(model, x)
            compiled.predict(x)
        step = step_of(compiled, Rescale)
        assert not np.isin([step.lower, step.upper], x).any()
        specifications.add((*step.lower, *step.upper))
    assert len(specifications) == 1


def test_constant_features_get_room_and_new_values_count() -> None:
    x = np.column_stack([np.full(50, 2024.0), np.arange(50) / 1000, np.zeros(50)])
    model = LinearModel(np.array([[0.001, 3.0, 5.0]]), np.array([1.0]))
    compiled = compile_linear(model, x)
    step = step_of(compiled, Rescale)
    assert (step.lower[0], step.upper[0]) == (2000, 2100)
    assert 0.02 < step.upper[2] < 0.04, "as large as the others"
    new = np.array([[2031.0, 0.02, 0.01]])
    assert compiled.predict(new) == pytest.approx(model.evaluate(new), abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranges": {"e": (0, 1)}}, "there is no feature 'e'; expected "),
        ({"ranges": {"a": (2, 1)}}, "two ascending finite numbers for 'a', got 2 and 1"),
        ({"ranges": {0: (math.nan, 1)}}, "two ascending finite numbers for 'a', got nan and 1"),
        ({"ranges": {4: (0, 1)}}, "numbers from 0 to 3, got 4"),
        ({"ranges": {"b": (-1e308, 7e307)}}, "overflow or vanish; expected scores between 1e-140 and 1e\\+140"),
        ({"input_bits": 1}, "input_bits: expected 4 to 20, or None for as many as are best, got 1"),
        ({"input_bits": 64}, "input_bits: expected 4 to 20, or None for as many as are best, got 64"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    model = LinearModel(np.full((1, 4), 10.0), np.zeros(1), feature_names=tuple("abcd"))
    with warnings.catch_warnings(), pytest.raises(CompileError, match=message):
        warnings.simplefilter("error")
        compile_linear(model, X, **options)


def test_without_samples_every_feature_needs_a_range() -> None:
    model = LinearModel(np.ones((1, 4)), np.zeros(1), feature_names=tuple("abcd"))
    with pytest.raises(CompileError, match="samples, or ranges of all features, got none of b, d"):
        compile_linear(model, ranges={"a": (0, 1), "c": (0, 1)})


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e200, 1e307])
def test_sizes_beyond_numbers_are_refused(size: float) -> None:
    with pytest.raises(CompileError, match="overflow or vanish; expected scores between 1e-140 and 1e\\+140, or 0"):
        compile_linear(LinearModel(np.array([[size, -size]]), np.array([0.0])), X[:, :2])


@pytest.mark.parametrize("size", [1e-138, 1e-30, 1e30, 1e138])
def test_sizes_at_the_ends_of_what_numbers_are(size: float) -> None:
    model = LinearModel(np.array([[size, -size]]), np.array([size]))
    x = np.random.default_rng(1).uniform(-1, 1, (100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = compile_linear(model, x, accuracy=0)
        assert np.abs(compiled.predict(x) / size - model.scores(x)[:, 0] / size).max() < 1e-3
