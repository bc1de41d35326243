"""Keys that the storage has lost come again; keys that were deleted leave every cache; races between uploads, deletions and runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from in_process import Clock, Restarts, serving
from postgresql import needs_postgresql, postgresql
from scoring_server import Server, User, becomes, resident, running


def file_of(server: Server, key: str) -> Path:
    return server.data / "objects" / "keys" / key


# --- lost ---


@pytest.mark.parametrize("harm", ["removed", "cut", "damaged"])
def test_a_lost_key_is_asked_for_and_comes_again(tmp_path: Path, fill: Callable[[Path], Path], harm: str):
    with serving(fill(tmp_path / "data")) as server, server.client() as http:
        user = User.of(http)
        key = user.upload()
        _, body = user.encrypt()
        expected = user.infer(body).content
        if harm == "damaged":  # seen when it is read, so that it must not be in memory
            server.stop()
            damaged = bytearray(user.keys)
            damaged[len(damaged) // 2] ^= 1
            file_of(server, key).write_bytes(bytes(damaged))
            server.start()
        elif harm == "cut":
            file_of(server, key).write_bytes(user.keys[:-1])
        else:
            file_of(server, key).unlink()
        answer = user.infer(body)
        assert (answer.status_code, answer.json()["code"]) == (428, "key_required"), answer.text
        assert key in answer.json()["error"]
        again = http.post("/v2/keys", json=user.announcement())
        assert (again.status_code, again.json()["id"], again.json()["state"]) == (200, key, "open")
        assert again.json()["offset"] == 0
        assert user.send(key).json()["state"] == "ready"
        assert user.same_answer(user.infer(body).content, expected)


def test_a_lost_key_that_nobody_has_used_since_comes_again(server: Server, user: User, http: httpx.Client):
    key = user.upload()
    file_of(server, key).unlink()
    assert http.post("/v2/keys", json=user.announcement()).json()["state"] == "open"
    assert user.send(key).json()["state"] == "ready"


def test_an_upload_whose_last_step_was_cut_off_is_finished_by_the_next_announcement(
    server: Server, user: User, http: httpx.Client
):
    """As kill -9 leaves it between the last byte and the row: every byte is here, and the row says open."""
    key = http.post("/v2/keys", json=user.announcement()).json()["id"]
    (server.data / "objects" / "uploads" / key).write_bytes(user.keys)
    assert http.post("/v2/keys", json=user.announcement()).json()["state"] == "ready"
    assert user.infer(user.encrypt()[1]).status_code == 200


# --- deleted ---


def test_an_expired_key_leaves_memory_and_devices(tmp_path: Path, fill: Callable[[Path], Path], clock: Clock):
    short = {"KEY_RETENTION_SECONDS": "1e4", "RETENTION_CHECK_SECONDS": "0.1"}
    with serving(fill(tmp_path / "data"), environment=short) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        user.infer(user.encrypt()[1]).raise_for_status()
        assert all(bytes_ > 0 for bytes_ in resident(http))
        clock.pass_seconds(2e4)
        assert becomes(lambda: http.get("/v2/keys").json(), {"keys": []})
        assert becomes(lambda: resident(http), [0.0, 0.0])


def test_a_key_does_not_expire_under_a_waiting_job(tmp_path: Path, fill: Callable[[Path], Path], clock: Clock):
    short = {"KEY_RETENTION_SECONDS": "1e4", "RETENTION_CHECK_SECONDS": "3600", "THREADS": "1"}
    with serving(fill(tmp_path / "data"), environment=short) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        with server.engine_held():
            jobs = [http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"] for _ in range(3)]
            clock.pass_seconds(2e4)
            server.do(server.services.housekeeping._retention())
        for job in jobs:
            assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        clock.pass_seconds(2e4)
        server.do(server.services.housekeeping._retention())
        assert http.get("/v2/keys").json() == {"keys": []}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[tuple[Server, Server]]:
    """Two services on one PostgreSQL and one object storage."""
    needs_postgresql()
    folder = tmp_path_factory.mktemp("pair")
    (folder / "objects").mkdir()
    with postgresql() as database:
        shared = {"DATABASE_URL": database, "STORAGE_URL": (folder / "objects").as_uri(), "THREADS": "1"}
        with (
            running(fill(folder / "one"), environment=shared) as one,
            running(fill(folder / "two"), environment=shared) as two,
        ):
            yield one, two


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_key_deleted_through_one_service_leaves_both(pair: tuple[Server, Server]):
    one, two = pair
    with one.client() as first, two.client() as second:
        user = User.of(first)
        key = user.upload()
        _, body = user.encrypt()
        expected = user.infer(body).content
        assert user.same_answer(second.post("/v2/models/toy/infer", content=body).content, expected)
        engines = [http for http in (first, second) if all(bytes_ > 0 for bytes_ in resident(http))]
        assert engines, "one of the two ran it"
        assert first.delete(f"/v2/keys/{key}").status_code == 204
        assert becomes(lambda: second.post("/v2/models/toy/infer", content=body).status_code, 428)
        for http in (first, second):
            assert becomes(lambda http=http: resident(http), [0.0, 0.0])
        for server in pair:
            assert becomes(file_of(server, key).exists, False)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_job_cancelled_through_one_service_stops_in_the_other(pair: tuple[Server, Server]):
    one, two = pair
    with one.client() as first, two.client() as second:
        user = User.of(first)
        user.upload()
        jobs = [first.post("/v2/models/toy/jobs", content=user.encrypt(samples=4000)[1]).json()["id"] for _ in range(3)]
        for job in jobs:
            assert second.delete(f"/v2/jobs/{job}").status_code == 204
        assert first.post("/v2/models/toy/infer", content=user.encrypt()[1]).status_code in (200, 202)
        assert becomes(lambda: first.get("/metrics").text.count('fhe_jobs{state="running"} 0.0'), 1)
        assert {first.get(f"/v2/jobs/{job}").json()["state"] for job in jobs} == {"cancelled"}


# --- at the same time ---


def begin_upload(server: Server, user: User, key: str, count: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = f"PATCH /v2/keys/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpload-Offset: 0\r\nContent-Length: {len(user.keys)}\r\n\r\n"
    connection.sendall(head.encode() + user.keys[:count])
    return connection


def test_two_clients_that_resume_at_the_same_place(server: Server, user: User, http: httpx.Client):
    key = http.post("/v2/keys", json=user.announcement()).json()["id"]
    answers: list[httpx.Response] = []

    def send() -> None:
        with server.client() as own:
            headers = {"Upload-Offset": "0"}
            answers.append(own.patch(f"/v2/keys/{key}", content=user.keys, headers=headers))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert user.infer(user.encrypt()[1]).status_code == 200


def test_a_key_deleted_while_it_is_sent(server: Server, user: User, http: httpx.Client):
    key = http.post("/v2/keys", json=user.announcement()).json()["id"]
    with begin_upload(server, user, key, 50_000) as connection:
        assert becomes(lambda: http.head(f"/v2/keys/{key}").headers["upload-offset"] != "0", True)
        assert http.delete(f"/v2/keys/{key}").status_code == 204
        connection.sendall(user.keys[50_000:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
    left = [path for path in (server.data / "objects").rglob(f"*{key}*") if path.is_file()]
    assert left == []
    assert user.upload() != key


def test_a_model_unloaded_while_its_jobs_wait(tmp_path: Path, fill: Callable[[Path], Path], restart: Restarts):
    """Also over a restart: what was accepted ends with the program it was accepted for."""
    with restart.running(fill(tmp_path / "data"), environment={"THREADS": "1"}) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        with server.engine_held():
            jobs = [http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"] for _ in range(3)]
            http.post("/v2/repository/models/toy/unload").raise_for_status()
            restart.of(server)
        with server.client() as again:
            for job in jobs:
                assert becomes(lambda job=job: again.get(f"/v2/jobs/{job}").json()["state"], "done")
            assert again.get("/v2/models/toy").status_code == 410
