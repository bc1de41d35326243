"""Requests of one key that a worker leases together are one run of its engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fleet_servers import processes
from scoring_server import User, becomes

from cloakwork.models.audit.audit_key import load_audit_key
from cloakwork.models.compiler import CompiledModel

REQUESTS = 24


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
            job = http.post("/v2/models/toy/jobs", content=user.encrypt(samples=2000)[1]).json()["id"]
            assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "running")
            with ThreadPoolExecutor(REQUESTS) as pool:
                answers = list(pool.map(user.infer, bodies))
            assert [answer.content for answer in answers] == expected
            lines = http.get("/metrics").text.splitlines()
            (joined,) = [line.split()[1] for line in lines if line.startswith("fhe_joined_requests_total ")]
            assert float(joined) >= REQUESTS // 2
