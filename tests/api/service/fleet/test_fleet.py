"""Requests at one process, run by another: answered, drained, cancelled, taken over."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from fleet_servers import processes
from scoring_server import Server, User, becomes
from sqlalchemy import text

from cloakwork.api.database.connection import Database


def rows(database: str, query: str) -> list[tuple[object, ...]]:
    async def ask() -> list[tuple[object, ...]]:
        opened = Database(database)
        try:
            async with opened.write() as connection:
                return [tuple(row) for row in (await connection.execute(text(query))).all()]
        finally:
            await opened.close()

    return asyncio.run(ask())


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
            x, body = user.encrypt(samples=2)
            answer = user.infer(body)
            assert answer.status_code == 200, answer.text
            assert "run;dur=" in answer.headers["Server-Timing"]
            job = http.post("/v2/models/toy/jobs", content=body).json()["id"]
            with beside.stream("GET", f"/v2/jobs/{job}/events") as events:
                assert "event: done" in "".join(events.iter_text())
            assert user.same_answer(beside.get(f"/v2/jobs/{job}/result").content, answer.content)
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
            group.start("worker")
            assert becomes(lambda: state(http, time_out.json()["id"]), "done")
