"""Programs on GPUs: the words of the CPU, on one device and several, whatever the batch; weights stay, memory is planned."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from onnx import ModelProto
from test_encrypted_networks import RNG, convolutional, residual

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiler import CompiledModel, compile_onnx
from cloakwork.models.runtime import Runtime, samples_at_once

NETWORKS = {"conv": (convolutional, (1, 4, 4)), "residual": (residual, (4,))}


@pytest.fixture(scope="module", params=list(NETWORKS))
def compiled(request: pytest.FixtureRequest) -> CompiledModel:
    make, shape = NETWORKS[request.param]
    proto: ModelProto = make()
    return compile_onnx(proto, RNG.uniform(-1, 1, (400, *shape)))


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
    compiled = compile_onnx(residual(), RNG.uniform(-1, 1, (400, 4)), common_mask=True)
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
    assert 1 <= one and one * compiled.program.graph.wire_count * 4 * compiled.program.parameters.large_dimension < free
