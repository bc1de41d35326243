"""Linear models on encrypted features: exact sums, no bootstraps, saturation, failure probability."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, NoParameterSetError, ShapeError
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.linear.linear_quantisation import Effects, quantise_linear
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime import Runtime

TOY = "toy_two_limb"


@pytest.fixture(scope="module")
def keys() -> tuple[ClientKey, Session]:
    key = ClientKey.generate(TOY)
    return key, Session(key.evaluation_keys())


def random_model(rng: np.random.Generator, outputs: int, features: int, **facts: object) -> LinearModel:
    sizes = np.exp(rng.normal(0, 3, features))  # features of very different ranges
    return LinearModel(rng.normal(size=(outputs, features)) / sizes, rng.normal(size=outputs), **facts)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 40))
def test_encrypted_equals_quantised(keys: tuple[ClientKey, Session], seed: int, outputs: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, outputs, features)
    x = rng.normal(size=(20, features)) * np.exp(rng.normal(0, 4, features)) + rng.normal(0, 100, features)
    compiled = compile_linear(model, x, sets=TOY)
    key, session = keys
    clear = compiled.predict(x, output="scores")
    assert (compiled.predict(x, how="encrypted", key=key, session=session, output="scores") == clear).all()
    assert (compiled.predict(x, how="simulate", seed=seed, output="scores") == clear).all()
    effect = np.abs(model.coefficients * np.ptp(x, axis=0)).max()
    assert np.abs(clear - model.scores(x)).max() <= 2e-3 * effect * math.sqrt(features)


def test_the_largest_sums_stay_within_the_torus(keys: tuple[ClientKey, Session]) -> None:
    """Every feature at the end of its range, all with the sign of its weight."""
    key, session = keys
    model = LinearModel(np.array([[3.0, -5.0, 1e-3, 7.0]]), np.array([0.5]))
    corners = np.array([[1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, -1.0, -1.0]])
    compiled = compile_linear(model, corners, sets=TOY, margin=0.0)
    scores = compiled.predict(corners, how="encrypted", key=key, session=session)
    assert np.abs(scores - model.scores(corners)[:, 0]).max() < 1e-3


def test_it_needs_no_bootstraps_and_says_so() -> None:
    rng = np.random.default_rng(0)
    compiled = compile_linear(random_model(rng, 1, 30), rng.normal(size=(50, 30)))
    facts = compiled.report()
    assert facts["bootstraps"] == 0
    assert facts["input_ciphertext_bytes"] <= 20_000
    assert compiled.program.facts.linear.p_fail_log2 <= -128
    assert compiled.program.facts.linear.weight_bits >= 10 and compiled.program.facts.linear.feature_bits >= 10
    assert "no bootstraps" in compiled.details


@pytest.mark.parametrize("limit", [-40.0, -128.0])
def test_the_failure_probability_is_the_noise_models(limit: float) -> None:
    params = parameter_set("lut3")
    effects = Effects(np.random.default_rng(1).normal(size=(3, 17)), np.zeros(3))
    found = quantise_linear(effects, params, limit)
    norm = math.sqrt(float(np.square(found.weights).sum(axis=1).max()))
    variance = noise.linear_variance(noise.fresh_variance(params), norm)
    assert noise.p_fail_log2(found.step / 2, variance) == pytest.approx(found.p_fail_log2, rel=0.02)
    assert found.p_fail_log2 <= limit
    finer = quantise_linear(effects, params, limit / 2)
    assert finer.step <= found.step


def test_decrypted_sums_keep_their_distance_from_halves(keys: tuple[ClientKey, Session]) -> None:
    """The noise of real ciphertexts is what the model says, within its confidence."""
    key, session = keys
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 10))
    compiled = compile_linear(random_model(rng, 2, 10), x, sets=TOY)
    runtime = Runtime(compiled.program, session)
    phases = key.decrypt(runtime.run(compiled.client.encrypt(key, x)))
    step = float(compiled.client.output_scale[0])
    error = (phases / step - np.rint(phases / step)) * step
    weights = compiled.program.graph.linears[0].weights[0]
    expected = np.sqrt(noise.fresh_variance(key.parameters) * np.square(weights).sum(axis=1))
    ratio = error.std(axis=0) / expected
    assert (np.abs(ratio - 1) < 0.2).all()  # 400 values: 0.035 standard deviations each


def test_values_beyond_the_range_saturate_with_a_warning() -> None:
    model = LinearModel(np.array([[1.0, 1.0]]), np.zeros(1))
    compiled = compile_linear(model, np.array([[0.0, 0.0], [1.0, 1.0]]), margin=0.0)
    with pytest.warns(UserWarning, match="1 of 2 samples have values beyond the calibrated range"):
        scores = compiled.predict(np.array([[5.0, 0.0], [1.0, 0.5]]))
    assert scores == pytest.approx([1.0, 1.5], abs=1e-3)


def test_constant_features_keep_their_part() -> None:
    x = np.column_stack([np.full(5, 7.0), np.arange(5.0), np.zeros(5)])
    model = LinearModel(np.array([[2.0, 1.0, 4.0]]), np.array([1.0]))
    assert compile_linear(model, x).predict(x) == pytest.approx(model.evaluate(x), abs=1e-2)
    nothing = LinearModel(np.zeros((1, 3)), np.array([2.5]))
    assert compile_linear(nothing, x).predict(x) == pytest.approx(np.full(5, 2.5))


def test_client_and_file_do_what_the_model_does(keys: tuple[ClientKey, Session], tmp_path) -> None:
    key, session = keys
    rng = np.random.default_rng(3)
    names = tuple("abcde")
    model = random_model(rng, 3, 5, labels=np.array(["x", "y", "z"]), transform="softmax", feature_names=names)
    x = rng.normal(size=(6, 5))
    compiled = compile_linear(model, x, sets=TOY)
    compiled.save(tmp_path / "model.clkm")
    loaded = CompiledModel.load(tmp_path / "model.clkm")
    client = ClientSpecification.from_json(compiled.client.to_json())
    result = Runtime(loaded.program, session).run(client.encrypt(key, x))
    assert (client.decrypt(key, result) == compiled.predict(x)).all()
    assert (client.decrypt(key, result, output="probabilities") == compiled.predict(x, output="probabilities")).all()
    assert set(compiled.predict(x)) <= {"x", "y", "z"}


def test_bad_calls_say_what_to_do() -> None:
    model = LinearModel(np.ones((1, 3)), np.zeros(1))
    x = np.eye(3)
    with pytest.raises(ShapeError, match="expected samples of 3 features, got an array of shape \\[0, 3\\]"):
        compile_linear(model, x[:0])
    with pytest.raises(CompileError, match="margin: expected a share from 0 to 1, got -1"):
        compile_linear(model, x, margin=-1)
    with pytest.raises(NoParameterSetError, match="'lut2' leaves room for fewer than 4 bits; use a set of two limbs"):
        compile_linear(LinearModel(np.ones((1, 900)), np.zeros(1)), np.eye(900), sets="lut2")
    compiled = compile_linear(model, x)
    with pytest.raises(ShapeError, match="column 'feature 1' has missing values"):
        compiled.predict(np.array([[0.0, np.nan, 1.0]]))
    with pytest.raises(ShapeError, match="column 'feature 0' has infinite ones"):
        compiled.predict(np.array([[np.inf, 0.0, 1.0]]))
    with pytest.raises(ShapeError, match=r"expected an array of shape \['samples', 3\], got \[1, 2\]"):
        compiled.predict(np.zeros((1, 2)))
