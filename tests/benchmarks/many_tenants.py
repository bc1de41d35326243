"""Fifty models and fifty tenants on one host: who waits how long when not all keys fit, and does memory stay within what was said?

PYTHONPATH=tests/api:tests/models:tests/suite:tests/benchmarks python tests/benchmarks/many_tenants.py --budgets default 1024:256 --json result.json

A server of its own: copies of the zoo's models under names of their own, each another program (another salt); tenants with one key each, which
serves every model. Then, for each budget, a start, requests one after the other whose key was resident or not, and requests of several clients at a
time. Who asks is drawn as Zipf has it (the k-th tenant 1/k as often as the first) or uniformly, which model uniformly. Every answer is compared with
the program's own in clear. `--limit MIB` puts the service into a cgroup with so much memory (needs root).
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import psutil
from memory_cgroup import MemoryCgroup
from scoring_server import Server, User, metric, new_tenant

import cloakwork.models.zoo
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.artefact import load_program, save_program
from cloakwork.models.program.client_specification import ClientSpecification

ZOO = Path(cloakwork.models.zoo.__file__).parent
KINDS: Final = ("iris-tree", "wine-boosting", "breast-cancer-forest", "digits-logistic")
_ROWS: Final = 30
_LOOK_SECONDS: Final = 0.1
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Kind:
    """A model of the zoo: rows, and what it answers to each."""

    name: str
    rows: np.ndarray
    right: np.ndarray


@dataclass(frozen=True)
class Tenant:
    token: str
    key: ClientKey


def make_kind(name: str) -> Kind:
    compiled = CompiledModel(load_program(ZOO / f"{name}.clkm"))
    with np.load(ZOO / f"{name}.samples.npz") as samples:
        rows = np.asarray(samples["x"])[:_ROWS]
    return Kind(name, rows, np.asarray(compiled.predict(rows)))


def put_models(folder: Path, count: int) -> list[tuple[str, str]]:
    """Name and kind of each."""
    placed = []
    for number, kind in zip(range(count), itertools.cycle(KINDS), strict=False):
        name, program = f"{kind}-{number}", load_program(ZOO / f"{kind}.clkm")
        (folder / name).mkdir(parents=True)
        save_program(folder / name / "1.clkm", replace(program, salt=number.to_bytes(32)))
        placed.append((name, kind))
    return placed


def client(server: Server, token: str | None = None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=server.url, headers=headers, timeout=600, trust_env=False)


def upload(server: Server, tenant: Tenant, model: str) -> float:
    """Seconds that it took."""
    with client(server, tenant.token) as http:
        facts = http.get(f"/v2/models/{model}").raise_for_status().json()["parameters"]["fhe"]
        specification = ClientSpecification.from_json(http.get(f"/v2/models/{model}/client").text)
        user = User(http, model, tenant.key, tenant.key.evaluation_keys().to_bytes(), specification, facts)
        began = time.monotonic()
        user.upload()
        return time.monotonic() - began


class Memory:
    """What the processes of a server hold, looked at all the time."""

    def __init__(self, server: Server) -> None:
        assert server.process is not None
        self._top = psutil.Process(server.process.pid)
        self.most: dict[str, int] = defaultdict(int)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            with suppress(psutil.NoSuchProcess):
                for process in [self._top, *self._top.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        self._add(process)

    def _add(self, process: psutil.Process) -> None:
        command = process.cmdline()
        name = "web" if process.pid == self._top.pid else "engine" if "cloakwork.api.engine" in command else "other"
        self.most[name] = max(self.most[name], process.memory_info().rss)


class Draw:
    """Who asks, what, and with which row."""

    def __init__(self, how: str, tenants: int, models: int, seed: int) -> None:
        self._random, self._models = random.Random(seed), models
        self._tenants, self._weights = (
            range(tenants),
            [1.0 / (1 + each if how == "zipf" else 1) for each in range(tenants)],
        )
        self._lock = threading.Lock()

    def next(self, rows: int) -> tuple[int, int, int]:
        with self._lock:
            who = self._random.choices(self._tenants, self._weights)[0]
            return who, self._random.randrange(self._models), self._random.randrange(rows)


class Bench:
    def __init__(self, server: Server, tenants: list[Tenant], models: list[tuple[str, str]]) -> None:
        self._server, self._tenants, self._models = server, tenants, models
        self._kinds = {kind: make_kind(kind) for kind in KINDS}
        self.wrong: list[str] = []
        with client(server, tenants[0].token) as http:
            texts = {name: http.get(f"/v2/models/{name}/client").raise_for_status().text for name, _ in models}
        self._clients = {name: ClientSpecification.from_json(text) for name, text in texts.items()}

    def _ask(self, http: httpx.Client, draw: Draw) -> tuple[str, float]:
        """Kind and seconds; 202 and refusals are problems."""
        who, which, row = draw.next(_ROWS)
        tenant, (model, kind_name) = self._tenants[who], self._models[which]
        kind, program = self._kinds[kind_name], self._clients[model]
        body = program.encrypt(tenant.key, kind.rows[row][None]).to_bytes()
        began, headers = time.monotonic(), {"Authorization": f"Bearer {tenant.token}"}
        answer = http.post(f"/v2/models/{model}/infer", content=body, headers=headers)
        seconds = time.monotonic() - began
        if answer.status_code != 200:
            self.wrong.append(f"{answer.status_code} {answer.text[:200]}")
            return kind_name, seconds
        found = np.asarray(program.decrypt(tenant.key, load_results(answer.content)))[0]
        if not np.array_equal(found, kind.right[row]):
            self.wrong.append(f"{model}, row {row}: expected {kind.right[row]}, got {found}")
        return kind_name, seconds

    def one_by_one(self, how: str, requests: int) -> dict[str, Any]:
        """Whether each request's key was on the device is what the engine counts."""
        draw, found = Draw(how, len(self._tenants), len(self._models), 1), defaultdict[str, list[float]](list)
        with client(self._server) as http:
            before = metric(http, "fhe_key_cache_misses_total")
            for _ in range(requests):
                kind, seconds = self._ask(http, draw)
                misses = metric(http, "fhe_key_cache_misses_total")
                tier = "expanded" if misses > before else "resident"
                before = misses
                found[f"{kind} {tier}"].append(seconds)
                found[f"all {tier}"].append(seconds)
        return {name: told(each) for name, each in sorted(found.items())}

    def together(self, how: str, requests: int, clients: int) -> dict[str, Any]:
        draw, found = Draw(how, len(self._tenants), len(self._models), 2), defaultdict[str, list[float]](list)
        left = iter(range(requests))

        def work() -> None:
            with client(self._server) as http:
                for _ in left:
                    kind, seconds = self._ask(http, draw)
                    found[kind].append(seconds)
                    found["all"].append(seconds)

        began = time.monotonic()
        threads = [threading.Thread(target=work) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = requests / (time.monotonic() - began)
        return {"per_second": round(rate, 2)} | {name: told(each) for name, each in sorted(found.items())}


def told(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "requests": len(ordered),
        "p50": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 3),
        "max": round(ordered[-1], 3),
    }


