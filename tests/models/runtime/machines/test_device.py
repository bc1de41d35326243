"""Programs on GPUs: the words of the CPU, on one device and several, whatever the batch; weights stay, memory is planned."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from odd_programs import program
from onnx import ModelProto
from test_encrypted_networks import RNG, convolutional, residual

import cloakwork as cw
from cloakwork.fhe_core import _engine, engine
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.forecast.measure import probe_input
from cloakwork.models.runtime import Runtime, samples_at_once
from cloakwork.models.runtime.machines import device as machine

NETWORKS = {"conv": (convolutional, (1, 4, 4)), "residual": (residual, (4,))}


@pytest.fixture(scope="module", params=list(NETWORKS))
def compiled(request: pytest.FixtureRequest) -> CompiledModel:
    make, shape = NETWORKS[request.param]
    proto: ModelProto = make()
    return cw.compile(proto, RNG.uniform(-1, 1, (400, *shape)))


@pytest.fixture(scope="module")
def key(compiled: CompiledModel) -> ClientKey:
    return ClientKey.generate(compiled.program.parameters)


@pytest.fixture(scope="module")
def keys(key: ClientKey) -> EvaluationKeys:
    return key.evaluation_keys()


def digest(result: Ciphertexts) -> str:
    return hashlib.sha256(result.to_bytes()).hexdigest()


def devices() -> list[str]:
    return ["cuda", "cuda:0,1"] if getattr(_engine, "cuda_device_count", lambda: 0)() > 1 else ["cuda"]


@pytest.mark.gpu
def test_the_words_of_the_cpu(compiled: CompiledModel, key: ClientKey, keys: EvaluationKeys) -> None:
    shape = compiled.client.input_shape
    for samples in (1, 3):
        x = compiled.client.encrypt(key, RNG.uniform(-1, 1, (samples, *shape)))
        expected = Runtime(compiled.program, Session(keys)).run(x)
        for device in devices():
            runtime = Runtime(compiled.program, Session(keys, device=device))
            calls: list[tuple[int, int]] = []
            result = runtime.run(x, progress=lambda done, total: calls.append((done, total)))  # noqa: B023
            assert result.shape == expected.shape and result.key_id == expected.key_id
            assert digest(result) == digest(expected)
            assert calls[-1] == (compiled.program.bootstraps * samples,) * 2 and calls == sorted(calls)
            np.testing.assert_array_equal(runtime.run(x.expand()).words, expected.words)  # weights are there already


@pytest.mark.gpu
def test_samples_under_one_mask() -> None:
    """Three samples in two ciphertexts of two lanes."""
    compiled = cw.compile(residual(), RNG.uniform(-1, 1, (400, 4)), bodies=2)
    key = ClientKey.generate(compiled.program.parameters)
    keys = key.evaluation_keys()
    samples = RNG.uniform(-1, 1, (3, 4))
    x = compiled.client.encrypt(key, samples)
    expected = Runtime(compiled.program, Session(keys)).run(x)
    for device in devices():
        assert digest(Runtime(compiled.program, Session(keys, device=device)).run(x)) == digest(expected)


@pytest.mark.gpu
def test_batches_by_free_memory(compiled: CompiledModel, keys: EvaluationKeys) -> None:
    assert samples_at_once(compiled.program, Session(keys)) == samples_at_once(compiled.program)
    free = _engine.device_memory(0)[0]
    one = samples_at_once(compiled.program, Session(keys, device="cuda"))
    assert 1 <= one and one * compiled.program.held_bytes * machine.MEMORY_SHARE <= free


@pytest.mark.gpu
@pytest.mark.measures_memory
@pytest.mark.parametrize("share", [2.0, 1.0, 0.85])
def test_values_stay_within_the_memory_that_they_may_take(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three samples, of which two, one, or tiles of one may be held at once: the words of the host."""
    made = program("windows", parameter_set("toy"))
    keys = ClientKey.generate(made.parameters).evaluation_keys()
    room = int(share * made.held_bytes)
    monkeypatch.setattr(machine, "LEAST_LOOKUPS", 4)
    monkeypatch.setattr(engine, "free_bytes", lambda _: machine.MEMORY_SHARE * room)
    host, session = Session(keys), Session(keys, device="cuda")
    runtime = Runtime(made, session)
    x = probe_input(made, host, 3)
    expected = Runtime(made, host).run(x).words
    np.testing.assert_array_equal(runtime.run(x).words, expected)  # scratch is there afterwards
    before, free = _engine.device_memory(0)[0], []

    def look(done: int, total: int) -> None:
        free.append(_engine.device_memory(0)[0])

    np.testing.assert_array_equal(runtime.run(x, look).words, expected)
    tiled = machine.fitting_schedule(made, session)
    assert (len(tiled.lookups) > 2) == (share < 1) and tiled.most_columns * made.ciphertext_bytes <= room
    assert samples_at_once(made, session) == max(1, room // (tiled.most_columns * made.ciphertext_bytes))
    polynomials = 3 * made.graph.input.size * made.parameters.polynomial_size * 2  # of the input, expanded
    assert 0 < before - min(free) <= room + 4 * polynomials


@pytest.mark.gpu
def test_memory_for_less_than_the_smallest_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program("windows", parameter_set("toy"))
    monkeypatch.setattr(engine, "free_bytes", lambda _: 1)
    keys = ClientKey.generate(made.parameters).evaluation_keys()
    found = machine.fitting_schedule(made, Session(keys, device="cuda"))
    assert found.bootstraps_per_level == [20, 20]  # less than LEAST_LOOKUPS: as they are
