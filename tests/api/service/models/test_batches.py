"""A model for batches is a model like any other: described, scored at once and as a job, by the Python client too; what does not fit is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from batch_user import BatchUser, models, table
from in_process import serving
from scoring_server import Server, User, becomes, job_result, resident

from cloakwork.app.client import Client
from cloakwork.app.client.keyring import Keyring, TemporaryKeyring
from cloakwork.fhe_core.errors import ShapeError
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.several import joined_bytes
from cloakwork.models.batches.model import BatchModel

X = table()[0][:7]
LEVELLED = ("sums", "queries", "powers")


@pytest.fixture(scope="module")
def batches() -> dict[str, BatchModel]:
    return models()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, batches: dict[str, BatchModel], fill: Any) -> Iterator[Server]:
    data: Path = fill(tmp_path_factory.mktemp("batches") / "data")
    for name, model in batches.items():
        (data / "models" / name).mkdir(parents=True)
        model.save(data / "models" / name / "1.clkb")
    with serving(data) as started:
        yield started


def samples_of(name: str) -> np.ndarray:
    """Of one query."""
    return X[:1] if name == "queries" else X


# --- a model like any other ---


@pytest.mark.parametrize("name", LEVELLED)
def test_scores_at_once_and_as_a_job(http: httpx.Client, batches: dict[str, BatchModel], name: str) -> None:
    user, x = BatchUser.of(http, name), samples_of(name)
    expected = batches[name].predict(x)
    key, body = user.upload(), user.encrypt(x)
    answer = user.infer(body)
    assert answer.status_code == 200, answer.text
    np.testing.assert_array_equal(user.labels(answer.content, x), expected)
    facts = user.facts
    assert (len(body), len(answer.content)) == (facts["input_bytes_one_sample"], facts["output_bytes_one_sample"])
    assert len(user.keys) == facts["evaluation_key_bytes"] and facts["samples_per_ciphertext"] >= len(x)
    assert user.infer(body, headers={"Fhe-Key-Id": key}).content == answer.content
    headers = {"Idempotency-Key": hashlib.sha256(body).hexdigest()}
    job = http.post(f"/v2/models/{name}/jobs", content=body, headers=headers).json()["id"]
    assert job_result(http, job) == answer.content


@pytest.mark.parametrize("name", ["sums", "queries", "powers", "program"])
def test_the_python_client(server: Server, batches: dict[str, BatchModel], name: str, tmp_path: Path) -> None:
    """With keys that stay, and with keys that go with it."""
    keyring = Keyring(tmp_path / "keys", "of this test, and long enough")
    for keys in (keyring, Keyring(keyring.folder, "of this test, and long enough"), TemporaryKeyring(tmp_path)):
        with Client(server.url, keyring=keys) as client:
            np.testing.assert_array_equal(client.predict(name, X[:3]), batches[name].predict(X[:3]))
            with pytest.raises(ShapeError):
                client.predict(name, X[:, :2])


def test_they_are_listed_and_described(http: httpx.Client, batches: dict[str, BatchModel]) -> None:
    assert set(batches) <= set(http.get("/v2/models").json()["models"])
    for name, model in batches.items():
        facts = http.get(f"/v2/models/{name}").json()["parameters"]["fhe"]
        assert facts["kind"] == "batch"
        assert ("support vector" in facts["report"]["client_learns"]) == (name == "queries")
        assert facts["estimated_seconds"] > 0 and facts["security_bits"] >= 128
        assert http.get(f"/v2/models/{name}/client").text == model.client.to_json()
    assert facts["inputs"][0]["shape"] == [-1, 3]


def test_a_file_is_sent(http: httpx.Client, batches: dict[str, BatchModel], tmp_path: Path) -> None:
    batches["sums"].save(tmp_path / "sent")
    data = (tmp_path / "sent").read_bytes()
    answer = http.put("/v2/repository/models/sent/versions/1", content=data)
    assert answer.status_code == 201 and answer.json()["state"] == "READY", answer.text
    user = BatchUser.of(http, "sent")
    user.upload()
    np.testing.assert_array_equal(user.labels(user.infer(user.encrypt(X)).content, X), batches["sums"].predict(X))
    refused(http.put("/v2/repository/models/sent/versions/2", content=data[:-1]), 422)
    http.delete("/v2/repository/models/sent/versions/1?remove=true").raise_for_status()


def test_keys_leave_memory_and_device(http: httpx.Client) -> None:
    user = BatchUser.of(http, "powers")
    key = user.upload()
    before = resident(http)[0]
    user.infer(user.encrypt(X)).raise_for_status()
    assert resident(http)[0] > before
    http.delete(f"/v2/keys/{key}").raise_for_status()
    assert becomes(lambda: resident(http)[0] <= before, True)


# --- what does not fit ---


def refused(answer: httpx.Response, status: int, code: str | None = None) -> str:
    assert answer.status_code == status, (answer.status_code, answer.text)
    found = answer.json()
    assert code is None or found["code"] == code, found
    return str(found["error"])


@pytest.mark.parametrize("name", LEVELLED)
def test_queries_that_do_not_fit(http: httpx.Client, name: str) -> None:
    user = BatchUser.of(http, name)
    body = user.encrypt(samples_of(name))
    refused(user.infer(body), 428, "key_required")
    key = user.upload()
    for wrong in (b"", body[:1], body[:-1]):
        refused(user.infer(wrong), 422, "malformed")
    assert "one query" in refused(user.infer(body + b"\0"), 413, "too_large")
    refused(user.infer(b"\0" * len(body)), 422)
    middle = bytearray(body)
    middle[len(body) // 2] ^= 1
    refused(user.infer(bytes(middle)), 422, "serialization_error")
    stranger = BatchUser.of(http, name)
    refused(stranger.infer(stranger.encrypt(samples_of(name)), headers={"Fhe-Key-Id": key}), 409, "wrong_parameters")
    toy = User.of(http)
    refused(user.infer(body, headers={"Fhe-Key-Id": toy.upload()}), 409, "wrong_parameters")


def test_queries_of_another_modulus_or_level(http: httpx.Client) -> None:
    user = BatchUser.of(http, "sums")
    user.upload()
    (parameters,), level = user.client.parameters, user.client.level
    zeros = np.zeros((user.client.features, parameters.polynomial_size), dtype=int)
    other = LevelledParameters.of(parameters.set.name, parameters.plaintext_modulus - 2)
    wrong = LevelledClientKey.generate(other).encrypt_seeded(zeros, level).to_bytes()
    assert "modulo" in refused(user.infer(wrong), 409, "wrong_parameters")
    refused(user.infer(user.key.only.encrypt_seeded(zeros[:-1], level).to_bytes()), 422, "malformed")


def test_moduli_that_are_mixed_up(http: httpx.Client) -> None:
    """Parts in another order, twice, or under another key."""
    user = BatchUser.of(http, "powers")
    user.upload()
    first, second = (each.to_bytes() for each in user.client.encrypt(user.key, X))
    stranger = BatchUser.of(http, "powers")
    foreign = stranger.client.encrypt(stranger.key, X)[1].to_bytes()
    refused(user.infer(joined_bytes([second, first])), 409, "wrong_parameters")
    for parts in ([first, first], [first, foreign]):
        assert 400 <= user.infer(joined_bytes(parts)).status_code < 500
    body = bytearray(joined_bytes([first, second]))
    body[-1] ^= 1
    refused(user.infer(bytes(body)), 422, "serialization_error")


def test_keys_that_do_not_fit(http: httpx.Client, tmp_path: Path) -> None:
    user = BatchUser.of(http, "powers")
    refused(user.announce(user.keys[:-1]), 422, "malformed")
    refused(user.announce(user.keys, parameter_set_digest="1" * 64), 409, "wrong_parameters")
    damaged = bytearray(user.keys)
    damaged[len(damaged) // 3] ^= 1
    refused(user.send(bytes(damaged)), 422, "checksum_mismatch")
    parts = [each.evaluation_keys().to_bytes() for each in user.key.parts]
    for order in ([1, 0], [0, 0]):
        answer = user.send(joined_bytes([parts[i] for i in order]))
        assert 400 <= answer.status_code < 500, answer.text
    user.key.save(tmp_path / "secret", "of this test, and long enough")
    identity = user.announce(user.keys).json()["id"]
    secret = (tmp_path / "secret").read_bytes()
    answer = http.patch(f"/v2/keys/{identity}", content=secret, headers={"Upload-Offset": "0"})
    assert "secret key" in refused(answer, 422, "secret_key_refused")
    assert user.upload() and replace(user, keys=user.keys).infer(user.encrypt(X)).status_code == 200
