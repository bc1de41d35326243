"""The same service on PostgreSQL, and two of them on one database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgresql import needs_postgresql, postgresql
from scoring_server import Server, User, becomes, running

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    needs_postgresql()
    with postgresql() as url:
        yield url


def start(tmp_path: Path, name: str, fill: Callable[[Path], Path], database: str) -> Server:
    (tmp_path / "objects").mkdir(exist_ok=True)
    shared = {"DATABASE_URL": database, "STORAGE_URL": (tmp_path / "objects").as_uri(), "TAKEOVER_SECONDS": "3"}
    shared["ADOPT_STORAGE"] = str(name == "first").lower()  # tests of this file share the database
    server = Server(fill(tmp_path / name), environment=shared)
    server.start()
    return server


def test_keys_answers_jobs_and_usage(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    alone = {"DATABASE_URL": database, "SINGLE_HOST": "true"}
    with running(fill(tmp_path / "data"), environment=alone) as server, server.client() as http:
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
    """Both share object storage."""
    first, second = (start(tmp_path, name, fill, database) for name in ("first", "second"))
    try:
        with first.client() as http:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt(samples=500)
            jobs = [http.post("/v2/models/toy/jobs", content=body).json()["id"] for _ in range(4)]
        first.kill()
        with second.client() as http:
            for job in jobs:
                assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done", 90)
            results = [http.get(f"/v2/jobs/{job}/result").content for job in jobs]
            assert all(user.same_answer(results[0], result) for result in results[1:])
    finally:
        first.stop()
        second.stop()


def refusal(data: Path, **settings: str) -> str:
    """Its only line, of a service that does not start."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CLOAKWORK_")}
    environment = {"DATA_FOLDER": str(data), "ZOO": "false", "PORT": "0", "INSECURE_LOCAL": "true", **settings}
    result = subprocess.run(
        [sys.executable, "-m", "cloakwork.api"],
        env={**clean, **{f"CLOAKWORK_{name}": value for name, value in environment.items()}},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert (result.returncode, len(lines)) == (2, 1), result.stderr
    return lines[0]


def test_a_shared_database_without_shared_objects_is_refused(tmp_path: Path, database: str):
    line = refusal(tmp_path / "data", DATABASE_URL=database)
    assert "storage_url" in line and "single_host" in line
    assert "storage_url" in refusal(tmp_path / "other", DATABASE_URL=f"sqlite:///{tmp_path / 'shared.db'}")


def test_a_single_host_is_single(tmp_path: Path, fill: Callable[[Path], Path]):
    needs_postgresql()
    with postgresql() as database:  # which no other test's service has used lately
        is_single(tmp_path, fill, database)


def is_single(tmp_path: Path, fill: Callable[[Path], Path], database: str) -> None:
    alone = {"DATABASE_URL": database, "SINGLE_HOST": "true", "TAKEOVER_SECONDS": "30"}
    with running(fill(tmp_path / "data"), environment=alone) as server:
        assert "another service" in refusal(tmp_path / "second", **alone)
        server.kill()
        server.start()  # the same one may come back at once
