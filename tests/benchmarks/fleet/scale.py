"""Requests a second of a fleet with one worker of one core, and with two.

PYTHONPATH=tests/api:tests/models:tests/suite:tests/benchmarks python tests/benchmarks/fleet/scale.py --json result.json

Jobs of several samples each are accepted first, while no worker runs, so that clients and web process use no core while the workers do. Every
result is compared byte for byte. The time is that between the first start and the last end in the database.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from fleet.customers import ZOO, Customer, together, zoo_rows
from fleet.hosts import reason_without
from fleet.processes import Fleet, fleet

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models import zoo
from cloakwork.models.program.artefact import load_program
from cloakwork.models.runtime import Runtime


def models_of(made: Fleet, folder: Path, model: str) -> None:
    for host in made.hosts:
        place = folder / host.name / "models" / model
        place.mkdir(parents=True)
        shutil.copy(ZOO / f"{model}.clkm", place / "1.clkm")


def _until_done(customers: list[Customer]) -> None:
    """Asks rarely: what clients take of the cores, workers do not have."""
    for customer in customers:
        while any(job["state"] in ("queued", "running") for job in customer.newest_jobs()):
            time.sleep(2)


def ceiling(model: str, samples: int, processes: int, seconds: float = 15.0) -> float:
    """Samples a second of as many processes that do nothing but evaluate, each on a core of its own."""
    own = [sys.executable, __file__, "--model", model, "--samples", str(samples), "--evaluate", str(seconds)]
    running = [
        subprocess.Popen(["taskset", "-c", str(core), *own], stdout=subprocess.PIPE, text=True)
        for core in range(processes)
    ]
    return sum(float(process.communicate()[0]) for process in running)


def evaluate(model: str, samples: int, seconds: float) -> float:
    compiled = zoo.load_model(model)
    key = ClientKey.generate(compiled.program.parameters)
    runtime = Runtime(compiled.program, Session(key.evaluation_keys(), threads=1))
    x = compiled.client.encrypt(key, zoo_rows(model)[np.arange(samples) % len(zoo_rows(model))])
    runtime.answer(x)
    began, count = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        runtime.answer(x)
        count += samples
    return count / (time.monotonic() - began)


def measure(folder: Path, workers: int, options: argparse.Namespace) -> dict[str, Any]:
    folder.mkdir()
    with fleet(folder, 1 + workers, THREADS="1", MAX_TENANT_QUEUE="100000", MAX_QUEUE="100000") as made:
        token = made.tenant("one")
        models_of(made, folder, options.model)
        made.add("web")
        for number in range(workers):
            made.add("worker", cores=str(number))
        made.wait()
        program = load_program(ZOO / f"{options.model}.clkm")
        customers = [Customer([made.webs[0].url], token, options.model, n) for n in range(options.keys)]
        for customer in customers:
            customer.prepare(program, folder / "audit.key", bodies=2, samples=options.samples)
            customer.ask(2 * workers, 0.0)  # every worker has expanded keys before the clock runs
        for node in made.workers:
            node.stop()
        together([threading.Thread(target=one.ask, args=(options.jobs // options.keys, 1.0)) for one in customers])
        for node in made.workers:
            node.start()
        _until_done(customers)
        together([threading.Thread(target=one.collect) for one in customers])
        ended = [job for one in customers for job in one.job_records()]
        seconds = max(job["finished_at"] for job in ended) - min(job["started_at"] for job in ended)
        problems = [problem for one in customers for problem in one.outcome.problems]
        samples = sum(job["samples"] for job in ended)
        engine = sum(job["run_seconds"] for job in ended)
    return {
        "workers": workers,
        "jobs": len(ended),
        "samples": samples,
        "seconds": seconds,
        "per_second": samples / seconds,
        "engine_seconds": engine,
        "engine_share": engine / (seconds * workers),
        "problems": problems,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="iris-tree", help="of the zoo")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--keys", type=int, default=4)
    parser.add_argument("--samples", type=int, default=20, help="in a job")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--evaluate", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.evaluate:
        print(evaluate(options.model, options.samples, options.evaluate))
        return
    reason = reason_without()
    if reason is not None:
        parser.exit(3, f"{reason}\n")
    with tempfile.TemporaryDirectory() as folder:
        records = [measure(Path(folder) / str(workers), workers, options) for workers in (1, 2)]
    for record in records:
        record["ratio"] = record["per_second"] / records[0]["per_second"]
        record["engine_alone_per_second"] = ceiling(options.model, options.samples, record["workers"])
        record["of_engine_alone"] = record["per_second"] / record["engine_alone_per_second"]
        print(json.dumps(record), flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))
    parser.exit(1 if any(record["problems"] for record in records) else 0)


if __name__ == "__main__":
    main()
