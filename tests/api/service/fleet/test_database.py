"""A database that crashes and comes back, and one whose notices reach nobody: what was accepted is done, once, and right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from fleet_servers import processes
from postgresql import Server, needs_postgresql, server
from scoring_server import User, becomes

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


@pytest.fixture
def database() -> Iterator[Server]:
    needs_postgresql()
    with server() as made:
        yield made


@pytest.mark.parametrize("mode", ["immediate", pytest.param("fast", marks=pytest.mark.tier("release"))])
def test_what_was_accepted_outlives_a_database_that_stops(
    tmp_path: Path, fill: Callable[[Path], Path], database: Server, mode: str
):
    with processes(tmp_path, fill, database.url, SYNCHRONOUS_SECONDS="60", MAX_ATTEMPTS="20") as group:
        worker, web = group.start("worker"), group.start("web")
        with web.client() as http, ThreadPoolExecutor(4) as pool:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt(samples=400)
            expected = user.infer(body).raise_for_status().content
            jobs = [http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"] for _ in range(6)]
            assert becomes(lambda: {http.get(f"/v2/jobs/{job}").json()["state"] for job in jobs} != {"queued"}, True)
            asked = [pool.submit(user.infer, body) for _ in range(4)]
            database.stop(mode)
            refused = user.infer(body)
            assert refused.status_code == 503
            assert "postgresql" not in refused.text.lower() and "SELECT" not in refused.text
            assert becomes(lambda: http.get("/v2/health/ready").status_code, 503)
            assert worker.process is not None and worker.process.poll() is None
            database.start()
            for future in asked:  # begun before: answered, now or as a job, or told to come again; never wrong
                answer = future.result(90)
                assert answer.status_code in (200, 202, 503), answer.text
                assert answer.status_code != 200 or user.same_answer(answer.content, expected)
                jobs += [answer.json()["id"]] if answer.status_code == 202 else []
            for job in jobs:
                assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json().get("state"), "done", 90)
                assert user.same_answer(http.get(f"/v2/jobs/{job}/result").content, expected)
            assert becomes(lambda: user.infer(body).status_code, 200)
            assert becomes(lambda: http.get("/v2/health/ready").status_code, 200)


@pytest.mark.tier("release")  # half a minute of waiting
def test_a_service_ends_although_its_database_does_not_answer(
    tmp_path: Path, fill: Callable[[Path], Path], database: Server
):
    """Its processes are stopped, not ended: connections stay, and nothing comes."""
    with processes(tmp_path, fill, database.url, SYNCHRONOUS_SECONDS="60") as group:
        service = group.start("all")
        with service.client() as http:
            user = User.of(http)
            user.upload()
            user.infer(user.encrypt()[1]).raise_for_status()
        root = psutil.Process(int((database.folder / "data" / "postmaster.pid").read_text().split()[0]))
        every = [root, *root.children(recursive=True)]
        for process in every:
            process.suspend()
        try:
            assert service.process is not None
            service.process.terminate()
            service.process.wait(120)
        finally:
            for process in every:
                process.resume()
        log = service.log.read_text(encoding="utf-8")
        assert '"message": "ended"' in log and "Traceback" not in log and "shutdown failed" not in log


def test_work_is_found_without_notices(tmp_path: Path, fill: Callable[[Path], Path], database: Server):
    database.silence()
    with processes(tmp_path, fill, database.url, SYNCHRONOUS_SECONDS="60") as group:
        group.start("worker")
        web = group.start("web")
        with web.client() as http:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt()
            expected = user.infer(body).raise_for_status().content
            job = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
            with http.stream("GET", f"/v2/jobs/{job}/events") as events:
                assert "event: done" in "".join(events.iter_text())
            assert user.same_answer(http.get(f"/v2/jobs/{job}/result").content, expected)
