"""Many requests of one key at a service that has one thread: computed together, each with the answer that audits expect."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from in_process import serving
from scoring_server import Server, User, becomes, job_result, metric

from cloakwork.models.audit.audit_key import load_audit_key
from cloakwork.models.compiled import CompiledModel

REQUESTS = 24
JOINED = "fhe_joined_requests_total"


def occupied(server: Server, user: User) -> str:
    """A job that has the only thread for as long as the engine is held."""
    with server.client() as http:
        body = user.encrypt(samples=3)[1]
        job: str = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "running")
    return job


def engines(server: Server) -> int:
    """How often one was started."""
    return sum(line["message"] == "engine ready" for line in server.log_lines())


@pytest.mark.tier("all")
def test_answers_and_jobs_have_their_own_bytes(tmp_path: Path, fill: Callable[[Path], Path], compiled: CompiledModel):
    limits = {"THREADS": "1", "SYNCHRONOUS_SECONDS": "60"}
    with serving(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        bodies = [user.encrypt(samples=1 + number % 3, seed=number)[1] for number in range(REQUESTS)]
        key = load_audit_key(server.data / "audit.key")
        expected = [user.made_again(compiled, key, body) for body in bodies]
        with ThreadPoolExecutor(REQUESTS) as pool:
            with server.engine_held():
                occupied(server, user)
                asked = [pool.submit(user.infer, body) for body in bodies]
                assert becomes(lambda: metric(http, "fhe_requests_waiting"), REQUESTS)
            answers = [answer.result() for answer in asked]
        assert [answer.content for answer in answers] == expected
        at_once = metric(http, JOINED)
        assert at_once >= REQUESTS // 2
        times = [float(answer.headers["Fhe-Compute-Seconds"]) for answer in answers]
        assert all(each > 0 for each in times)

        with server.engine_held():
            first = occupied(server, user)
            jobs = [http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"] for body in bodies]
            assert http.delete(f"/v2/jobs/{jobs.pop()}").status_code == 204
        for job, answer in zip(jobs, expected[:-1], strict=True):
            assert job_result(http, job) == answer
        assert becomes(lambda: http.get(f"/v2/jobs/{first}").json()["state"], "done")
        assert metric(http, JOINED) - at_once >= REQUESTS // 2
        assert becomes(lambda: http.get("/v2/usage").json()["days"][0]["requests"], 2 * REQUESTS - 1 + 2)


@pytest.mark.tier("all")
def test_a_killed_engine_takes_no_answer_with_it(tmp_path: Path, fill: Callable[[Path], Path], compiled: CompiledModel):
    limits = {"THREADS": "1", "SYNCHRONOUS_SECONDS": "60", "MAX_ATTEMPTS": "20"}
    with serving(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        bodies = [user.encrypt(samples=20, seed=number)[1] for number in range(REQUESTS)]
        key = load_audit_key(server.data / "audit.key")
        expected = [user.made_again(compiled, key, body) for body in bodies]
        with ThreadPoolExecutor(REQUESTS) as pool:
            with server.engine_held():
                occupied(server, user)
                answers = [pool.submit(user.infer, body) for body in bodies]
                assert becomes(lambda: metric(http, "fhe_requests_waiting"), REQUESTS)
            for number in range(1, 4):
                assert becomes(lambda number=number: engines(server), number)
                server.kill_engine()
            assert [answer.result().content for answer in answers] == expected
