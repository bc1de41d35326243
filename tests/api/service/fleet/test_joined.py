"""Requests of one key that a worker leases together are one run of its engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fleet_servers import processes, rows
from scoring_server import User, becomes

from cloakwork.models.audit.audit_key import load_audit_key
from cloakwork.models.compiled import CompiledModel

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

REQUESTS = 24
TWO = {"DEVICES": "cpu cpu", "THREADS": "2", "MAX_ATTEMPTS": "20"}


def test_workers_of_a_fleet_join_what_they_lease(
    tmp_path: Path, fill: Callable[[Path], Path], compiled: CompiledModel, database: str
):
    with processes(tmp_path, fill, database, SYNCHRONOUS_SECONDS="60") as group:
        worker, web = group.start("worker"), group.start("web")
        with web.client() as http:
            user = User.of(http)
            user.upload()
            bodies = [user.encrypt(samples=2, seed=number)[1] for number in range(REQUESTS)]
            key = load_audit_key(worker.data / "audit.key")
            expected = [user.made_again(compiled, key, body) for body in bodies]
            with ThreadPoolExecutor(REQUESTS) as pool:
                with worker.engine_held():
                    job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
                    assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "running")
                    asked = [pool.submit(user.infer, body) for body in bodies]
                    assert becomes(lambda: len(rows(database, "SELECT id FROM calls")), REQUESTS)
                answers = [each.result() for each in asked]
            assert [answer.content for answer in answers] == expected
            lines = http.get("/metrics").text.splitlines()
            (joined,) = [line.split()[1] for line in lines if line.startswith("fhe_joined_requests_total ")]
            assert float(joined) >= REQUESTS // 2


def test_a_worker_with_two_engines_loses_one(
    tmp_path: Path, fill: Callable[[Path], Path], compiled: CompiledModel, database: str
):
    """It takes work for both, says so to the others, and what one had goes to the other."""
    with processes(tmp_path, fill, database, SYNCHRONOUS_SECONDS="60") as group:
        worker, web = group.start("worker", **TWO), group.start("web")
        with web.client() as http:
            user = User.of(http)
            user.upload()
            bodies = [user.encrypt(samples=40, seed=number)[1] for number in range(REQUESTS)]
            key = load_audit_key(worker.data / "audit.key")
            expected = [user.made_again(compiled, key, body) for body in bodies]
            identity = (
                (worker.data / "node").read_text(encoding="utf-8").strip()
            )  # that of the test before may be there
            (node,) = [node for node in http.get("/v2/admin/load").json()["nodes"] if node["id"] == identity]
            assert (node["workers"], node["devices"]) == (2, ["cpu", "cpu"])
            with ThreadPoolExecutor(REQUESTS) as pool:
                answers = [pool.submit(user.answer, body) for body in bodies]
                worker.kill_engine()
                assert [answer.result() for answer in answers] == expected
