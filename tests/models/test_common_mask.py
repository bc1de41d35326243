"""Programs of common-mask sets: taken only when asked for, samples laid into lanes, the same answers."""

from __future__ import annotations

import numpy as np
import onnx_models
import pytest
from cases import in_tiers

import cloakwork as cw
from cloakwork.fhe_core.arrays.lanes import ciphertexts_of, laid_in_lanes, taken_from_lanes
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.parameters import offered_sets, parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, NoParameterSetError
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.report import report, report_text
from cloakwork.models.runtime import Runtime
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.tree_models import random_tree

RNG = np.random.default_rng(5)
SAMPLES = RNG.uniform(-1, 1, (400, 4))
NETWORK = onnx_models.mlp(np.random.default_rng(1), (4, 6, 3))
FAST = {"precision": "fast", "accuracy": 0}


def test_what_is_offered() -> None:
    assert not any(params.lane_count > 1 for params in offered_sets(True))
    assert {params.name for params in offered_sets(False, True)} == {"gate_64_cm2", "lut1_cm2", "lut2_cm2", "nn2_cm2"}
    assert all(params.lane_count == 2 for params in offered_sets(True, True))
    assert cw.compile(NETWORK, SAMPLES, **FAST).program.parameters.lane_count == 1
    assert cw.compile(NETWORK, SAMPLES, bodies=2, **FAST).program.parameters.name == "nn2_cm2"
    both = cw.compile(NETWORK, SAMPLES, bodies=2, structured=True, **FAST)
    assert both.program.parameters.name == "nn2_block_cm2"


def test_named_sets_want_to_be_asked_for() -> None:
    with pytest.raises(ParameterError, match=r"'nn2_cm2' has 2 values to a ciphertext.*pass bodies=2"):
        cw.compile(NETWORK, SAMPLES, sets=["nn2_cm2"], **FAST)
    with pytest.raises(ParameterError, match="'nn2' has one value to a ciphertext"):
        cw.compile(NETWORK, SAMPLES, sets=["nn2"], bodies=2, **FAST)
    with pytest.raises(ParameterError, match="structured=True"):
        cw.compile(NETWORK, SAMPLES, sets=["nn2_block_cm2"], bodies=2, **FAST)
    with pytest.raises(NoParameterSetError, match="_cm2.*leave bodies out"):
        cw.compile(NETWORK, SAMPLES, bodies=2, precision=0.5, accuracy=0)


def test_other_kinds_of_models_refuse_them() -> None:
    linear = LinearModel(coefficients=np.array([[1.0, -2.0, 0.5, 0.25]]), intercept=np.array([0.5]))
    with pytest.raises(ParameterError, match="bodies"):
        compile_linear(linear, SAMPLES, sets="lut2_cm2")
    tree = random_tree(np.random.default_rng(2), 3, 3, 1, 5, None, False)
    with pytest.raises(ParameterError, match="bodies"):
        compile_ensemble(TreeEnsemble((tree,), 3, "sum", base=np.zeros(1)), thresholds="client", sets=["lut2_cm2"])


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return cw.compile(NETWORK, SAMPLES, bodies=2, **FAST)


@pytest.fixture(scope="module")
def key(model: CompiledModel) -> ClientKey:
    return ClientKey.generate(model.program.parameters)


@pytest.fixture(scope="module")
def session(key: ClientKey) -> Session:
    return Session(key.evaluation_keys())


def assert_close(model: CompiledModel, x: np.ndarray, found: np.ndarray) -> None:
    """Within six standard deviations of the simulated noise of each output."""
    noise = model.predict(SAMPLES, "simulate", seed=1) - model.predict(SAMPLES)
    assert (np.abs(found - model.predict(x)) < 6 * noise.std(axis=0)).all()


