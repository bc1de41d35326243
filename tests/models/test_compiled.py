"""A small network end to end: quantised, simulated, and really encrypted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from onnx_models import mlp, runtime

import cloakwork as cw
from cloakwork.fhe_core import noise
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import CancelledError, KeyMismatchError, ParameterError, ShapeError
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.answers import phase_noise, weight_norms
from cloakwork.models.runtime import Runtime
from cloakwork.models.runtime.interpreter import interpret, simulate

RNG = np.random.default_rng(7)
PROTO = mlp(RNG, [16, 12, 4])
CALIBRATION = RNG.uniform(-1, 1, (500, 16))
X = RNG.uniform(-1, 1, (3, 16))


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return cw.compile(PROTO, CALIBRATION)


@pytest.fixture(scope="module")
def key(model: CompiledModel) -> ClientKey:
    return ClientKey._from_entropy(model.program.parameters, bytes(range(32)))


def test_quantised_network_is_close_to_onnx_runtime(model: CompiledModel) -> None:
    x = RNG.uniform(CALIBRATION.min(), CALIBRATION.max(), (200, 16))
    expected = runtime(PROTO, x)
    spread = expected.std()
    assert np.abs(model.predict_float(x) - expected).max() < 1e-5
    assert np.abs(model.predict(x) - expected).std() < 0.05 * spread


def test_simulation_without_noise_is_the_interpreter_up_to_the_resolution_of_tables(model: CompiledModel) -> None:
    x = RNG.uniform(-1, 1, (50, 16))
    program = model.program
    exact = interpret(program.graph, x)
    y = model.client.output(simulate(program, model.client.phases(x), noisy=False))
    steps = 1 / (2 * program.parameters.polynomial_size)
    assert program.graph.scale is not None
    scale = program.graph.scale[program.graph.output]
    hidden = program.graph.lookups[0]
    slope = program.graph.scale[hidden.first_wire] / program.graph.scale[hidden.gather].min()
    bound = np.abs(program.graph.linears[-1].weights).sum(axis=2).max() * slope * steps / scale.min()
    assert np.abs(y - exact).max() <= bound


def test_encrypted_equals_simulation_within_the_noise_model(model: CompiledModel, key: ClientKey) -> None:
    """One bootstrap level: the output differs from the noiseless simulation by the switch's noise times ReLU's slope, and the rotation's."""
    session = Session(key.evaluation_keys())
    program = model.program
    result = Runtime(program, session).run(model.client.encrypt(key, X))
    assert result.shape == (3, 4)
    phases = np.asarray(key.decrypt(result), dtype=np.float64)
    clear = simulate(program, model.client.phases(X), noisy=False)
    noisy = np.stack([simulate(program, model.client.phases(X), seed) for seed in range(200)])
    deviation = noisy.std(axis=0)
    assert np.abs(phases - clear).max() < 6 * deviation.max()
    assert np.abs(phases - clear).std() > 0.2 * deviation.mean()  # real noise, not none
    y = model.predict(X, how="encrypted", key=key, session=session)
    spread = model.predict_float(CALIBRATION).std()
    assert np.abs(y - model.predict_float(X)).max() < 0.5 * spread


@pytest.mark.gpu
def test_the_device_of_the_options_computes(model: CompiledModel, key: ClientKey) -> None:
    on_card = cw.compile(PROTO, CALIBRATION, device="cuda")
    assert on_card.program.parameters == model.program.parameters
    spread = model.predict(CALIBRATION).std()
    for device in (None, "cuda", "cpu"):
        values = on_card.predict(X, how="encrypted", key=key, device=device)
        assert np.abs(values - model.predict(X)).max() < 0.2 * spread, device


def test_noise_of_every_layer_is_within_the_profile(model: CompiledModel) -> None:
    params = model.program.parameters
    for norms in weight_norms(model.program.graph):
        assert phase_noise(params, norms) <= model.program.noise_percent / 200
    hidden, output = weight_norms(model.program.graph)
    assert hidden.on_lookups == 0 and hidden.on_input > 0
    assert output.on_lookups > 0
    variance = output.on_lookups**2 * noise.blind_rotation_variance(params)
    variance += output.on_input**2 * noise.fresh_variance(params)  # of what passes beside the look-ups
    assert phase_noise(params, output) == pytest.approx(np.sqrt(variance))


def test_progress_counts_the_bootstraps_and_cancels(model: CompiledModel, key: ClientKey) -> None:
    seen: list[tuple[int, int]] = []
    session = Session(key.evaluation_keys())
    model.predict(
        X[:2], how="encrypted", key=key, session=session, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (24, 24)
    with pytest.raises(CancelledError):
        model.predict(X[:2], how="encrypted", key=key, session=session, progress=lambda _done, _total: False)


def test_samples_in_several_batches_and_convolutions_in_parts(
    model: CompiledModel, key: ClientKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(key.evaluation_keys())
    monkeypatch.setattr("cloakwork.models.runtime.encrypted.WORKING_BYTES", 1)
    monkeypatch.setattr("cloakwork.models.runtime.machines.host.GATHERED_BYTES", 1)
    seen: list[tuple[int, int]] = []

    def watch(done: int, total: int) -> None:
        seen.append((done, total))

    y = model.predict(X, how="encrypted", key=key, session=session, progress=watch)
    assert y.shape == (3, 4) and seen[-1] == (36, 36) and seen == sorted(seen)
    assert np.abs(y - model.predict(X)).max() < 1.0


def test_report_counts(model: CompiledModel) -> None:
    facts = model.report()
    assert facts["bootstraps"] == 12 and facts["bootstraps_per_level"] == [12]
    assert facts["security_bits"] >= 128
    assert [layer["name"] for layer in facts["layers"]] == ["layer0", "layer1"]
    assert "layer0" in model.details


def test_each_part_gets_its_own_kind_of_key(model: CompiledModel) -> None:
    key = cw.Key.generate(model)
    public = key.public()
    with pytest.raises(KeyMismatchError, match=r"the secret key, which stays with the client; pass key.public\(\)"):
        cw.Server(model, key)  # type: ignore[arg-type]
    with pytest.raises(KeyMismatchError, match="expected the secret key, a cloakwork.Key, got EvaluationKeys"):
        model.client.encrypt(public, X)  # type: ignore[arg-type]
    with pytest.raises(KeyMismatchError, match="expected the secret key, a cloakwork.Key, got str"):
        model.predict(X, how="encrypted", key="client.key")  # type: ignore[arg-type]
    request = model.client.encrypt(key, X)
    with pytest.raises(ShapeError, match=r"what server.answer\(request\) returned, got a request"):
        model.client.decrypt(key, request)  # type: ignore[arg-type]


def test_outputs_that_a_network_does_not_tell_are_refused(model: CompiledModel) -> None:
    """Once the scores were returned as if they were probabilities."""
    for how in ("clear", "simulate", "encrypted"):
        with pytest.raises(ParameterError, match="no probabilities; expected 'labels' or 'scores'"):
            model.predict_proba(X, how)
    with pytest.raises(ParameterError, match="expected one of scores, probabilities, labels, got 'logits'"):
        model.predict(X, output="logits")  # type: ignore[arg-type]


def test_a_compiled_model_is_saved_and_not_pickled(model: CompiledModel) -> None:
    with pytest.raises(TypeError, match=r"use save\(path\) and cloakwork.load"):
        pickle.dumps(model)


def test_its_repr_is_one_line(model: CompiledModel) -> None:
    assert (
        repr(model) == f"<CompiledModel: {model.program.parameters.name}, 12 look-ups; print(model) shows the report>"
    )
