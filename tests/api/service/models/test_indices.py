"""An index is a model like any other: listed, described, scored at once and as a job, counted, kept within limits; what means harm is refused."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from in_process import Restarts, serving
from neighbour_user import NeighbourUser, small_index
from scoring_server import Server, User, becomes, job_result, new_tenant, resident, toy_model
from tensors import described, object_in, send_tensor

from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.models.neighbours.index import NeighbourIndex

QUERY = np.array([3, -20, 11, 0, 40, -1])


@pytest.fixture(scope="module")
def index() -> NeighbourIndex:
    return small_index()


def put(data: Path, index: NeighbourIndex, name: str = "near", version: int = 1) -> Path:
    folder = data / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    index.save(folder / f"{version}.clkn")
    return data


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: NeighbourIndex, fill: Any) -> Iterator[Server]:
    with serving(put(fill(tmp_path_factory.mktemp("indices") / "data"), index)) as started:
        yield started


@pytest.fixture
def user(http: httpx.Client) -> NeighbourUser:
    return NeighbourUser.of(http)


def expected(index: NeighbourIndex, query: np.ndarray = QUERY) -> list[int]:
    return list(index.scores(query[None])[0])


# --- a model like any other ---


def test_scores_at_once_and_as_a_job(http: httpx.Client, user: NeighbourUser, index: NeighbourIndex) -> None:
    key, body = user.upload(), user.encrypt(QUERY)
    before = http.get("/v2/usage").json()
    answer = user.infer(body)
    assert answer.status_code == 200, answer.text
    assert list(user.scores(answer.content)) == expected(index)
    assert (
        len(answer.content) == user.facts["output_bytes_one_sample"]
        and len(body) == user.facts["input_bytes_one_sample"]
    )
    assert float(answer.headers["fhe-compute-seconds"]) > 0 and answer.headers["fhe-model-version"] == "1"
    assert user.infer(body, headers={"Fhe-Key-Id": key}).content == answer.content
    headers = {"Idempotency-Key": hashlib.sha256(body).hexdigest()}
    jobs = [http.post("/v2/models/near/jobs", content=body, headers=headers).json()["id"] for _ in range(2)]
    assert jobs[0] == jobs[1]
    assert job_result(http, jobs[0]) == answer.content
    after = http.get("/v2/usage").json()
    assert after["bootstraps_today"] == before["bootstraps_today"]
    days = [sum(day["samples"] for day in each["days"]) for each in (before, after)]
    assert days[1] - days[0] == 3
    assert "fhe_run_seconds_count" in http.get("/metrics").text


def test_a_tensor_is_a_query_too(user: NeighbourUser, index: NeighbourIndex) -> None:
    user.upload()
    body = user.encrypt(QUERY)
    answer = object_in(send_tensor(user, described(len(body)), body))
    assert list(user.scores(answer)) == expected(index)


def test_it_is_listed_and_described(http: httpx.Client, user: NeighbourUser, index: NeighbourIndex) -> None:
    assert http.get("/v2/models").json() == {"models": ["near", "toy"]}
    metadata = http.get("/v2/models/near/versions/1").json()
    facts = metadata["parameters"]["fhe"]
    assert (facts["inputs"][0]["shape"], facts["outputs"][0]["shape"]) == ([-1, 6], [-1, 5000])
    assert (facts["kind"], facts["parameter_set"], facts["largest_batch"], facts["bootstraps"]) == (
        "index",
        "bgv12",
        1,
        0,
    )
    assert facts["evaluation_key_bytes"] == len(user.keys) and facts["security_bits"] >= 128
    assert facts["parameter_digest"] == index.client.key_shape.digest.hex()
    assert facts["report"]["client_learns"] == "the score of every row" and facts["estimated_seconds"] > 0
    first = http.get("/v2/models/near/client")
    assert first.text == index.client.to_json()
    assert http.get("/v2/models/near/client", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert http.get("/v2/models/near/ready").json()["ready"] is True
    owned = {each["name"]: each for each in http.get("/v2/admin/models").json()["models"]}
    assert (owned["near"]["parameter_set"], owned["near"]["bootstraps"], owned["near"]["state"]) == (
        "bgv12",
        0,
        "loaded",
    )


def test_keys_of_one_shape_serve_every_index_that_takes_it(
    server: Server, http: httpx.Client, user: NeighbourUser
) -> None:
    put(server.data, small_index(seed=1), "other")
    http.post("/v2/repository/models/other/load").raise_for_status()
    other = NeighbourUser.of(http, "other")
    if other.facts["parameter_digest"] == user.facts["parameter_digest"]:
        user.upload()
        assert replace(user, model="other").infer(user.encrypt(QUERY)).status_code == 200
    http.post("/v2/repository/models/other/unload").raise_for_status()
    assert other.infer(other.encrypt(QUERY)).status_code == 410
    http.delete("/v2/repository/models/other/versions/1").raise_for_status()


def test_versions_of_both_kinds_and_files_that_are_none(tmp_path: Path, index: NeighbourIndex) -> None:
    put(tmp_path, index)
    put(tmp_path, index, version=2)
    folder = tmp_path / "models" / "near"
    toy_model().save(folder / "2.clkm")  # beside 2.clkn: one of them is not served
    toy_model().save(folder / "3.clkm")
    damaged = bytearray((folder / "1.clkn").read_bytes())
    damaged[-40] ^= 1
    (folder / "4.clkn").write_bytes(damaged)
    with serving(tmp_path) as server, server.client() as http:
        assert http.get("/v2/models/near").json()["versions"] == ["1", "2", "3"]
        kinds = [http.get(f"/v2/models/near/versions/{n}").json()["parameters"]["fhe"]["kind"] for n in (1, 2, 3)]
        assert kinds == ["index", "program", "program"]
        said = [line["message"] for line in server.log_lines()]
        assert any("near/2.clkn: there is 2.clkm too" in line for line in said)
        assert any("near/4.clkn" in line and "checksum" in line for line in said)


def test_tables_and_keys_stay_within_their_limit(tmp_path: Path, index: NeighbourIndex) -> None:
    """One byte: only what was used last stays, and answers are right all the same. A deleted key leaves the memory."""
    limits = {"DEVICE_KEY_BYTES": "1", "MEMORY_KEY_BYTES": "1"}
    with (
        serving(put(put(tmp_path, index), small_index(seed=1), "other"), environment=limits) as server,
        server.client() as http,
    ):
        users = [NeighbourUser.of(http, name) for name in ("near", "other", "near")]
        names = [user.upload() for user in users]
        for user in users * 2:
            answer = user.infer(user.encrypt(QUERY))
            assert answer.status_code == 200, answer.text
        table_bytes = users[0].facts["report"]["table_bytes"]
        memory, device = resident(http)
        assert memory <= 2 * len(users[0].keys) and device <= table_bytes + users[0].facts["expanded_key_bytes"]
        for name in names:
            http.delete(f"/v2/keys/{name}").raise_for_status()
        assert becomes(lambda: resident(http)[0], 0.0)


def test_one_table_serves_all_keys(http: httpx.Client, index: NeighbourIndex) -> None:
    users = [NeighbourUser.of(http) for _ in range(2)]
    for user in users:
        user.upload()
        user.infer(user.encrypt(QUERY)).raise_for_status()
    _, first = resident(http)
    extra = NeighbourUser.of(http)
    extra.upload()
    assert list(extra.scores(extra.infer(extra.encrypt(QUERY)).content)) == expected(index)
    _, second = resident(http)
    assert second - first == extra.facts["expanded_key_bytes"]


def test_a_job_is_cancelled_and_survives_a_restart(tmp_path: Path, index: NeighbourIndex, restart: Restarts) -> None:
    with restart.running(put(tmp_path, index)) as server, server.client() as http:
        user = NeighbourUser.of(http)
        user.upload()
        body = user.encrypt(QUERY)
        jobs = [http.post("/v2/models/near/jobs", content=body).json()["id"] for _ in range(6)]
        assert http.delete(f"/v2/jobs/{jobs[-1]}").status_code == 204
        restart.of(server)
        with server.client() as again:
            for job in jobs[:-1]:
                assert becomes(lambda job=job: again.get(f"/v2/jobs/{job}").json()["state"], "done"), job
            assert list(user.scores(again.get(f"/v2/jobs/{jobs[0]}/result").content)) == expected(index)


def test_tenants_see_what_is_theirs(tmp_path: Path, index: NeighbourIndex) -> None:
    """Whoever may not use an index cannot find out by its keys that it is there."""
    put(tmp_path, index)
    tokens = {
        "alice": new_tenant(tmp_path, "alice"),
        "bob": new_tenant(tmp_path, "bob", models=("another",)),
    }
    with serving(tmp_path, insecure=False) as server:
        alice, bob = (server.client(headers={"Authorization": f"Bearer {token}"}) for token in tokens.values())
        with alice, bob:
            user = NeighbourUser.of(alice)
            key = user.upload()
            assert user.infer(user.encrypt(QUERY)).status_code == 200
            stranger = replace(user, http=bob)
            assert stranger.infer(user.encrypt(QUERY)).status_code == 404
            denied, nothing = stranger.announce(user.keys), stranger.announce(user.keys, parameter_set_digest="0" * 64)
            assert (
                denied.status_code == nothing.status_code == 409 and denied.json()["error"] == nothing.json()["error"]
            )
            assert bob.get(f"/v2/keys/{key}").status_code == 404


# --- what means harm ---


def refused(answer: httpx.Response, status: int, code: str | None = None) -> str:
    assert answer.status_code == status, (answer.status_code, answer.text)
    found = answer.json()
    assert code is None or found["code"] == code, found
    return str(found["error"])


def sealed(changed: bytes | bytearray) -> bytes:
    """With a checksum that is right."""
    return bytes(changed[:-32]) + hashlib.sha256(changed[:-32]).digest()


def test_queries_that_do_not_fit(user: NeighbourUser) -> None:
    user.upload()
    body = user.encrypt(QUERY)
    for wrong in (b"", body[:1], body[:79], body[:-1]):
        refused(user.infer(wrong), 422, "malformed")
    for wrong in (body + b"\0", body * 2, b"\0" * (1 << 20)):
        assert "one ciphertext" in refused(user.infer(wrong), 413, "too_large")
    refused(user.infer(b"\0" * len(body)), 422, "serialization_error")
    refused(user.infer(body[:-1] + bytes([body[-1] ^ 1])), 422, "serialization_error")
    high = bytearray(body)
    high[wire.HEADER_BYTES + 32 : wire.HEADER_BYTES + 39] = b"\xff" * 7
    assert "below its prime" in refused(user.infer(sealed(high)), 422, "serialization_error")


def test_every_flipped_bit_of_a_header_is_found(user: NeighbourUser) -> None:
    user.upload()
    body = user.encrypt(QUERY)
    for place in range(wire.HEADER_BYTES):  # but for the sign of a zero
        altered = bytearray(body)
        altered[place] ^= 1 << place % 7
        for wrong in (bytes(altered), sealed(altered)):
            answer = user.infer(wrong)
            assert 400 <= answer.status_code < 500, (place, answer.status_code, answer.text)


def test_queries_of_another_set_modulus_level_or_number(user: NeighbourUser) -> None:
    user.upload()
    parameters, level = user.client.parameters, user.client.level

    def asked(chosen: LevelledParameters, at: int, count: int = 1) -> httpx.Response:
        key = LevelledClientKey.generate(chosen)
        polynomials = np.zeros((count, chosen.polynomial_size), dtype=int)
        return user.infer(key.encrypt_seeded(polynomials, at).to_bytes())

    modulus = LevelledParameters.of(parameters.set.name, parameters.plaintext_modulus - 2)
    assert "modulo" in refused(asked(modulus, level), 409, "wrong_parameters")
    refused(asked(parameters, level - 1), 422, "malformed")
    refused(asked(parameters, level, 2), 413, "too_large")
    # As many bytes as a query: two ciphertexts of half the level, and half as many primes of twice the ring.
    assert "one ciphertext of level 2, got 2 of level 1" in refused(asked(parameters, 1, 2), 422, "malformed")
    double = LevelledParameters.of("bgv13", parameters.plaintext_modulus)
    assert "bgv13" in refused(asked(double, 1), 409, "wrong_parameters")
    answer = user.infer(user.encrypt(QUERY))
    refused(user.infer(answer.content[: len(user.encrypt(QUERY))]), 422)


def test_queries_of_another_key(http: httpx.Client, user: NeighbourUser) -> None:
    body = user.encrypt(QUERY)
    refused(user.infer(body), 428, "key_required")
    stranger = NeighbourUser.of(http)
    key = stranger.upload()
    refused(user.infer(body, headers={"Fhe-Key-Id": key}), 409, "wrong_parameters")
    refused(user.infer(body, headers={"Fhe-Key-Id": "0" * 32}), 404, "unknown_key")
    toy = User.of(http)
    refused(user.infer(body, headers={"Fhe-Key-Id": toy.upload()}), 409, "wrong_parameters")
    refused(toy.infer(toy.encrypt()[1], headers={"Fhe-Key-Id": key}), 409, "wrong_parameters")


def test_objects_of_the_other_kind_of_model(http: httpx.Client, user: NeighbourUser) -> None:
    toy = User.of(http)
    assert 400 <= user.infer(toy.encrypt()[1]).status_code < 500
    assert 400 <= toy.infer(user.encrypt(QUERY)).status_code < 500
    padded = (user.encrypt(QUERY) + b"\0" * (1 << 20))[: toy.facts["input_bytes_one_sample"]]
    refused(toy.infer(padded), 422)
    identity = http.post("/v2/keys", json=toy.announcement()).json()["id"]
    refused(http.patch(f"/v2/keys/{identity}", content=user.keys[:300], headers={"Upload-Offset": "0"}), 422)
    identity = user.announce(user.keys).json()["id"]
    refused(http.patch(f"/v2/keys/{identity}", content=toy.keys[:300], headers={"Upload-Offset": "0"}), 422)


def test_keys_that_do_not_fit(http: httpx.Client, user: NeighbourUser) -> None:
    parameters, shape = user.client.parameters, user.client.key_shape
    refused(user.announce(user.keys[:-1]), 422, "malformed")
    refused(user.announce(user.keys + b"\0"), 413, "too_large")
    refused(user.announce(user.keys, parameter_set_digest="1" * 64), 409, "wrong_parameters")
    damaged = bytearray(user.keys)
    damaged[len(damaged) // 2] ^= 1
    refused(user.send(bytes(damaged)), 422, "checksum_mismatch")

    def of(chosen: LevelledParameters, automorphisms: list[int], products: bool = False) -> bytes:
        return LevelledClientKey.generate(chosen).evaluation_keys(automorphisms, products=products).to_bytes()

    other = LevelledParameters.of(parameters.set.name, parameters.plaintext_modulus - 2)
    assert "plaintext modulus" in refused(user.send(of(other, shape.automorphisms)), 409, "wrong_parameters")
    wrong = [*shape.automorphisms[:-1], 5]
    assert "automorphism" in refused(user.send(of(parameters, wrong)), 422, "malformed")
    refused(user.send(of(parameters, shape.automorphisms[:-1], products=True)), 422, "malformed")
    twice = LevelledEvaluationKeys.from_bytes(user.keys)
    first = next(iter(twice.keys.values()))
    repeated = bytearray(user.keys)
    section = wire.HEADER_BYTES + 36 + wire.packed_bytes(first.bodies.size)
    repeated[section : section + 4] = struct.pack("<I", shape.automorphisms[0])
    refused(user.send(sealed(repeated)), 422, "malformed")
    fewer = of(parameters, shape.automorphisms[:-1])
    refused(user.announce(fewer), 422, "malformed")
    high = bytearray(user.keys)
    high[wire.HEADER_BYTES + 36 : wire.HEADER_BYTES + 43] = b"\xff" * 7
    assert "below its prime" in refused(user.send(sealed(high)), 422, "malformed")
    many = bytearray(user.keys)
    struct.pack_into("<I", many, 60, 1 << 12)
    refused(user.send(sealed(many)), 422)
    assert user.upload()


def test_a_secret_key_is_refused_at_its_first_bytes(server: Server, user: NeighbourUser, tmp_path: Path) -> None:
    user.key.save(tmp_path / "secret.key", "passphrase")
    secret = (tmp_path / "secret.key").read_bytes()
    identity = user.announce(user.keys).json()["id"]
    for part in (secret, secret[:7]):
        answer = user.http.patch(f"/v2/keys/{identity}", content=part, headers={"Upload-Offset": "0"})
        assert "secret key" in refused(answer, 422, "secret_key_refused")
        assert user.http.head(f"/v2/keys/{identity}").headers["upload-offset"] == "0"
    length = user.facts["input_bytes_one_sample"]
    refused(user.infer((secret + b"\0" * length)[:length]), 422, "secret_key_refused")
    kept = [path for path in server.data.rglob("*") if path.is_file() and secret[90:140] in path.read_bytes()]
    assert kept == []


def test_a_key_that_the_storage_changed_is_asked_for_again(tmp_path: Path, index: NeighbourIndex) -> None:
    with serving(put(tmp_path, index)) as server, server.client() as http:
        user = NeighbourUser.of(http)
        name = user.upload()
        stored = server.data / "objects" / "keys" / name
        damaged = bytearray(stored.read_bytes())
        damaged[1000] ^= 1
        stored.write_bytes(damaged)
        refused(user.infer(user.encrypt(QUERY)), 428, "key_required")
        assert user.upload() == name
        assert user.infer(user.encrypt(QUERY)).status_code == 200
