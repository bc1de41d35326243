"""The same service on PostgreSQL, and two of them on one database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgresql import postgresql, reason_without
from scoring_server import Server, User, running

pytestmark = pytest.mark.skipif(reason_without() is not None, reason=str(reason_without()))


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgresql() as url:
        yield url


def start(tmp_path: Path, name: str, fill: Callable[[Path], Path], database: str) -> Server:
    server = Server(fill(tmp_path / name), environment={"DATABASE_URL": database, "TAKEOVER_SECONDS": "3"})
    server.start()
    return server


def test_keys_answers_jobs_and_usage(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    with running(fill(tmp_path / "data"), environment={"DATABASE_URL": database}) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        assert http.post("/v2/keys", json=user.announcement()).status_code == 200
        _, body = user.encrypt(samples=2)
        answer = user.infer(body)
        headers = {"Idempotency-Key": "postgresql"}
        jobs = [http.post("/v2/models/toy/jobs", content=body, headers=headers).json() for _ in range(3)]
        assert len({job["id"] for job in jobs}) == 1
        with http.stream("GET", f"/v2/jobs/{jobs[0]['id']}/events") as events:
            assert "event: done" in "".join(events.iter_text())
        assert user.same_answer(http.get(f"/v2/jobs/{jobs[0]['id']}/result").content, answer.content)
        used = http.get("/v2/usage").json()
        assert used["bootstraps_today"] >= 4 * user.facts["bootstraps"] and used["jobs"]["done"] >= 1
        server.kill()
        server.start()
        assert user.same_answer(user.infer(body).content, answer.content)
        assert not (server.data / "cloakwork.db").exists()


def test_a_job_of_a_service_that_is_gone_is_taken_over(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    """Both share the folder of objects, as they would share object storage."""
    first, second = (start(tmp_path, name, fill, database) for name in ("first", "second"))
    try:
        second.stop()
        shared = second.data / "objects"
        for file in sorted(shared.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        shared.rmdir()
        shared.symlink_to(first.data / "objects")
        second.start()
        with first.client() as http:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt(samples=500)
            jobs = [http.post("/v2/models/toy/jobs", content=body).json()["id"] for _ in range(4)]
        first.kill()
        with second.client() as http:
            end = time.monotonic() + 90
            while time.monotonic() < end:
                states = [http.get(f"/v2/jobs/{job}").json()["state"] for job in jobs]
                if states == ["done"] * len(jobs):
                    break
                time.sleep(0.5)
            assert states == ["done"] * len(jobs)
            results = [http.get(f"/v2/jobs/{job}/result").content for job in jobs]
            assert all(user.same_answer(results[0], result) for result in results[1:])
    finally:
        first.stop()
        second.stop()
