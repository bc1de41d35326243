"""An hour with ten clients and a fault every half minute: is anything lost that was accepted, is every answer right, does memory stay flat?

PYTHONPATH=tests/api:tests/models:tests/suite:tests/benchmarks python tests/benchmarks/fleet/soak.py --minutes 60 --json result.json

The fleet of survive.py. Faults come in turn: processes of a worker, of its engine or of a web process are killed or stopped, a cable is pulled, the
database crashes, is stopped or away for a minute, the store is stopped or away for a minute, slow, or answers 500 or 503, a clock jumps by a
hundred days for five seconds. Every answer is compared byte for byte.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from fleet.customers import ZOO, Customer, together
from fleet.hosts import reason_without
from fleet.processes import STORE_SCRIPT, Fleet, Node, fleet

from cloakwork.models.program.artefact import load_program

_AWAY_SECONDS = 3.0
_STOPPED_SECONDS = 15.0
_LONG_SECONDS = 60.0
_DAYS = 100 * 86400
_LARGE_MODEL, _LARGE_SAMPLES = "digits-logistic", 10  # answers of 1.4 MB, which go through the object store
# Python loads it before the service: its wall clock is so many seconds ahead as the file of its host says.
_CLOCK = """
import os, time
_real, _file = time.time, os.path.join(os.environ["AHEAD"], os.path.basename(os.environ.get("CLOAKWORK_DATA_FOLDER", "none")))
def _ahead():
    try:
        with open(_file) as stream:
            return _real() + float(stream.read() or 0)
    except OSError:
        return _real()
