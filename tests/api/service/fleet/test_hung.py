"""What a worker had whose engine, or which itself, is stopped: another worker runs it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from fleet_servers import processes, rows
from scoring_server import Server, User, becomes, metric

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


def node(server: Server) -> str:
    return (server.data / "node").read_text(encoding="utf-8").strip()


def test_another_worker_runs_what_a_stopped_one_had(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    limits = {"ENGINE_MISSED_PINGS": "10", "TAKEOVER_SECONDS": "2", "SYNCHRONOUS_SECONDS": "60"}
    with processes(tmp_path, fill, database, **limits) as group:
        workers, web = [group.start("worker"), group.start("worker")], group.start("web")
        with web.client() as http, ThreadPoolExecutor() as pool, ExitStack() as stack:
            user = User.of(http)
            user.upload()
            body = user.encrypt(samples=20)[1]
            expected = user.infer(body).raise_for_status().content
            ((holder,),) = rows(database, "SELECT node FROM resident_keys")
            first, second = sorted(workers, key=lambda worker: node(worker) != holder)

            def sent() -> list[str]:
                return [http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"] for _ in "ab"]

            def stopped() -> None:
                """What is sent goes to the first worker, which has the key, and is not computed there."""
                asked, jobs = [pool.submit(user.answer, body) for _ in range(3)], sent()
                assert becomes(
                    lambda: rows(database, "SELECT count(*) > 0 FROM calls WHERE state = 'leased'"), [(True,)]
                )
                for answer in asked:
                    assert user.same_answer(answer.result(), expected)
                for job in jobs:
                    assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done")

            with first.engine_held():
                stopped()
            who = set(rows(database, "SELECT node FROM jobs"))
            assert who <= {(node(first),), (node(second),)} and (node(second),) in who
            back = stack.enter_context(first.client())
            assert metric(back, "fhe_engine_hangs") == 1
            assert any("others take its work" in line["message"] for line in first.log_lines())

            # The whole process: its engine has nothing more to do.
            assert first.process is not None
            rows(database, "DELETE FROM jobs RETURNING id")
            assert becomes(lambda: back.get("/v2/health/ready").status_code, 200)
            assert user.infer(body).status_code == 200
            os.kill(first.process.pid, signal.SIGSTOP)
            try:
                asked, jobs = [pool.submit(user.answer, body) for _ in range(3)], sent()
                for answer in asked:
                    assert user.same_answer(answer.result(), expected)
                for job in jobs:
                    assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done")
            finally:
                os.kill(first.process.pid, signal.SIGCONT)