@pytest.mark.parametrize("count", in_tiers((1, 2, 5), quick=(5,)))
def test_samples_in_lanes_have_their_own_answers(
    model: CompiledModel, key: ClientKey, session: Session, count: int
) -> None:
    x = SAMPLES[:count]
    found = model.predict(x, "encrypted", key=key, session=session)
    assert found.shape == (count, 3)
    assert_close(model, x, found)


def test_rows_of_ciphertexts(model: CompiledModel, key: ClientKey, session: Session) -> None:
    """What the server sees are rows; the client specification comes and goes as JSON."""
    client = ClientSpecification.from_json(model.client.to_json())
    encrypted = client.encrypt(key, SAMPLES[:5])
    assert encrypted.shape == (3, 4)
    calls: list[tuple[int, int]] = []
    result = Runtime(model.program, session).answer(encrypted, lambda done, total: calls.append((done, total)))
    assert result.shape[0] == 3 and calls[-1] == (3 * model.program.bootstraps,) * 2
    every, five = client.decrypt(key, result), client.decrypt(key, result, samples=5)
    assert len(every) == 6
    np.testing.assert_array_equal(every[:5], five)
    for wrong in (4, 7):
        with pytest.raises(ShapeError, match=f"rows of ciphertexts for {wrong} samples"):
            client.decrypt(key, result, samples=wrong)


@pytest.mark.tier("all")
def test_batches_larger_than_fit_are_cut_at_whole_rows(
    model: CompiledModel, key: ClientKey, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloakwork.models.runtime.encrypted.WORKING_BYTES", 2 * model.program.held_bytes)
    calls: list[tuple[int, int]] = []
    found = model.predict(SAMPLES[:7], "encrypted", key=key, session=session, progress=lambda *c: calls.append(c))
    assert_close(model, SAMPLES[:7], found)
    assert calls[-1] == (4 * model.program.bootstraps,) * 2


@pytest.mark.tier("all")
def test_exact_programs() -> None:
    exact = {"input_bits": 1, "activation_bits": 1, "accumulator_bits": 1}
    model = cw.compile(NETWORK, SAMPLES, precision="exact", accuracy=0, **exact, bodies=2)
    assert model.program.parameters.name in ("lut1_cm2", "lut2_cm2")
    assert_close(model, SAMPLES[:3], model.predict(SAMPLES[:3], "encrypted"))


def test_the_report_says_so(model: CompiledModel) -> None:
    fields, text = report(model.program), report_text(model.program)
    assert fields["samples_per_ciphertext"] == 2
    assert "common mask: 2 samples of one client to a ciphertext" in text and "\n2 samples: 4096 bytes in" in text
    plain = report(cw.compile(NETWORK, SAMPLES, **FAST).program)
    assert plain["samples_per_ciphertext"] == 1
    for device, time in fields["estimated_seconds"].items():
        other = plain["estimated_seconds"][device]
        assert time["seconds_per_sample"] < other["seconds_per_sample"]
        assert time["seconds_one_sample"] > other["seconds_one_sample"]


def test_lanes_are_filled_with_copies() -> None:
    params, x = parameter_set("toy_lanes"), np.arange(15.0).reshape(5, 3)
    laid = laid_in_lanes(params, x)
    assert laid.shape == (3, 3, 2) and ciphertexts_of(params, 5) == 3
    np.testing.assert_array_equal(laid[0], x[:2].T)
    np.testing.assert_array_equal(laid[2], x[[4, 4]].T)
    np.testing.assert_array_equal(taken_from_lanes(params, laid, 5), x)
    np.testing.assert_array_equal(taken_from_lanes(params, laid), x[[0, 1, 2, 3, 4, 4]])
    toy = parameter_set("toy")
    assert laid_in_lanes(toy, x) is x and taken_from_lanes(toy, x) is x


def test_the_option_is_for_networks() -> None:
    from tests.app.cli.commands.test_models import small_tree

    with pytest.raises(CompileError, match="bodies: no option of trees \\(but of a network\\)"):
        cw.compile(small_tree(), SAMPLES[:, :2], bodies=2)