time.time = _ahead
"""


class Faults:
    """One every so many seconds, each kind in turn, on a node that is drawn. The next comes when all are ready again."""

    def __init__(self, made: Fleet, every: float, clocks: Path, seed: int) -> None:
        self._fleet, self._every, self._clocks, self._random = made, every, clocks, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.recovery: dict[str, float] = {}  # the longest until all nodes are ready, seconds
        self.over = threading.Event()

    def run(self) -> None:
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("worker killed", lambda: self._kill(self._worker())),
            ("engine killed", lambda: self._signal(self._engines(self._worker()), signal.SIGKILL)),
            ("engine stopped", lambda: self._signal(self._engines(self._worker()), signal.SIGSTOP)),
            ("worker stopped", lambda: self._stop(self._tree(self._worker()))),
            ("web process killed", lambda: self._kill(self._web())),
            ("web process stopped", lambda: self._stop(self._tree(self._web()))),
            ("cable pulled", lambda: self._cut(self._random.choice(self._fleet.nodes))),
            ("database crashed", lambda: self._crash(_AWAY_SECONDS)),
            ("database stopped", lambda: self._stop(_named("postgres"))),
            ("database away for a minute", lambda: self._crash(_LONG_SECONDS)),
            ("store stopped", lambda: self._stop(_named(STORE_SCRIPT))),
            ("store stopped for a minute", lambda: self._stop(_named(STORE_SCRIPT), _LONG_SECONDS)),
            ("store 2 s later", lambda: self._answers("2000")),
            ("store answers 500", lambda: self._answers("500")),
            ("store answers 503", lambda: self._answers("503")),
            ("clock ahead", lambda: self._jump(self._random.choice(self._fleet.nodes))),
        ]
        for name, fault in itertools.cycle(kinds):
            if self.over.wait(self._every):
                return
            fault()
            began = time.monotonic()
            for node in self._fleet.nodes:
                while not node.ready() and not self.over.wait(0.2):
                    pass
            self.recovery[name] = max(self.recovery.get(name, 0.0), time.monotonic() - began)
            self.done[name] += 1

    def _worker(self) -> Node:
        return self._random.choice(self._fleet.workers)

    def _web(self) -> Node:
        return self._random.choice(self._fleet.webs)

    def _kill(self, node: Node) -> None:
        node.kill()
        self.over.wait(_AWAY_SECONDS)
        node.start()

    def _tree(self, node: Node) -> list[psutil.Process]:
        assert node.process is not None
        top = psutil.Process(node.process.pid)
        return [top, *top.children(recursive=True)]

    def _engines(self, node: Node) -> list[psutil.Process]:
        return [each for each in self._tree(node) if "cloakwork.api.engine" in each.cmdline()]

    def _signal(self, processes: list[psutil.Process], number: signal.Signals) -> None:
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)
        self.over.wait(_AWAY_SECONDS)

    def _stop(self, processes: list[psutil.Process], seconds: float = _STOPPED_SECONDS) -> None:
        self._signal(processes, signal.SIGSTOP)
        self.over.wait(seconds)
        self._signal(processes, signal.SIGCONT)

    def _cut(self, node: Node) -> None:
        node.host.plug(in_=False)
        self.over.wait(_AWAY_SECONDS)
        node.host.plug(in_=True)

    def _answers(self, fault: str) -> None:
        self._fleet.store_fault.write_text(fault, encoding="ascii")
        self.over.wait(_LONG_SECONDS)
        self._fleet.store_fault.unlink()

    def _crash(self, seconds: float) -> None:
        self._fleet.database_server.stop()
        self.over.wait(seconds)
        self._fleet.database_server.start()

    def _jump(self, node: Node) -> None:
        file = self._clocks / node.folder.name
        file.write_text(str(_DAYS), encoding="utf-8")
        self.over.wait(5.0)
        file.unlink()


def _named(name: str) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if any(name in part for part in each.cmdline()):
                found.append(each)
    return found


def memory(made: Fleet) -> dict[str, int]:
    """Of each node, all its processes, MB."""
    found = {}
    for node in made.nodes:
        with suppress(psutil.Error):
            assert node.process is not None
            top = psutil.Process(node.process.pid)
            total = sum(each.memory_info().rss for each in [top, *top.children(recursive=True)])
            found[f"{node.role} {node.host.name}"] = total >> 20
    return found


def soak(customer: Customer, end: float, requests: int, job_share: float, totals: Counter[str]) -> None:
    """Waves of requests, whose jobs are collected before the next."""
    while time.monotonic() < end:
        customer.ask(requests, job_share)
        customer.collect()
        totals["jobs"] += len(customer.outcome.jobs)
        customer.outcome.jobs.clear()


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    clocks = folder / "clocks"
    clocks.mkdir()
    (clocks / "sitecustomize.py").write_text(_CLOCK, encoding="utf-8")
    os.environ["AHEAD"] = str(clocks)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(clocks), os.environ.get("PYTHONPATH", "")])
    settings = {"TAKEOVER_SECONDS": str(options.takeover), "THREADS": "1"}
    with fleet(folder, options.webs + options.workers, **settings) as made:
        tokens = [made.tenant(f"tenant-{number}") for number in range(4)]
        for role, count in (("web", options.webs), ("worker", options.workers)):
            for _ in range(count):
                for model in (options.model, _LARGE_MODEL):
                    place = folder / made.hosts[len(made.nodes)].name / "models" / model
                    place.mkdir(parents=True)
                    shutil.copy(ZOO / f"{model}.clkm", place / "1.clkm")
                made.add(role)
        made.wait()
        urls = [node.url for node in made.webs]
        models = [_LARGE_MODEL if n < options.large_clients else options.model for n in range(options.clients)]
        customers = [Customer(urls, tokens[n % len(tokens)], model, n) for n, model in enumerate(models)]
        for customer in customers:
            program = load_program(ZOO / f"{customer.model}.clkm")
            samples = _LARGE_SAMPLES if customer.model == _LARGE_MODEL else 1
            customer.prepare(program, folder / "audit.key", bodies=3, samples=samples)
        print("prepared", flush=True)
        faults = Faults(made, options.every, clocks, seed=1)
        hurting = threading.Thread(target=faults.run)
        began, totals = time.monotonic(), Counter[str]()
        end, megabytes = began + 60 * options.minutes, [memory(made)]
        hurting.start()
        asking = [
            threading.Thread(target=soak, args=(each, end, options.requests, options.job_share, totals))
            for each in customers
        ]
        watching = threading.Thread(target=_watch, args=(made, faults, customers, totals, megabytes))
        watching.start()
        try:
            together(asking)
        finally:
            faults.over.set()
            hurting.join()
            watching.join()
        made.wait()
        record = _told(customers, totals, faults, time.monotonic() - began) | {"memory_mb": [*megabytes, memory(made)]}
        for node in made.nodes:
            node.stop()
        return record


def _watch(
    made: Fleet, faults: Faults, customers: list[Customer], totals: Counter[str], megabytes: list[dict[str, int]]
) -> None:
    while not faults.over.wait(300.0):
        megabytes.append(memory(made))
        print(json.dumps(_told(customers, totals, faults, 0.0)), flush=True)


def _told(customers: list[Customer], totals: Counter[str], faults: Faults, seconds: float) -> dict[str, Any]:
    outcomes = [customer.outcome for customer in customers]
    latencies = sorted(each for outcome in outcomes for each in outcome.latencies) or [0.0]
    return {
        "seconds": seconds,
        "answered": sum(outcome.answered for outcome in outcomes),
        "jobs": totals["jobs"],
        "retries": sum(outcome.retries for outcome in outcomes),
        "problems": [problem for outcome in outcomes for problem in outcome.problems],
        "faults": dict(faults.done),
        "recovery_seconds": {name: round(each, 1) for name, each in faults.recovery.items()},
        "p50_seconds": latencies[len(latencies) // 2],
        "p99_seconds": latencies[int(0.99 * len(latencies))],
        "max_seconds": latencies[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="iris-tree", help="of the zoo")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--large-clients", type=int, default=3, help="of the clients: those with answers in the store")
    parser.add_argument("--requests", type=int, default=20, help="in a wave of a client")
    parser.add_argument("--job-share", type=float, default=0.3, help="of the requests that are sent as jobs")
    parser.add_argument("--webs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two faults")
    parser.add_argument("--takeover", type=float, default=4.0, help="seconds after which a silent process is dead")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    reason = reason_without()
    if reason is not None:
        parser.exit(3, f"{reason}\n")
    with tempfile.TemporaryDirectory() as folder:
        record = measure(Path(folder), options)
    print(json.dumps(record, indent=1))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))
    parser.exit(1 if record["problems"] else 0)


if __name__ == "__main__":
    main()
