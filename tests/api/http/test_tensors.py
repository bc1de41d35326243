"""Tensors of the Open Inference Protocol: the object behind a JSON header, everything else refused, most of it before it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from in_process import LocalServer, serving
from scoring_server import Server, User
from sockets import connect, head, read_reply
from tensors import described, send_tensor

from cloakwork.api.http.tensors import DATATYPE, HEADER, INPUT, OUTPUT
from cloakwork.models.compiled import CompiledModel


def refused(answer: httpx.Response, status: int, code: str, *words: str) -> None:
    found = answer.json()
    assert (answer.status_code, found["code"]) == (status, code), found
    assert all(word in found["error"] for word in words), found["error"]


@pytest.fixture(scope="module")
def ready(server: LocalServer) -> Iterator[User]:
    with server.client() as http:
        user = User.of(http)
        user.upload()
        yield user


def test_an_answer_is_the_tensor_that_the_raw_form_gives(ready: User, compiled: CompiledModel):
    x, body = ready.encrypt(samples=3)
    answer = send_tensor(ready, {"id": 'my "run"', **described(len(body))}, body)
    assert answer.status_code == 200, answer.text
    start = int(answer.headers[HEADER])
    about, results = json.loads(answer.content[:start]), answer.content[start:]
    tensor = {"name": OUTPUT, "datatype": DATATYPE, "shape": [len(results)]}
    assert about == {
        "model_name": "toy",
        "model_version": "1",
        "id": 'my "run"',
        "outputs": [{**tensor, "parameters": {"binary_data_size": len(results)}}],
    }
    assert results == ready.infer(body).content, "the same request, the same bytes"
    assert np.allclose(ready.decrypt(results), np.asarray(compiled.predict(x)), atol=0.05)
    assert answer.headers["fhe-audit-key"] and answer.headers["fhe-model-version"] == "1"


def test_a_tensor_may_become_a_job(ready: User):
    _, body = ready.encrypt()
    for answer in (
        send_tensor(ready, described(len(body)), body, Prefer="respond-async"),
        send_tensor(ready, described(len(body)), body, route="jobs"),
    ):
        assert answer.status_code == 202, answer.text
        with ready.http.stream("GET", f"{answer.headers['location']}/events") as events:
            assert "event: done" in "".join(events.iter_text())
        assert ready.http.get(f"{answer.headers['location']}/result").content == ready.infer(body).content


@pytest.mark.parametrize("value", ["-1", "1.5", "0x10", "ten", "", "1e3", "9" * 30, "+7"])
def test_lengths_that_are_none(ready: User, value: str):
    _, body = ready.encrypt()
    refused(send_tensor(ready, described(len(body)), body, **{HEADER: value}), 400, "bad_request", HEADER)


def test_two_lengths(server: Server, ready: User):
    _, body = ready.encrypt()
    with connect(server) as connection:
        connection.sendall(
            head("POST /v2/models/toy/infer", f"Content-Length: {len(body)}", f"{HEADER}: 10", f"{HEADER}: 20")
        )
        reply = read_reply(connection)
    assert reply is not None and (reply.status, reply.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("json_bytes", "length", "status", "code"),
    [
        (0, 3000, 422, "malformed"),
        (3000, 3000, 422, "malformed"),
        (3001, 3000, 422, "malformed"),
        ((16 << 10) + 1, 40_000, 413, "too_large"),
        (500, 500 + (1 << 33), 413, "too_large"),
        (500, 600, 422, "malformed"),
    ],
)
def test_lengths_that_cannot_be_are_refused_before_a_byte_is_read(
    server: Server, ready: User, json_bytes: int, length: int, status: int, code: str
):
    with connect(server) as connection:
        connection.sendall(head("POST /v2/models/toy/infer", f"Content-Length: {length}", f"{HEADER}: {json_bytes}"))
        reply = read_reply(connection)
    assert reply is not None and (reply.status, reply.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "input"}, f"'{INPUT}'"),
        ({"datatype": "INT8"}, DATATYPE),
        ({"datatype": "BYTES"}, DATATYPE),
        ({"shape": [1, 1]}, "shape"),
        ({"shape": [-1]}, "shape"),
        ({"shape": []}, "shape"),
        ({"shape": ["a"]}, "shape"),
        ({"shape": [1] * 1000}, "shape"),
        ({"parameters": {"binary_data_size": 1}}, "binary_data_size"),
        ({"parameters": {"binary_data_size": -5}}, "binary_data_size"),
        ({"parameters": {"binary_data_size": "5"}}, "binary_data_size"),
    ],
)
def test_tensors_of_another_kind(ready: User, changes: dict[str, Any], words: str):
    _, body = ready.encrypt()
    refused(send_tensor(ready, described(len(body), **changes), body), 422, "malformed", words)


def test_numbers_in_json_are_refused_with_the_way_out(ready: User):
    _, body = ready.encrypt()
    in_json = described(len(body), parameters={}, data=list(body))
    text = json.dumps(in_json).encode()
    assert len(text) < 16 << 10, "so that it would be read"
    way = "set_data_from_numpy"
    place = f"/v2/models/{ready.model}/infer"
    refused(ready.http.post(place, json=in_json), 415, "unsupported_media", way)
    refused(ready.http.post(place, content=text), 422, "malformed", way)
    refused(send_tensor(ready, text, body), 415, "unsupported_media", way)


def test_not_one_input(ready: User):
    _, body = ready.encrypt()
    one = described(len(body))["inputs"][0]
    for inputs in ([], [one, one], [one, {**one, "name": "other"}], [one] * 100, {}, None):
        refused(send_tensor(ready, {"inputs": inputs}, body), 422, "malformed")


@pytest.mark.parametrize(
    ("outputs", "status", "words"),
    [
        ([{"name": "scores"}], 422, OUTPUT),
        ([{"name": OUTPUT, "parameters": {"binary_data": True}}] * 2, 422, OUTPUT),
        ([{"name": OUTPUT, "parameters": {"binary_data": True, "classification": 3}}], 422, "encrypted"),
        ([{"name": OUTPUT}], 415, "binary_data"),
        ([], 415, "binary_data_output"),
    ],
)
def test_outputs_that_there_are_not(ready: User, outputs: list[Any], status: int, words: str):
    _, body = ready.encrypt()
    about = {"inputs": described(len(body))["inputs"], "outputs": outputs}
    refused(send_tensor(ready, about, body), status, "malformed" if status == 422 else "unsupported_media", words)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"null",
        b'"inputs"',
        b"\xff\xfe{}",
        b"[" * 16000,
        b'{"inputs":' * 1500,
        b'{"inputs": [{"name": "ciphertexts", "shape": [' + b"9" * 9000 + b"]}]}",
        b'{"inputs": [NaN]}',
        b'{"id": "' + b"x" * 300 + b'", "inputs": []}',
        b'{"id": 7, "inputs": []}',
        b'{"inputs": [], "parameters": {"sequence_id": 1}}',
    ],
    ids=lambda text: text[:12].decode("latin-1"),
)
def test_headers_that_are_no_description(ready: User, text: bytes):
    _, body = ready.encrypt()
    refused(send_tensor(ready, text, body), 422, "malformed")


def test_what_has_no_meaning_for_one_run_is_not_looked_at(ready: User):
    _, body = ready.encrypt()
    about = described(len(body))
    about["parameters"] |= {"priority": 1, "timeout": 5, "sequence_id": 0, "mine": {"a": [1]}}
    about["more"] = "x"
    assert send_tensor(ready, about, body).status_code == 200


def test_the_object_is_looked_at_as_ever(ready: User, tmp_path: Path):
    _, body = ready.encrypt()
    ready.key.save(tmp_path / "client.key", "passphrase")
    secret = (tmp_path / "client.key").read_bytes()[: len(body)].ljust(len(body), b"\0")
    refused(send_tensor(ready, described(len(secret)), secret), 422, "secret_key_refused")
    refused(send_tensor(ready, described(len(body)), bytes(len(body))), 422, "serialization_error")
    other = User.of(ready.http)
    refused(send_tensor(ready, described(len(body)), other.encrypt()[1]), 428, "key_required")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip"])
def test_compressed_bodies(user: User, coding: str):
    _, body = user.encrypt()
    for place, content in ((f"/v2/models/{user.model}/infer", body), ("/v2/keys", b"{}")):
        answer = user.http.post(place, content=content, headers={"Content-Encoding": coding})
        refused(answer, 415, "unsupported_media", "uncompressed")


def test_a_coding_of_no_body_or_none_is_nothing(user: User):
    assert user.http.get("/v2/models", headers={"Content-Encoding": "gzip"}).status_code == 200
    user.upload()
    _, body = user.encrypt()
    assert user.infer(body, headers={"Content-Encoding": "identity"}).status_code == 200


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("impatient") / "data")
    with serving(data, environment={"TENSOR_SECONDS": "0.000001", "SYNCHRONOUS_SECONDS": "0.000001"}) as started:
        yield started


def test_a_long_run_is_refused_with_the_way_out_before_its_bytes_come(impatient: Server):
    """Where the raw form becomes a job, which a client of tensors could not follow."""
    with impatient.client() as http:
        user = User.of(http)
        user.upload()
        _, body = user.encrypt()
        assert user.infer(body).status_code == 202
        refused(send_tensor(user, described(len(body)), body), 422, "too_long", "/v2/models/toy/jobs")
        assert send_tensor(user, described(len(body)), body, route="jobs").status_code == 202
