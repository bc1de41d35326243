"""Requests at one process, run by another: answered, drained, cancelled, taken over."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fleet_servers import processes, rows
from scoring_server import User, becomes, eventually
from sockets import connect, head
from tensors import described, object_in, send_tensor

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


def state(http: httpx.Client, job: str) -> str:
    return str(http.get(f"/v2/jobs/{job}").json()["state"])


def test_a_request_and_a_job_at_a_web_process_are_a_worker_s(
    tmp_path: Path, fill: Callable[[Path], Path], database: str
):
    with processes(tmp_path, fill, database) as group:
        worker, web, other = group.start("worker"), group.start("web"), group.start("web")
        with web.client() as http, other.client() as beside, worker.client() as back:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt(samples=100)
            answer = user.infer(body)
            assert answer.status_code == 200, answer.text
            assert "run;dur=" in answer.headers["Server-Timing"]
            with ExitStack() as listening:
                with worker.engine_held():
                    job = http.post("/v2/models/toy/jobs", content=body).json()["id"]
                    events = listening.enter_context(beside.stream("GET", f"/v2/jobs/{job}/events"))
                heard = "".join(events.iter_text())
            assert "event: progress" in heard and "event: done" in heard
            assert user.same_answer(beside.get(f"/v2/jobs/{job}/result").content, answer.content)
            assert object_in(send_tensor(user, described(len(body)), body)) == answer.content
            assert rows(database, "SELECT id FROM calls") == []
            assert back.get("/v2/models").status_code == 404 and back.get("/metrics").status_code == 200
            assert http.get("/metrics").status_code == 200
            load = http.get("/v2/admin/load").json()
            assert sorted(node["role"] for node in load["nodes"]) == ["web", "web", "worker"]
            assert load["engine"]["answers"] is False and load["jobs"]["done"] == 1
        worker.stop()
        assert [row[0] for row in rows(database, "SELECT role FROM nodes")] == ["web", "web"]
        with web.client() as http:
            assert becomes(lambda: http.get("/v2/health/ready").status_code, 503)
            assert "no worker" in http.get("/v2/health/ready").text
            time_out = http.post("/v2/models/toy/infer", content=body)
            assert time_out.status_code == 202  # it waits for a worker, as a job
            tensor = send_tensor(replace(user, http=http), described(len(body)), body)
            assert (tensor.status_code, tensor.json()["code"]) == (
                503,
                "unavailable",
            )  # whose client could not follow one
            group.start("worker")
            assert becomes(lambda: state(http, time_out.json()["id"]), "done")


def test_what_a_killed_worker_had_another_finishes(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    with processes(tmp_path, fill, database, MAX_ATTEMPTS="20", SYNCHRONOUS_SECONDS="60") as group:
        first, web = group.start("worker"), group.start("web")
        with web.client() as http, ThreadPoolExecutor(6) as pool:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt(samples=400)
            expected = user.infer(body).raise_for_status().content
            with first.engine_held():
                jobs = [http.post("/v2/models/toy/jobs", content=body).json()["id"] for _ in range(3)]
                answers = [pool.submit(user.answer, body) for _ in range(4)]
                assert becomes(
                    lambda: "running" in [state(http, job) for job in jobs] or first_has_calls(database), True
                )
                first.kill()
            group.start("worker")
            for answer in answers:
                assert user.same_answer(answer.result(), expected)
            for job in jobs:
                assert becomes(lambda job=job: state(http, job), "done", 60)
                assert user.same_answer(http.get(f"/v2/jobs/{job}/result").content, expected)


def first_has_calls(database: str) -> bool:
    return bool(rows(database, "SELECT id FROM calls WHERE state = 'leased'"))


def test_calls_of_a_killed_web_process_vanish(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    with processes(tmp_path, fill, database, SYNCHRONOUS_SECONDS="60") as group:
        worker = group.start("worker")
        web, other = group.start("web"), group.start("web")
        with web.client() as http, other.client() as beside:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt()
            threads = [threading.Thread(target=quietly, args=(user, body)) for _ in range(6)]
            with worker.engine_held():
                for thread in threads:
                    thread.start()
                assert becomes(lambda: len(rows(database, "SELECT id FROM calls")), len(threads))
                web.kill()
            assert becomes(lambda: rows(database, "SELECT id FROM calls"), [])
            for thread in threads:
                thread.join(10)
            again = User(beside, "toy", user.key, user.keys, user.specification, user.facts)
            assert again.answer(user.encrypt()[1])


def test_who_goes_before_a_worker_begins_pays_nothing(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    with processes(tmp_path, fill, database, SYNCHRONOUS_SECONDS="60") as group:
        worker, web = group.start("worker"), group.start("web")
        with web.client() as http:
            user = User.of(http)
            user.upload()
            bodies = [user.encrypt(samples=1 + i % 3, seed=i)[1] for i in range(60)]  # more than runs of 16 take
            assert user.infer(bodies[0]).status_code == 200
            paid = http.get("/v2/usage").json()["bootstraps_today"]
            with worker.engine_held():
                with ExitStack() as opened:
                    for body in bodies:
                        connection = opened.enter_context(connect(web))
                        begin = head("POST /v2/models/toy/infer", f"Content-Length: {len(body)}")
                        connection.sendall(begin + body)
                    assert becomes(lambda: len(rows(database, "SELECT id FROM calls")), len(bodies))
                    assert becomes(lambda: bool(rows(database, "SELECT id FROM calls WHERE state = 'leased'")), True)
                assert becomes(lambda: rows(database, "SELECT id FROM calls"), [])
                every = user.facts["bootstraps"] * sum(1 + i % 3 for i in range(len(bodies)))

                def cost() -> int:
                    return int(http.get("/v2/usage").json()["bootstraps_today"]) - paid

                assert eventually(lambda: 0 < cost() < every / 2), "counters are written now and then"
            assert becomes(lambda: user.infer(bodies[0]).status_code, 200)


def quietly(user: User, body: bytes, seconds: float = 60.0) -> None:
    try:
        user.infer(body, timeout=seconds)
    except httpx.TransportError:
        return


def test_a_draining_worker_gives_back_what_it_has_not_begun(
    tmp_path: Path, fill: Callable[[Path], Path], database: str
):
    with processes(tmp_path, fill, database, SYNCHRONOUS_SECONDS="60") as group:
        worker, web = group.start("worker"), group.start("web")
        with web.client() as http:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt()
            assert worker.process is not None
            with worker.engine_held():
                jobs = [http.post("/v2/models/toy/jobs", content=body).json()["id"] for _ in range(8)]
                assert becomes(lambda: "running" in [state(http, job) for job in jobs], True)
                worker.process.terminate()
                assert becomes(lambda: len(rows(database, "SELECT id FROM nodes WHERE draining")), 1)
            assert worker.process.wait(60) in (0, -signal.SIGTERM)  # a second signal would not wait for what runs
            left = rows(database, "SELECT node, attempts, state FROM jobs WHERE state IN ('queued', 'running')")
            assert left and set(left) == {("", 0, "queued")}
            assert len(left) < len(jobs)  # what ran was finished
            for job in jobs:
                assert http.delete(f"/v2/jobs/{job}").status_code == 204


def test_a_job_is_cancelled_through_another_web_process(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    with processes(tmp_path, fill, database) as group:
        worker = group.start("worker")
        web, other = group.start("web"), group.start("web")
        with web.client() as http, other.client() as beside:
            user = User.of(http)
            user.upload()
            with worker.engine_held():
                job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
                assert becomes(lambda: state(beside, job), "running")
                assert beside.delete(f"/v2/jobs/{job}").status_code == 204
                assert state(http, job) == "cancelled"
            running = lambda: sum(node["running"] for node in http.get("/v2/admin/load").json()["nodes"])  # noqa: E731
            assert becomes(running, 0, 10)


def test_a_request_that_kills_workers_fails_and_others_do_not(
    tmp_path: Path, fill: Callable[[Path], Path], database: str
):
    """Nothing runs: rows are set as three dying workers would leave them."""
    with processes(tmp_path, fill, database, MAX_ATTEMPTS="2") as group:
        web = group.start("all")
        with web.client() as http:
            user = User.of(http)
            user.upload()
            with web.engine_held():
                job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
                assert becomes(lambda: state(http, job), "running")
                rows(database, "UPDATE jobs SET node = 'gone', attempts = 2 WHERE state = 'running' RETURNING id")
                assert becomes(lambda: state(http, job), "failed")
            assert http.get(f"/v2/jobs/{job}").json()["error"]["code"] == "engine_lost"
            assert user.infer(user.encrypt()[1]).status_code == 200


def test_processes_live_through_a_restart_of_connections(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    """Every connection is cut, the ones that listen too; what comes then is answered."""
    with processes(tmp_path, fill, database) as group:
        group.start("worker")
        web = group.start("web")
        with web.client() as http:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt()
            expected = user.infer(body).raise_for_status().content
            rows(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            assert becomes(lambda: user.infer(body).status_code, 200)
            assert user.same_answer(user.infer(body).content, expected)
