"""What the storage has lost or changed is never given out as what it was, and never called the client's fault."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from in_process import LocalServer
from scoring_server import User, becomes, metric

from cloakwork.api.service.storage.objects import Damage, ObjectStorage, has_digest

Change = Callable[[Path], object]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


CHANGES = pytest.mark.parametrize("change", [flip, cut, Path.unlink], ids=["flipped", "cut", "lost"])


def submit(user: User) -> str:
    answer = user.http.post("/v2/models/toy/jobs", content=user.encrypt()[1])
    assert answer.status_code == 202
    identity: str = answer.json()["id"]
    return identity


@CHANGES
def test_a_damaged_result_is_a_counted_error_of_the_service(
    server: LocalServer, user: User, http: httpx.Client, change: Change
):
    user.upload()
    job = submit(user)
    assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
    whole = http.get(f"/v2/jobs/{job}/result")
    assert hashlib.sha256(whole.content).hexdigest() == whole.headers["etag"].strip('"')
    before = (
        metric(http, "fhe_damaged_objects_total") if "fhe_damaged_objects_total{" in http.get("/metrics").text else 0
    )
    (stored,) = (server.data / "objects" / "results").glob(f"{job}-*")
    change(stored)
    answers = [http.get(f"/v2/jobs/{job}/result", headers=headers) for headers in ({}, {"Range": "bytes=0-9"})]
    assert [(each.status_code, each.json()["code"]) for each in answers] == [(500, "damaged_object")] * 2
    assert metric(http, "fhe_damaged_objects_total") == before + 2
    assert "Range" not in answers[0].text and "send the job again" in answers[0].json()["error"]
    assert http.delete(f"/v2/jobs/{job}").status_code == 204


@pytest.mark.parametrize("change", [flip, cut], ids=["flipped", "cut"])
def test_a_damaged_input_is_not_the_clients_fault(server: LocalServer, user: User, http: httpx.Client, change: Change):
    user.upload()
    with server.engine_held():
        jobs = [submit(user) for _ in range(8)]  # some of which no engine has read
        for job in jobs:
            change(server.data / "objects" / "inputs" / job)
    for job in jobs:
        assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"] in ("done", "failed"), True)
    errors = [http.get(f"/v2/jobs/{job}").json()["error"] for job in jobs]
    assert {error["code"] for error in errors if error} == {"damaged_object"}


def test_what_the_client_sent_wrong_is_still_its_fault(user: User, http: httpx.Client):
    user.upload()
    body = bytearray(user.encrypt()[1])
    body[-1] ^= 1
    job = http.post("/v2/models/toy/jobs", content=bytes(body)).json()["id"]
    assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "failed")
    assert http.get(f"/v2/jobs/{job}").json()["error"]["code"] != "damaged_object"


def test_a_damaged_copy_is_fetched_again(tmp_path: Path):
    """Of an object that other services have too."""
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    storage = ObjectStorage((tmp_path / "bucket").as_uri(), tmp_path / "copies")
    digest = hashlib.sha256(b"words").hexdigest()
    counted: list[str] = []

    async def run() -> None:
        storage.place("results/a").write_bytes(b"words")
        await storage.keep("results/a")
        flip(storage.place("results/a"))
        damage = Damage(storage, counted.append)
        path = await damage.intact("results/a", lambda path: has_digest(path, 5, digest))
        assert path is not None and path.read_bytes() == b"words" and counted == []
        assert await damage.intact("results/a", lambda path: has_digest(path, 6, digest)) is None
        assert counted == ["results"]

    asyncio.run(run())
