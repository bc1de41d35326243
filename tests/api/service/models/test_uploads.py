"""Models over HTTP: what is taken, what is refused and leaves nothing, and how a version ends."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import Restarts, serving
from scoring_server import Server, User, becomes, new_tenant, running, toy_model

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.artefact import program_to_bytes

MOST_BYTES = 1 << 20


# A process of its own describes an uploaded model under limits of memory and time, which a thread of the tests cannot have.
PROCESS = pytest.param("process", marks=[pytest.mark.tier("release"), pytest.mark.os_entropy])


@pytest.fixture(scope="module", params=["thread", PROCESS])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]
) -> Iterator[Server]:
    settings = {"MAX_MODEL_BYTES": str(MOST_BYTES), "BODY_IDLE_SECONDS": "600"}
    start = serving if request.param == "thread" else running
    with start(fill(tmp_path_factory.mktemp("uploads") / "data"), environment=settings) as started:
        yield started


@pytest.fixture(scope="module")
def artefact(compiled: CompiledModel) -> bytes:
    return program_to_bytes(compiled.program)


@pytest.fixture(scope="module")
def other() -> bytes:
    return program_to_bytes(toy_model(seed=1).program)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A secret key as its file has it."""
    file = tmp_path_factory.mktemp("secret") / "client.key"
    ClientKey.generate(parameter_set("toy_two_limb")).save(file, "passphrase")
    return file.read_bytes()


def send(http: httpx.Client, name: str, version: str, content: Any, **options: Any) -> httpx.Response:
    return http.put(f"/v2/repository/models/{name}/versions/{version}", content=content, **options)


def left(server: Server, name: str) -> list[str]:
    """Files of a model, and all that was on its way."""
    models = server.data / "models"
    files = [*(models / ".incoming").iterdir(), *((models / name).iterdir() if (models / name).is_dir() else ())]
    return sorted(file.name for file in files)


def states(http: httpx.Client, name: str) -> dict[str, str]:
    entries = http.post("/v2/repository/index").json()
    return {each["version"]: each["reason"] or each["state"] for each in entries if each["name"] == name}


# --- taken ---


def test_an_uploaded_model_scores(http: httpx.Client, server: Server, artefact: bytes):
    sha256 = hashlib.sha256(artefact).hexdigest()
    answer = send(http, "sent", "1", artefact, headers={"Fhe-Artefact-Sha256": sha256})
    assert answer.status_code == 201, answer.text
    assert answer.json() == {
        "name": "sent",
        "version": "1",
        "state": "READY",
        "reason": "",
        "bytes": len(artefact),
        "sha256": sha256,
    }
    assert http.get(answer.headers["location"]).json()["parameters"]["fhe"]["artefact_sha256"] == sha256
    assert left(server, "sent") == ["1.clkm", "1.json"]
    user = User.of(http, "sent")
    user.upload()
    body = user.encrypt()[1]
    assert user.decrypt(user.infer(body).content).shape == (1, 3)


def test_an_uploaded_model_outlives_the_service(
    tmp_path: Path, fill: Callable[[Path], Path], artefact: bytes, restart: Restarts
):
    with restart.running(fill(tmp_path / "data")) as server:
        with server.client() as http:
            assert send(http, "sent", "1", artefact).status_code == 201
        restart.of(server)
        with server.client() as again:
            assert again.get("/v2/models/sent").json()["versions"] == ["1"]


def test_the_same_bytes_again_are_no_error_and_others_are(
    http: httpx.Client, server: Server, artefact: bytes, other: bytes
):
    assert send(http, "twice", "1", artefact).status_code == 201
    again = send(http, "twice", "1", artefact)
    assert (again.status_code, again.json()["state"]) == (200, "READY")
    for content in (other, artefact[:-1] + bytes([artefact[-1] ^ 1]), artefact[:-1]):
        answer = send(http, "twice", "1", content)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), answer.text
    assert (server.data / "models" / "twice" / "1.clkm").read_bytes() == artefact
    assert send(http, "toy", "1", other).status_code == 409, "a file that the operator put there"
    assert send(http, "toy", "1", artefact).status_code == 200
    assert send(http, "twice", "2", other).status_code == 201
    assert http.get("/v2/models/twice").json()["versions"] == ["1", "2"]


