"""A disk that is full: what would fill it is refused, deleting goes on, and after one delete the service scores again."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from scoring_server import Server, User, becomes, running

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

DISK_BYTES = 40 << 20
RESERVE_BYTES = 4 << 20
ROWS_BYTES = 128 << 10  # for the database's log, in one test


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of its own: nothing stands for ENOSPC but ENOSPC."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no file system of its own can be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(place: Path) -> Path:
    """As another program would, to the last byte."""
    file = place / "of-another-program"
    with file.open("ab", buffering=0) as stream:
        block = bytes(1 << 20)
        while block:
            try:
                stream.write(block)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                block = block[: len(block) // 2]
    return file


def refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (507, "storage_full"), answer.text


def full_lines(server: Server) -> int:
    return sum(line["message"] == "no room on the disk" for line in server.log_lines())


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("full")
    settings = {"DISK_RESERVE_BYTES": str(RESERVE_BYTES)}
    with (
        small_disk(folder / "disk") as disk,
        running(fill(disk / "data"), environment=settings, logs=folder) as started,
    ):
        yield started


@pytest.fixture
def server(full: Server) -> Iterator[Server]:
    """With nothing stored; afterwards there is room again."""
    with full.client() as http:
        for key in http.get("/v2/keys").json()["keys"]:
            assert http.delete(f"/v2/keys/{key['id']}").status_code == 204
    yield full
    (full.data.parent / "of-another-program").unlink(missing_ok=True)


def test_a_disk_that_others_have_filled(server: Server):
    """Nothing can be written at all, not even a database's log: deleting works by the reserve that the service has put aside."""
    with server.client() as http:
        user = User.of(http)
        key = user.upload()
        other = User.of(http)
        other_key = other.upload()
        body = user.encrypt()[1]
        expected = user.infer(body).content
        half = User.of(http)
        identity = http.post("/v2/keys", json=half.announcement()).json()["id"]
        part = len(half.keys) // 2
        half.send(identity, end=part).raise_for_status()
        of_another_program = fill_up(server.data.parent)
        for _ in range(3):
            refused(half.send(identity, start=part))
            refused(http.post("/v2/models/toy/jobs", content=body))
            refused(http.post("/v2/keys", json=User.of(http).announcement()))
        assert http.head(f"/v2/keys/{identity}").headers["upload-offset"] == str(part)
        assert user.same_answer(user.infer(body).content, expected)
        assert http.get("/v2/usage").status_code == 200, "which writes nothing"
        assert full_lines(server) == 1
        server.kill()
        server.start()
        assert user.same_answer(user.infer(body).content, expected), "also when it starts on a full disk"
        fill_up(server.data.parent)
        assert http.delete(f"/v2/keys/{other_key}").status_code == 204
        assert not (server.data / "objects" / "keys" / other_key).exists()
        # The room of the deleted key is taken at once, and it is deleted again: the database always has what it needs.
        fill_up(server.data.parent)
        assert http.delete(f"/v2/keys/{identity}").status_code == 204
        of_another_program.unlink()
        assert http.post("/v2/models/toy/jobs", content=body).status_code == 202
        assert User.of(http).upload()
        assert http.delete(f"/v2/keys/{key}").status_code == 204
        reserve = server.data / "reserve"
        assert becomes(lambda: reserve.stat().st_size, RESERVE_BYTES // 2), "the reserve is made again"
        assert [line for line in server.log_lines() if line["level"] == "error" and "exception" in line] == []


def test_a_result_without_room_fails_its_job_and_the_service_goes_on(server: Server):
    with server.client() as http:
        user = User.of(http)
        user.upload()
        jobs = [http.post("/v2/models/toy/jobs", content=user.encrypt(samples=1500)[1]).json()["id"] for _ in range(3)]
        of_another_program = fill_up(server.data.parent)
        states = []
        for job in jobs:
            assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"] in ("queued", "running"), False)
            states.append(http.get(f"/v2/jobs/{job}").json())
        assert {state["state"] for state in states} <= {"done", "failed"}, states
        assert {state["error"]["code"] for state in states if state["error"]} == {"storage_full"}
        assert list((server.data / "objects").rglob(".*.tmp")) == []
        of_another_program.unlink()
        for job in jobs:
            assert http.delete(f"/v2/jobs/{job}").status_code == 204
        job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        with http.stream("GET", f"/v2/jobs/{job}/events") as events:
            assert "event: done" in "".join(events.iter_text())


def test_a_model_that_meets_the_end_of_the_disk_leaves_nothing(server: Server):
    """The room was there when it began."""
    content = b"CLKM" + bytes(8 << 20)
    path = "/v2/repository/models/large/versions/1"
    with server.client() as http:

        def body() -> Iterator[bytes]:
            yield content[: 4 << 20]
            fill_up(server.data.parent)
            yield content[4 << 20 :]

        refused(http.put(path, content=body(), headers={"Content-Length": str(len(content))}))
        assert list((server.data / "models" / ".incoming").iterdir()) == []
        refused(http.put(path, content=content))
        assert http.get("/v2/models/large").status_code == 404


def test_uploads_and_jobs_leave_the_reserve_and_one_delete_makes_room(server: Server):
    with server.client() as http:
        status = os.statvfs(server.data)
        taken = status.f_bavail * status.f_frsize - RESERVE_BYTES // 2 - (1 << 20)
        of_another_program = server.data.parent / "of-another-program"
        of_another_program.write_bytes(bytes(taken))
        users = []
        answer = httpx.Response(201)
        while answer.status_code == 201:
            user = User.of(http)
            answer = http.post("/v2/keys", json=user.announcement())
            if answer.status_code == 201:
                users.append((user, answer.json()["id"]))
                user.send(users[-1][1]).raise_for_status()
        refused(answer)
        last = users[-1][0]
        body = last.encrypt()[1]
        assert last.infer(body).status_code == 200, "what needs no room goes on"
        refused(http.post("/v2/models/toy/jobs", content=last.encrypt(samples=4000)[1]))
        assert http.get("/v2/health/ready").status_code == 200
        status = os.statvfs(server.data)
        held = (server.data / "reserve").stat().st_size
        assert status.f_bavail * status.f_frsize + held >= RESERVE_BYTES - (64 << 10), "but for the database's own"
        # The database writes rows in between, and they may take all that was left when a key did not fit by a byte.
        os.truncate(of_another_program, taken - ROWS_BYTES)
        assert http.delete(f"/v2/keys/{users[0][1]}").status_code == 204
        assert User.of(http).upload()
        assert last.infer(body).status_code == 200


def test_a_reserve_larger_than_the_disk_refuses_all_that_is_stored(tmp_path: Path, fill: Callable[[Path], Path]):
    """Wherever no file system can be mounted; the service starts and answers what needs no room."""
    with (
        running(fill(tmp_path / "data"), environment={"DISK_RESERVE_BYTES": str(1 << 60)}) as server,
        server.client() as http,
    ):
        refused(http.post("/v2/keys", json=User.of(http).announcement()))
        assert http.get("/v2/models").status_code == 200
