"""Requests of many keys at a fleet whose workers and web processes are killed: is anything lost that was accepted, is every answer right?

PYTHONPATH=tests/api:tests/models:tests/suite:tests/benchmarks python tests/benchmarks/fleet/survive.py --requests 1000 --keys 20 --json result.json

Web processes, workers, clients with the database and the store: each on a host of its own (network namespaces; root). Every few seconds one host is
killed (kill -9 of all its processes), or its cable pulled, and comes back after a moment; with --crash-database the database crashes too, and with
--silent none of its notices reaches anybody. Answers are compared byte for byte with what the owner of
the service computes from the audit key.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fleet.customers import ZOO, Customer, together
from fleet.hosts import reason_without
from fleet.processes import Fleet, Node, fleet

from cloakwork.models.program.artefact import load_program

_AWAY_SECONDS = 2.0


class Vandal:
    """Kills a node, or pulls its cable, every so many seconds; a worker and a web process in turn. One web process is always left.

    With `crashes` every third event is a crash of the database.
    """

    def __init__(self, made: Fleet, every: float, crashes: bool, seed: int) -> None:
        self._fleet, self._every, self._crashes, self._random = made, every, crashes, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.over.wait(self._every):
            if self._crashes and sum(self.done.values()) % 3 == 2:
                self._crash()
                continue
            node = self._random.choice(self._fleet.workers if number % 2 == 0 else self._fleet.webs)
            cable = number % 6 == 4
            self.done[f"{node.role} {'cut off' if cable else 'killed'}"] += 1
            self._cut(node) if cable else self._kill(node)
            number += 1

    def _kill(self, node: Node) -> None:
        node.kill()
        self.over.wait(_AWAY_SECONDS)
        node.start()
        self._until_ready(node)

    def _cut(self, node: Node) -> None:
        node.host.plug(in_=False)
        self.over.wait(_AWAY_SECONDS)
        node.host.plug(in_=True)
        self._until_ready(node)

    def _crash(self) -> None:
        self.done["database crashed"] += 1
        self._fleet.database_server.stop()
        self.over.wait(_AWAY_SECONDS)
        self._fleet.database_server.start()
        for node in self._fleet.nodes:
            self._until_ready(node)

    def _until_ready(self, node: Node) -> None:
        while not node.ready() and not self.over.wait(0.1):
            pass


def _waves(customers: list[Customer], options: argparse.Namespace) -> None:
    each = -(-options.requests // len(customers))
    together([threading.Thread(target=one.ask, args=(each, options.job_share)) for one in customers])
    together([threading.Thread(target=one.collect) for one in customers])


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with fleet(folder, options.webs + options.workers, TAKEOVER_SECONDS=str(options.takeover), THREADS="1") as made:
        if options.silent:
            made.database_server.silence()
        tokens = [made.tenant(f"tenant-{number}") for number in range(4)]
        for role, count in (("web", options.webs), ("worker", options.workers)):
            for _ in range(count):
                place = folder / made.hosts[len(made.nodes)].name / "models" / options.model
                place.mkdir(parents=True)
                shutil.copy(ZOO / f"{options.model}.clkm", place / "1.clkm")
                made.add(role)
        made.wait()
        urls, program = [node.url for node in made.webs], load_program(ZOO / f"{options.model}.clkm")
        customers = [Customer(urls, tokens[n % len(tokens)], options.model, n) for n in range(options.keys)]
        for customer in customers:
            customer.prepare(program, folder / "audit.key", bodies=3, samples=options.samples)
        print("prepared", flush=True)
        record: dict[str, Any] = {}
        for name, every in (("calm", None), ("killed", options.every)):
            for customer in customers:
                customer.outcome = type(customer.outcome)()
            vandal = Vandal(made, every or 1e9, options.crash_database, seed=1)
            thread = threading.Thread(target=vandal.run)
            thread.start()
            began = time.monotonic()
            try:
                _waves(customers, options)
            finally:
                vandal.over.set()
                thread.join()
            record[name] = _told(customers, time.monotonic() - began) | {"events": dict(vandal.done)}
            print(json.dumps(record[name]), flush=True)
            made.wait()
        record["engine_starts"] = sum(line["message"] == "engine ready" for line in made.log_lines())
        for node in made.nodes:
            node.stop()
        return record


def _told(customers: list[Customer], seconds: float) -> dict[str, Any]:
    outcomes = [customer.outcome for customer in customers]
    latencies = sorted(each for outcome in outcomes for each in outcome.latencies)
    percentiles = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [0.0] * 99
    return {
        "answered": sum(outcome.answered for outcome in outcomes),
        "jobs": sum(len(outcome.jobs) for outcome in outcomes),
        "retries": sum(outcome.retries for outcome in outcomes),
        "problems": [problem for outcome in outcomes for problem in outcome.problems],
        "seconds": seconds,
        "p50_seconds": percentiles[49],
        "p95_seconds": percentiles[94],
        "p99_seconds": percentiles[98],
        "max_seconds": latencies[-1] if latencies else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="iris-tree", help="of the zoo")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--samples", type=int, default=1, help="in a request")
    parser.add_argument("--job-share", type=float, default=0.3, help="of the requests that are sent as jobs")
    parser.add_argument("--webs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two kills")
    parser.add_argument("--crash-database", action="store_true", help="every third event is a crash of PostgreSQL")
    parser.add_argument("--silent", action="store_true", help="a database whose notices reach nobody")
    parser.add_argument("--takeover", type=float, default=3.0, help="seconds after which a silent process is dead")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    reason = reason_without()
    if reason is not None:
        parser.exit(3, f"{reason}\n")
    with tempfile.TemporaryDirectory() as folder:
        record = measure(Path(folder), options)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))
    parser.exit(1 if any(record[name]["problems"] for name in ("calm", "killed")) else 0)


if __name__ == "__main__":
    main()