def test_a_version_waits_until_it_is_loaded(http: httpx.Client, artefact: bytes):
    answer = send(http, "later", "1", artefact, params={"load": "false"})
    assert (answer.status_code, answer.json()["state"], answer.json()["reason"]) == (201, "UNAVAILABLE", "unloaded")
    assert http.get("/v2/models/later").status_code == 410
    http.post("/v2/repository/models/later/load").raise_for_status()
    assert http.get("/v2/models/later").status_code == 200


def test_retired_numbers_are_not_given_again(http: httpx.Client, server: Server, artefact: bytes):
    send(http, "ended", "1", artefact).raise_for_status()
    send(http, "ended", "2", artefact).raise_for_status()
    place = "/v2/repository/models/ended/versions/1"
    assert http.delete(place).status_code == 204
    assert http.delete(place).status_code == 404
    answer = send(http, "ended", "1", artefact)
    assert (answer.status_code, answer.json()["code"]) == (410, "gone")
    assert states(http, "ended") == {"1": "retired", "2": "READY"}
    assert "1.clkm" in left(server, "ended"), "audits need it"
    assert http.delete(place, params={"remove": "true"}).status_code == 204
    assert states(http, "ended") == {"1": "removed", "2": "READY"}
    assert send(http, "ended", "1", artefact).status_code == 410


# --- refused ---


def hostile(artefact: bytes, secret: bytes) -> dict[str, tuple[bytes, str]]:
    """Files and the code that refuses them."""
    header_bytes = struct.unpack_from("<Q", artefact, 8)[0]
    header = json.loads(artefact[16 : 16 + header_bytes])
    arrays = artefact[16 + header_bytes : -32]

    def sealed(fields: Any) -> bytes:
        text = json.dumps(fields).encode()
        whole = artefact[:8] + struct.pack("<Q", len(text)) + text + arrays
        return whole + hashlib.sha256(whole).digest()

    large = json.loads(json.dumps(header))
    large["output"]["shape"] = [1 << 20, 1 << 20, 1 << 20]
    deep = b"[" * 100_000
    whole = artefact[:8] + struct.pack("<Q", len(deep)) + deep
    return {
        "truncated": (artefact[:-40], "malformed"),
        "of one byte": (b"C", "malformed"),
        "of its magic": (b"CLKM", "malformed"),
        "another kind": (b"PK\x03\x04" + bytes(1000), "malformed"),
        "zeros": (b"CLKM" + bytes(100_000), "malformed"),
        "an index of nothing": (b"CLKN" + bytes(100_000), "malformed"),
        "an index of 2^60 rows": (
            struct.pack("<4sHHQIdI", b"CLKN", 1, 8, 1 << 60, 512, 1.0, 0) + bytes(100),
            "malformed",
        ),
        "arrays of 2^60 numbers": (sealed(large), "malformed"),
        "other fields": (sealed({"nodes": []}), "malformed"),
        "a deep header": (whole + hashlib.sha256(whole).digest(), "malformed"),
        "a secret key": (secret, "secret_key_refused"),
    }


@pytest.mark.parametrize("which", list(range(11)))
def test_a_damaged_or_hostile_file_is_refused_and_leaves_nothing(
    http: httpx.Client, server: Server, artefact: bytes, secret: bytes, which: int
):
    name, (content, code) = list(hostile(artefact, secret).items())[which]
    answer = send(http, "hostile", "1", content)
    assert (answer.status_code, answer.json()["code"]) == (422, code), (name, answer.text)
    assert str(server.data) not in answer.text
    assert left(server, "hostile") == []
    assert http.get("/v2/models/hostile").status_code == 404


def test_requests_that_are_refused_before_their_body(http: httpx.Client, server: Server, artefact: bytes):
    codes = {
        "chunked": send(http, "refused", "1", iter([artefact])).json()["code"],
        "empty": send(http, "refused", "1", b"").json()["code"],
        "large": send(http, "refused", "1", bytes(MOST_BYTES + 1)).json()["code"],
        "digest": send(http, "refused", "1", artefact, headers={"Fhe-Artefact-Sha256": "0" * 64}).json()["code"],
        "no digest": send(http, "refused", "1", artefact, headers={"Fhe-Artefact-Sha256": "x"}).json()["code"],
        "name": send(http, "..%2Frefused", "1", artefact).json()["code"],
        "hidden": send(http, ".incoming", "1", artefact).json()["code"],
        "version": send(http, "refused", ".1", artefact).json()["code"],
    }
    assert codes == {
        "chunked": "length_required",
        "empty": "malformed",
        "large": "too_large",
        "digest": "checksum_mismatch",
        "no digest": "malformed",
        "name": "not_found",
        "hidden": "malformed",
        "version": "malformed",
    }
    assert left(server, "refused") == []