def budget_settings(budget: str) -> dict[str, str]:
    if budget == "default":
        return {}
    device, memory = (int(part) * _MIB for part in budget.split(":"))
    return {"DEVICE_KEY_BYTES": str(device), "MEMORY_KEY_BYTES": str(memory)}


@contextmanager
def served(folder: Path, settings: dict[str, str], cgroup: MemoryCgroup | None) -> Iterator[tuple[Server, float]]:
    """A server that is ready, and the seconds until it was."""
    variables = {} if cgroup is None else cgroup.variables
    server = Server(
        folder / "data",
        {"METRICS_PUBLIC": "true", "TENANT_BYTES": str(1 << 40), "ENGINE_MISSED_PINGS": "10", **settings},
        insecure=False,
        variables={"MANY_TENANTS": "1", **variables},  # a real start, not a process that is forked
    )
    began = time.monotonic()
    server.start()
    try:
        yield server, time.monotonic() - began
    finally:
        server.stop()


def facts_of(server: Server) -> dict[str, float]:
    with client(server) as http:
        names = ("fhe_key_cache_hits_total", "fhe_key_cache_misses_total", "fhe_engine_restarts")
        found = {name: metric(http, name) for name in names}
        for line in http.get("/metrics").text.splitlines():
            if line.startswith("fhe_keys_resident_bytes{"):
                found[line.split()[0].replace("fhe_keys_resident_bytes", "resident_mb")] = float(line.split()[1]) // 1e6
    return found


def measure(folder: Path, options: argparse.Namespace, cgroup: MemoryCgroup | None) -> dict[str, Any]:
    data = folder / "data"
    models = put_models(data / "models", options.models)
    tokens = [new_tenant(data, f"tenant-{number}") for number in range(options.tenants)]
    parameters = parameter_set(load_program(ZOO / f"{KINDS[0]}.clkm").parameters.name)
    tenants = [Tenant(token, ClientKey.generate(parameters)) for token in tokens]
    record: dict[str, Any] = {"models": options.models, "tenants": options.tenants, "limit_mib": options.limit}
    with served(folder, {}, None) as (server, seconds):
        record["first_start_seconds"] = round(seconds, 1)
        with Memory(server) as memory:
            record["upload"] = told([upload(server, tenant, models[0][0]) for tenant in tenants])
        record["upload_rss_mb"] = {name: each // 1_000_000 for name, each in memory.most.items()}
    print(json.dumps(record), flush=True)
    for budget in options.budgets:
        with served(folder, budget_settings(budget), cgroup) as (server, seconds):
            bench = Bench(server, tenants, models)
            found: dict[str, Any] = {"start_seconds": round(seconds, 1)}
            with Memory(server) as memory:
                for how in options.draws:
                    found[f"{how}, one by one"] = bench.one_by_one(how, options.requests)
                    found[f"{how}, {options.clients} clients"] = bench.together(how, options.requests, options.clients)
            found |= {"engine": facts_of(server), "wrong": bench.wrong}
            found["most_rss_mb"] = {name: each // 1_000_000 for name, each in memory.most.items()}
            if cgroup is not None:
                found["cgroup"] = cgroup.facts()
        record[budget] = found
        print(json.dumps({budget: found}), flush=True)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--requests", type=int, default=300, help="of each draw, one by one and together")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--draws", nargs="+", choices=("zipf", "uniform"), default=["zipf", "uniform"])
    parser.add_argument("--budgets", nargs="+", default=["default"], help="MiB of expanded keys:of keys as they travel")
    parser.add_argument("--limit", type=int, help="MiB of memory, all processes of the service together")
    parser.add_argument("--folder", type=Path, help="where the data folder is made")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cgroups = nullcontext() if options.limit is None else MemoryCgroup.made(options.limit * _MIB)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, cgroups as cgroup:
        record = measure(Path(folder), options, cgroup)
    print(json.dumps(record, indent=1))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))
    parser.exit(1 if any(record[budget]["wrong"] for budget in options.budgets) else 0)


if __name__ == "__main__":
    main()
