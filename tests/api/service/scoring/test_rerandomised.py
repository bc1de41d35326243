"""Answers of a server do not tell the weights in their masks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256

import numpy as np
import pytest
from in_process import serving
from mask_attack import integer_weights
from scoring_server import Server, User

from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.parameters import public_key_bytes
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.runtime import Runtime

FEATURES = 9


@pytest.fixture(scope="module")
def logistic() -> CompiledModel:
    """A logistic regression of two classes."""
    rng = np.random.default_rng(5)
    labels = np.array(["no", "yes"])
    model = LinearModel(rng.normal(size=(1, FEATURES)), rng.normal(size=1), "sigmoid", labels=labels)
    return compile_linear(model, rng.uniform(-1, 1, (200, FEATURES)), sets="toy_two_limb")


@pytest.fixture(scope="module")
def linear_server(tmp_path_factory: pytest.TempPathFactory, logistic: CompiledModel) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("linear") / "data"
    folder = data / "models" / "toy"
    folder.mkdir(parents=True)
    logistic.save(folder / "1.clkm")
    with serving(data) as started:
        yield started


def test_one_answer_does_not_tell_the_weights_of_a_logistic_regression(linear_server: Server, logistic: CompiledModel):
    weights = logistic.program.graph.linears[0].weights[0, 0]
    with linear_server.client() as http:
        user = User.of(http)
        user.upload()
        x, body = user.encrypt(samples=2)
        answer = user.infer(body)
        assert answer.status_code == 200, answer.text
    np.testing.assert_array_equal(user.decrypt(answer.content), logistic.predict(x))
    # All that follows the client can do: its keys, its ciphertexts, the answer.
    session, packed = Session(EvaluationKeys.from_bytes(user.keys)), SeededPackedCiphertexts.from_bytes(body)
    inputs, outputs = session.extract(packed), load_results(answer.content)
    assert all(integer_weights(inputs[i], outputs[i, 0]) is None for i in range(2))
    # With the words before re-randomisation it would find them, so that nothing else stands in its way.
    words = Runtime(logistic.program, session).run(packed)
    np.testing.assert_array_equal(integer_weights(inputs[0], words[0, 0]), weights)


def test_keys_of_an_earlier_release_are_asked_for_again(linear_server: Server):
    """Evaluation keys without a public key that a server has kept: the client is told to upload, as when they had expired."""
    with linear_server.client() as http:
        user = User.of(http)
        stored = linear_server.data / "objects" / "keys" / user.upload()
        stored.write_bytes(version_1(user))
        _, body = user.encrypt()
        answer = user.infer(body)
        assert (answer.status_code, answer.json()["code"]) == (428, "key_required")
        assert "upload" in answer.json()["error"]


def version_1(user: User) -> bytes:
    body = bytearray(user.keys[: -32 - public_key_bytes(user.key.parameters)])
    struct.pack_into("<H", body, 4, 1)
    struct.pack_into("<Q", body, 8, len(body) + 32)
    return bytes(body) + sha256(body).digest()