def raw(server: Server, name: str, length: int, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = (
        f"PUT /v2/repository/models/{name}/versions/1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
    )
    connection.sendall(head.encode() + content)
    return connection


def test_bodies_of_another_length_and_slow_ones(http: httpx.Client, server: Server, artefact: bytes):
    with raw(server, "cut", len(artefact), artefact[: len(artefact) // 2]):
        assert becomes(lambda: len(left(server, "cut")), 1)
    assert becomes(lambda: left(server, "cut"), [])
    with raw(server, "long", len(artefact), artefact + b"GET / surplus\r\n\r\n") as surplus:
        assert surplus.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert (server.data / "models" / "long" / "1.clkm").read_bytes() == artefact


def test_a_body_that_stops(tmp_path: Path, artefact: bytes):
    with serving(tmp_path / "data", environment={"BODY_IDLE_SECONDS": "0.2"}) as server:
        with raw(server, "slow", len(artefact), artefact[: len(artefact) // 2]) as silent:
            assert silent.recv(65536).startswith(b"HTTP/1.1 408 ")
        assert left(server, "slow") == []


def test_two_requests_for_one_version(server: Server, artefact: bytes, other: bytes):
    answers: list[int] = []
    begun = threading.Barrier(4)

    def work(content: bytes) -> None:
        with server.client() as own:
            begun.wait()
            answers.append(send(own, "raced", "1", content).status_code)

    threads = [threading.Thread(target=work, args=(content,)) for content in (artefact, other, artefact, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers.count(201) == 1 and set(answers) <= {200, 201, 409}
    assert left(server, "raced") == ["1.clkm", "1.json"]


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_killed_service_has_the_version_or_nothing(tmp_path: Path, fill: Callable[[Path], Path], artefact: bytes):
    with running(fill(tmp_path / "data")) as server:
        with raw(server, "killed", len(artefact), artefact[:-1]):
            assert becomes(lambda: len(left(server, "killed")), 1)
            server.kill()
        server.start()
        assert left(server, "killed") == []
        with server.client() as http:
            assert http.get("/v2/models/killed").status_code == 404
            assert send(http, "killed", "1", artefact).status_code == 201


def test_scopes_and_names(tmp_path: Path, fill: Callable[[Path], Path], artefact: bytes):
    data = fill(tmp_path / "data")
    tokens = {
        "scorer": new_tenant(data, "scorer", "score"),
        "owner": new_tenant(data, "owner", "models"),
        "narrow": new_tenant(data, "narrow", "models", models=frozenset({"mine"})),
    }
    with serving(data, insecure=False) as server, server.client() as http:

        def status(who: str, name: str) -> tuple[int, str]:
            answer = send(http, name, "1", artefact, headers={"Authorization": f"Bearer {tokens[who]}"})
            return answer.status_code, answer.json().get("code", "")

        assert send(http, "mine", "1", artefact).status_code == 401
        assert status("scorer", "mine") == (403, "forbidden")
        assert status("narrow", "toy") == status("narrow", "none") == (404, "unknown_model")
        assert status("narrow", "mine") == (201, "")
        assert status("owner", "none") == (201, "")
        assert not (data / "models" / "toy" / "2.clkm").exists()


@pytest.mark.tier("all")
def test_a_structured_secret_is_refused(tmp_path: Path, fill: Callable[[Path], Path]):
    content = program_to_bytes(toy_model(set_name="toy_block_two_limb").program)
    for allowed, expected in (("false", (409, "structured_refused")), ("true", (201, None))):
        with (
            serving(fill(tmp_path / allowed), environment={"STRUCTURED": allowed}) as server,
            server.client() as http,
        ):
            answer = send(http, "block", "1", content)
            assert (answer.status_code, answer.json().get("code")) == expected, answer.text
            assert len(left(server, "block")) == (0 if allowed == "false" else 2)
