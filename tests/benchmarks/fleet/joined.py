"""Requests a second of one key that wait together: computed as one run, and each alone.

PYTHONPATH=tests/api:tests/models:tests/suite:tests/benchmarks python tests/benchmarks/fleet/joined.py --device cpu --threads 2 --json result.json

The service's dispatcher and its engine processes without HTTP, storage and database. All requests wait when the clock starts; keys are on the device.
Answers of both ways are compared byte for byte, and the two take turns, so that what else runs on the machine disturbs both.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
from fleet.customers import ZOO, zoo_rows

from cloakwork.api.engine.messages import Done, End, EngineOptions, Event, Failed, KeyPlace, ModelPlace
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY, Work
from cloakwork.api.settings import load_settings
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models import zoo
from cloakwork.models.audit.audit_key import AuditKey
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime import samples_at_once

_START_SECONDS: Final = 120.0
_WARM: Final = 8  # requests to each engine before the clock runs


class Bench:
    """One key and a few bodies, asked again and again."""

    def __init__(self, compiled: CompiledModel, folder: Path, options: argparse.Namespace) -> None:
        key = ClientKey.generate(compiled.program.parameters)
        key.evaluation_keys().save(folder / "key")
        rows = zoo_rows(options.model)
        self._bodies = [
            compiled.client.encrypt(key, rows[np.arange(options.samples) + number]).to_bytes() for number in range(8)
        ]
        path = ZOO / f"{options.model}.clkm"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self._places = ModelPlace("program", digest, path), KeyPlace("key", folder / "key")
        self._samples, self._largest = options.samples, samples_at_once(compiled.program)
        settings, engine = load_settings(devices=options.device), EngineOptions(threads=options.threads)
        self._dispatcher = Dispatcher(settings, engine, AuditKey(bytes(32)))
        self._seconds = 0.0  # of one request, as the last runs took

    async def start(self) -> None:
        engines = self._dispatcher.engines
        engines.start()
        async with asyncio.timeout(_START_SECONDS):
            while not engines.all or len(engines.ready) < len(engines.all):
                await asyncio.sleep(0.05)
        await self.ask(_WARM * self._dispatcher.places, alone=True)

    async def stop(self) -> None:
        await self._dispatcher.engines.stop()

    async def ask(self, requests: int, alone: bool) -> tuple[dict[str, Any], list[bytes]]:
        """How long it took, and the answers in their order."""
        answers: dict[int, tuple[End, float]] = {}
        over = asyncio.Event()

        def listener(number: int) -> Any:
            def listen(event: Event) -> None:
                if not isinstance(event, Done | Failed):
                    return
                answers[number] = event, time.perf_counter() - began
                if len(answers) == requests:
                    over.set()

            return listen

        before, began = self._processor_seconds(), time.perf_counter()
        for number in range(requests):
            self._dispatcher.submit(self._work(number, listener(number), alone))
        await over.wait()
        took = time.perf_counter() - began
        failed = [end for end, _ in answers.values() if isinstance(end, Failed)]
        if failed:
            raise SystemExit(f"a request failed: {failed[0].message}")
        ends = [end for end, _ in map(answers.__getitem__, range(requests)) if isinstance(end, Done)]
        self._seconds = statistics.median(end.seconds for end in ends)
        waits = sorted(wait for _, wait in answers.values())
        return {
            "way": "alone" if alone else "joined",
            "requests": requests,
            "seconds": took,
            "per_second": requests / took,
            "processor_ms_per_request": (self._processor_seconds() - before) * 1e3 / requests,
            "runs_by_parts": Counter(end.together for end in ends),
            "wait_median_seconds": waits[len(waits) // 2],
            "wait_most_seconds": waits[-1],
        }, [end.body for end in ends]

    def _processor_seconds(self) -> float:
        """Of the engines: what else runs on the machine disturbs it less than the clock."""
        total = 0
        for engine in self._dispatcher.engines.all:
            fields = Path(f"/proc/{engine.link.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])  # utime and stime of proc(5), counted from the state
        return total / os.sysconf("SC_CLK_TCK")

    def _work(self, number: int, listen: Any, alone: bool) -> Work:
        return Work(
            str(number),
            "tenant",
            SYNCHRONOUS_PRIORITY,
            *self._places,
            listen,
            self._seconds,
            body=self._bodies[number % len(self._bodies)],
            samples=self._samples,
            largest=self._largest,
            alone=alone,
        )


async def measure(compiled: CompiledModel, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    bench = Bench(compiled, folder, options)
    await bench.start()
    records: list[dict[str, Any]] = []
    try:
        for _ in range(options.rounds):
            (one, expected), (other, found) = [await bench.ask(options.requests, alone) for alone in (True, False)]
            if expected != found:
                raise SystemExit("answers differ")
            records += [one, other]
    finally:
        await bench.stop()
    return records


def summary(records: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    def median(way: str, name: str) -> float:
        return statistics.median(float(each[name]) for each in records if each["way"] == way)

    ratios = [other["per_second"] / one["per_second"] for one, other in zip(records[::2], records[1::2], strict=True)]
    return {
        "model": options.model,
        "device": options.device,
        "threads": options.threads,
        "requests": options.requests,
        "samples": options.samples,
        "alone_per_second": median("alone", "per_second"),
        "joined_per_second": median("joined", "per_second"),
        "alone_processor_ms": median("alone", "processor_ms_per_request"),
        "joined_processor_ms": median("joined", "processor_ms_per_request"),
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="iris-tree", help="of the zoo")
    parser.add_argument("--device", default="cpu", help="as the setting `devices`: several give several engines")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--samples", type=int, default=1, help="in a request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = asyncio.run(measure(zoo.load_model(options.model), Path(folder), options))
    found = summary(records, options)
    for record in [*records, found]:
        print(json.dumps(record), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"summary": found, "rounds": records}, indent=1))


if __name__ == "__main__":
    main()
