"""The fleet beside Ray Serve: the same engine, model, keys and clients; latency of one client, answers a second of many, and a worker killed.

pip install 'ray[serve]'
PYTHONPATH=tests/api:tests/models:tests/suite:tests/benchmarks python tests/benchmarks/fleet/ray_serve.py --json result.json

Of Ray Serve what a service of ours would need is here and no more: replicas with an engine each that hold several expanded keys (its *multiplexed
models*, which send a request where its key is), an HTTP proxy, requests and answers as bytes. It checks nothing, counts nothing, stores nothing and
knows no tenants. Both have two workers of one thread; on two cores the proxy or web process, database and clients take their part from these.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fleet.customers import ZOO, Customer, together, zoo_rows
from fleet.hosts import reason_without
from fleet.processes import fleet
from fleet.scale import models_of

from cloakwork.app.batch.evaluator import Evaluator
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models import zoo
from cloakwork.models.program.artefact import load_program

_PORT = 8124
_WORKERS = 2
_MOST_KEYS = 64  # of a replica


class ServeClient:
    """Asks Ray Serve as `Customer` asks the fleet, and compares what answers decrypt to."""

    def __init__(self, folder: Path, model: str, number: int) -> None:
        self._compiled = zoo.load_model(model)
        self._key = ClientKey.generate(self._compiled.program.parameters)
        self._key.evaluation_keys().save(folder / str(number))
        self._headers = {"serve_multiplexed_model_id": str(number)}
        self._http = httpx.Client(timeout=60, trust_env=False)
        rows = zoo_rows(model)[[number % len(zoo_rows(model))]]
        self._body = self._compiled.client.encrypt(self._key, rows).to_bytes()
        self._expected = self._compiled.predict(rows)
        self.latencies: list[float] = []
        self.problems: list[str] = []

    def ask(self, requests: int) -> None:
        for _ in range(requests):
            began = time.monotonic()
            try:
                answer = self._http.post(f"http://127.0.0.1:{_PORT}/", content=self._body, headers=self._headers)
                answer.raise_for_status()
                found = self._compiled.client.decrypt(self._key, load_results(answer.content))
                assert np.array_equal(found, self._expected), "a wrong answer"
                self.latencies.append(time.monotonic() - began)
            except (AssertionError, httpx.HTTPError) as error:
                self.problems.append(f"{type(error).__name__}: {error}"[:200])


def serve_application(program: bytes, keys: Path) -> Any:
    from starlette.requests import Request
    from starlette.responses import Response

    serve: Any = importlib.import_module("ray.serve")

    @serve.deployment(num_replicas=_WORKERS, ray_actor_options={"num_cpus": 1}, max_ongoing_requests=4)
    class Scorer:
        @serve.multiplexed(max_num_models_per_replica=_MOST_KEYS)  # type: ignore[untyped-decorator]
        async def evaluator(self, key: str) -> Evaluator:
            return Evaluator(program, (keys / key).read_bytes(), device="cpu", threads=1, deterministic=False)

        async def __call__(self, request: Request) -> Response:
            evaluator = await self.evaluator(serve.get_multiplexed_model_id())
            answer = await asyncio.to_thread(evaluator.answer, await request.body())
            return Response(answer.body, media_type="application/octet-stream")

        def pid(self) -> int:
            return os.getpid()

    deployment: Any = Scorer
    return deployment.bind()


def _figures(latencies: list[float], seconds: float) -> dict[str, float]:
    median, late = np.percentile(latencies, [50, 95]) * 1000
    return {"median_ms": median, "p95_ms": late, "per_second": len(latencies) / seconds}


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def measure_serve(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    ray: Any = importlib.import_module("ray")
    serve: Any = importlib.import_module("ray.serve")
    folder.mkdir()
    clients = [ServeClient(folder, options.model, number) for number in range(options.keys)]
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=_WORKERS + 1, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": _PORT, "access_log": False})
        handle = serve.run(serve_application((ZOO / f"{options.model}.clkm").read_bytes(), folder))
        for client in clients:
            client.ask(2)
            client.latencies.clear()
        alone = clients[0]
        seconds = _timed(lambda: alone.ask(options.requests))
        assert not alone.problems, alone.problems
        record: dict[str, Any] = {"one": _figures(alone.latencies, seconds)}
        alone.latencies.clear()
        each = options.requests // len(clients) * 4
        seconds = _timed(lambda: together([threading.Thread(target=one.ask, args=(each,)) for one in clients]))
        record["many"] = _figures([value for one in clients for value in one.latencies], seconds)
        assert not any(one.problems for one in clients), clients
        threads = [threading.Thread(target=one.ask, args=(each,)) for one in clients]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        os.kill(handle.pid.remote().result(), signal.SIGKILL)
        for thread in threads:
            thread.join()
        problems = [problem for one in clients for problem in one.problems]
        return {**record, "lost_when_killed": len(problems), "problems": problems[:3]}
    finally:
        serve.shutdown()
        ray.shutdown()


def measure_fleet(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    folder.mkdir()
    limits = {"MAX_TENANT_QUEUE": "100000", "MAX_QUEUE": "100000", "TAKEOVER_SECONDS": "3"}
    with fleet(folder, 1 + _WORKERS, THREADS="1", **limits) as made:
        token = made.tenant("one")
        models_of(made, folder, options.model)
        made.add("web")
        for _ in range(_WORKERS):
            made.add("worker")
        made.wait()
        program = load_program(ZOO / f"{options.model}.clkm")
        customers = [Customer([made.webs[0].url], token, options.model, n) for n in range(options.keys)]
        for one in customers:
            one.prepare(program, folder / "audit.key", bodies=1, samples=1)
            one.ask(2, 0.0)
            one.outcome.latencies.clear()
        alone = customers[0]
        seconds = _timed(lambda: alone.ask(options.requests, 0.0))
        record: dict[str, Any] = {"one": _figures(alone.outcome.latencies, seconds)}
        alone.outcome.latencies.clear()
        each = options.requests // len(customers) * 4
        seconds = _timed(lambda: together([threading.Thread(target=one.ask, args=(each, 0.0)) for one in customers]))
        record["many"] = _figures([value for one in customers for value in one.outcome.latencies], seconds)
        threads = [threading.Thread(target=one.ask, args=(each, 0.0)) for one in customers]
        before = sum(one.outcome.retries for one in customers)
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        made.workers[0].kill()
        for thread in threads:
            thread.join()
        again = sum(one.outcome.retries for one in customers) - before
        problems = [problem for one in customers for problem in one.outcome.problems]
        return {**record, "lost_when_killed": len(problems), "sent_again": again, "problems": problems[:3]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="iris-tree", help="of the zoo")
    parser.add_argument("--keys", type=int, default=10, help="clients, with a key each")
    parser.add_argument("--requests", type=int, default=200, help="of one client; of all together four times as many")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    reason = reason_without()
    if reason is not None:
        parser.exit(3, f"{reason}\n")
    records = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in (("fleet", measure_fleet), ("ray serve", measure_serve)):
            records[name] = measure(Path(folder) / name.replace(" ", "-"), options)
            print(name, json.dumps(records[name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
