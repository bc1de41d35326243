"""Uploads that begin before their SHA-256 is known: resumption, what is refused at their end, and one key for each content."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import Clock, serving
from scoring_server import Server, User, becomes

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.fhe_core.wire import CHECKSUM_BYTES, HEADER_BYTES, SEED_BYTES
from cloakwork.fhe_core.wire.layout import BLOCK_WORDS, Kind, Planes, section_layout


def opened(user: User, **changes: Any) -> str:
    announcement = user.announcement(**changes)
    del announcement["sha256"]
    answer = user.http.post("/v2/keys", json=announcement)
    assert (answer.status_code, answer.json()["state"], answer.json()["sha256"]) == (201, "open", None), answer.text
    identity: str = answer.json()["id"]
    return identity


def listed(http: httpx.Client) -> set[str]:
    return {key["id"] for key in http.get("/v2/keys").json()["keys"]}


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_parts_of_every_size_become_the_announced_key(user: User, http: httpx.Client):
    """A byte, a header that comes in two halves, and the last byte alone."""
    key = opened(user)
    edges = [0, 1, 100, 200, len(user.keys) // 2, len(user.keys) - CHECKSUM_BYTES, len(user.keys) - 1, len(user.keys)]
    for start, end in pairwise(edges):
        assert http.head(f"/v2/keys/{key}").headers["upload-offset"] == str(start)
        assert http.get(f"/v2/keys/{key}").json()["sha256"] is None
        if end < len(user.keys):
            refused(user.send(key, start + 1, end + 1), 409, "wrong_offset")
        done = user.send(key, start, end).json()
    digest = hashlib.sha256(user.keys).hexdigest()
    assert (done["id"], done["state"], done["sha256"]) == (key, "ready", digest)
    user.infer(user.encrypt()[1]).raise_for_status()
    again = http.post("/v2/keys", json=user.announcement())
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (200, key, "ready")


def test_every_announcement_without_content_is_an_upload_of_its_own(user: User, http: httpx.Client):
    before = listed(http)
    keys = {opened(user) for _ in range(3)}
    assert len(keys) == 3 and listed(http) - before == keys
    explicit = user.announcement(sha256=None)
    assert http.post("/v2/keys", json=explicit).status_code == 201


@pytest.mark.parametrize("changes", [{"bytes": 0}, {"bytes": 5}, {"bytes": 10**10}, {"bytes": 1 << 60}, {"sha256": ""}])
def test_announcements_that_cannot_be(user: User, changes: dict[str, Any]):
    answer = user.http.post("/v2/keys", json={**user.announcement(sha256=None), **changes})
    assert answer.status_code in (413, 422) and answer.json()["code"]


# --- what is refused ---


@pytest.mark.parametrize("harm", ["header", "seed", "word", "checksum", "key id"])
def test_damaged_bytes_begin_again_at_0(user: User, http: httpx.Client, harm: str):
    position = {"header": 20, "seed": HEADER_BYTES, "word": len(user.keys) // 2, "checksum": -1, "key id": 80}[harm]
    damaged = bytearray(user.keys)
    damaged[position] ^= 1
    key = opened(user)
    answer = http.patch(f"/v2/keys/{key}", content=bytes(damaged), headers={"Upload-Offset": "0"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] in ("malformed", "checksum_mismatch", "serialization_error")
    assert http.head(f"/v2/keys/{key}").headers["upload-offset"] == "0"
    refused(user.infer(user.encrypt()[1]), 428, "key_required")
    assert user.send(key).json()["state"] == "ready"


def first_words(block: int) -> int:
    """Where a block of the toy set's bootstrap key ends, and its top plane with it."""
    section = section_layout(Kind.EVALUATION_KEYS, parameter_set("toy"), True, ())[1]
    assert isinstance(section, Planes)
    words = min((block + 1) * BLOCK_WORDS, section.byte_count // section.plane_count)
    return HEADER_BYTES + SEED_BYTES + words * section.plane_count


@pytest.mark.parametrize("position", [first_words(0) - 1, first_words(1) - 1, first_words(1) - 8192])
def test_a_word_above_its_modulus_in_any_block(user: User, http: httpx.Client, position: int):
    """The last word of a block that another follows, and words of the last, shorter one; all checksums are right."""
    key = ClientKey.generate(parameter_set("toy"))
    made_up = bytearray(key.evaluation_keys().to_bytes())
    made_up[position] = 0xFF
    made_up[-CHECKSUM_BYTES:] = hashlib.sha256(made_up[:-CHECKSUM_BYTES]).digest()
    identity = opened(user, bytes=len(made_up), parameter_set_digest=parameter_digest(key.parameters).hex())
    answer = http.patch(f"/v2/keys/{identity}", content=bytes(made_up), headers={"Upload-Offset": "0"})
    refused(answer, 422, "malformed")
    assert "below" in answer.json()["error"]
    assert http.head(f"/v2/keys/{identity}").headers["upload-offset"] == "0", "nothing of it is kept"


def test_more_than_was_announced(user: User, http: httpx.Client):
    key = opened(user)
    answer = http.patch(f"/v2/keys/{key}", content=user.keys + b"\0", headers={"Upload-Offset": "0"})
    refused(answer, 413, "too_large")
    assert user.send(key).json()["state"] == "ready"


# --- one key for each content ---


def test_content_that_is_here_keeps_its_first_id(user: User, http: httpx.Client):
    before = listed(http)
    first = user.upload()
    body = user.encrypt()[1]
    expected = user.infer(body).raise_for_status().content
    second = opened(user)
    assert user.send(second).json()["id"] == first
    assert listed(http) - before == {first}
    refused(http.get(f"/v2/keys/{second}"), 404, "unknown_key")
    assert user.same_answer(user.infer(body, headers={"Fhe-Key-Id": first}).content, expected)


def test_content_that_is_half_here_is_completed_for_both(server: Server, user: User, http: httpx.Client):
    first = http.post("/v2/keys", json=user.announcement()).json()["id"]
    half = len(user.keys) // 2
    assert user.send(first, 0, half).json()["offset"] == half
    second = opened(user)
    done = user.send(second).json()
    assert (done["id"], done["state"]) == (first, "ready")
    refused(user.send(first, half), 409, "conflict")
    again = http.post("/v2/keys", json=user.announcement()).json()
    assert (again["id"], again["state"], again["offset"]) == (first, "ready", len(user.keys))
    user.infer(user.encrypt()[1], headers={"Fhe-Key-Id": first}).raise_for_status()
    left = {path.name for path in (server.data / "objects" / "uploads").iterdir()}
    assert not left & {first, second}


def test_two_uploads_of_the_same_content_at_once(user: User, http: httpx.Client):
    before = listed(http)
    keys = [opened(user) for _ in range(4)]
    for key in keys:
        user.send(key, 0, -1)
    start, answers = threading.Barrier(len(keys)), []

    def finish(key: str) -> None:
        start.wait(30)
        answers.append(user.send(key, len(user.keys) - 1).json())

    threads = [threading.Thread(target=finish, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {answer["state"] for answer in answers} == {"ready"} and len(answers) == len(keys)
    left = listed(http) - before
    assert {answer["id"] for answer in answers} == left and len(left) == 1 and left < set(keys)
    user.infer(user.encrypt()[1]).raise_for_status()


# --- time ---


def test_open_uploads_expire(tmp_path: Path, fill: Callable[[Path], Path], clock: Clock):
    short = {"UPLOAD_RETENTION_SECONDS": "1e4", "RETENTION_CHECK_SECONDS": "0.1"}
    with serving(fill(tmp_path / "data"), environment=short) as server, server.client() as http:
        user = User.of(http)
        key = opened(user)
        user.send(key, 0, 1000)
        clock.pass_seconds(2e4)
        assert becomes(lambda: http.get("/v2/keys").json(), {"keys": []})
        refused(user.send(key, 1000), 404, "unknown_key")
        assert list((server.data / "objects" / "uploads").iterdir()) == []


def test_an_upload_whose_last_step_was_cut_off_is_finished_by_an_empty_part(
    server: Server, user: User, http: httpx.Client
):
    """As kill -9 leaves it: every byte is here, and the row says open."""
    key = opened(user)
    (server.data / "objects" / "uploads" / key).write_bytes(user.keys)
    assert http.get(f"/v2/keys/{key}").json()["state"] == "open"
    assert user.send(key, len(user.keys)).json()["state"] == "ready"
    refused(user.send(key, len(user.keys)), 409, "conflict")
