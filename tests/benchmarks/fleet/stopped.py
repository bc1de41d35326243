"""How long a fleet takes to answer when a worker, or its engine, is stopped (SIGSTOP) and not killed.

CLOAKWORK_ALLOW_TOY=1 PYTHONPATH=tests/api:tests/models:tests/suite python tests/benchmarks/fleet/stopped.py --takeover 4 --json result.json

A web process and two workers on one machine. In each round the engine of the one that has the key is stopped, and three requests and a job are sent;
or that, and then the worker too when it has taken some of them. What is measured is the time from the last signal to the last answer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from fleet_servers import processes, rows
from postgresql import postgresql
from scoring_server import Server, User, becomes, toy_model, with_model


def fill(data: Path) -> Path:
    return with_model(data, toy_model())


def measure(database: str, workers: list[Server], user: User, what: str, wait: float) -> dict[str, Any]:
    body = user.encrypt(samples=20)[1]
    user.infer(body).raise_for_status()
    holders = {str(row[0]) for row in rows(database, "SELECT node FROM resident_keys")}
    nodes = {(each.data / "node").read_text(encoding="utf-8").strip(): each for each in workers}
    victim = next(worker for node, worker in nodes.items() if node in holders)
    assert victim.process is not None
    pids = [victim.engines()[0].pid, *([victim.process.pid] if what == "worker" else [])]

    def timed() -> tuple[int, float]:
        try:
            status = user.infer(body, timeout=wait).status_code
        except httpx.TransportError:
            status = 0
        return status, time.monotonic()

    def taken() -> bool:
        (victims,) = (node for node, worker in nodes.items() if worker is victim)
        return bool(rows(database, f"SELECT id FROM calls WHERE worker = '{victims}' AND state = 'leased'"))

    with ThreadPoolExecutor(3) as pool:
        os.kill(pids[0], signal.SIGSTOP)
        began = time.monotonic()
        asked = [pool.submit(timed) for _ in range(3)]
        job = user.http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
        if what == "worker":
            becomes(taken, True, 1.0)  # unless the other one has the key too
            os.kill(pids[1], signal.SIGSTOP)
            began = time.monotonic()
        done = becomes(lambda: user.http.get(f"/v2/jobs/{job}").json()["state"], "done", wait)
        job_seconds = time.monotonic() - began
        answers = [each.result() for each in asked]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    with victim.client() as back:
        becomes(lambda: back.get("/v2/health/ready").status_code, 200)
    return {
        "stopped": what,
        "statuses": [status for status, _ in answers],
        "infer_seconds": max(moment for _, moment in answers) - began,
        "job_seconds": job_seconds if done else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="workers and engines that are stopped")
    parser.add_argument("--takeover", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wait", type=float, default=30.0, help="seconds that an answer may take")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings: dict[str, Any] = {
        "TAKEOVER_SECONDS": str(options.takeover),
        "ENGINE_MISSED_PINGS": "10",
        "SYNCHRONOUS_SECONDS": "60",
    }
    records: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as name,
        postgresql() as database,
        processes(Path(name), fill, database, **settings) as group,
    ):
        workers = [group.start("worker"), group.start("worker")]
        with group.start("web").client() as http:
            user = User.of(http)
            user.upload()
            for _ in range(options.rounds):
                for what in ("engine", "worker"):
                    records.append(measure(database, workers, user, what, options.wait))
                    print(json.dumps(records[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"takeover_seconds": options.takeover, "rounds": records}, indent=1))


if __name__ == "__main__":
    main()
