"""How long short requests wait beside a long job of another tenant.

PYTHONPATH=tests/api:tests/models:tests/suite python tests/benchmarks/beside_a_long_job.py --requests 300 --json result.json
With --workers 2: a web process and as many workers of one thread on a PostgreSQL; else one process with --threads.

Half an hour of images for a network of 49,152 bootstraps, in as few jobs as memory allows; they are cancelled when the other tenant's requests have
been asked, one after the other, alone and then beside the first job. Requests that become jobs (202) are counted, not timed.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fleet_servers import processes
from postgresql import postgresql
from scoring_server import Server, User, becomes, new_tenant, running

import cloakwork.models.zoo

ZOO = Path(cloakwork.models.zoo.__file__).parent
_JOB_SECONDS = 1800
COMMON = {"STRUCTURED": "true", "SYNCHRONOUS_SECONDS": "5"}


def fill(data: Path, models: tuple[str, ...]) -> Path:
    for name in models:
        (data / "models" / name).mkdir(parents=True)
        file = ZOO / f"{name}.clkm"
        packed = ZOO / f"{name}.clkm.xz"
        content = lzma.decompress(packed.read_bytes()) if packed.exists() else file.read_bytes()
        (data / "models" / name / "1.clkm").write_bytes(content)
    return data


@contextmanager
def service(folder: Path, models: tuple[str, ...], workers: int, threads: int) -> Iterator[tuple[Server, str | None]]:
    if not workers:
        data = fill(folder / "data", models)
        new_tenant(data, "first")
        with running(
            data, insecure=False, environment={"THREADS": str(threads), "ENGINE_MISSED_PINGS": "10", **COMMON}
        ) as server:
            yield server, None
        return
    with postgresql() as database:
        new_tenant(folder, "first", database=database)
        common = {"TAKEOVER_SECONDS": "30", "ENGINE_MISSED_PINGS": "10", **COMMON}
        with processes(folder, lambda data: fill(data, models), database, insecure=False, **common) as group:
            for _ in range(workers):
                group.start("worker")
            yield group.start("web"), database


def encrypted(user: User, samples: int = 1) -> bytes:
    """Of a table a row that its users would send, of a network nothing."""
    file = ZOO / f"{user.model}.samples.npz"
    rows = np.load(file)["x"][:1] if file.exists() else np.zeros((samples, *user.specification.input_shape))
    return bytes(user.specification.encrypt(user.key, rows).to_bytes())


def ask(user: User, body: bytes, requests: int) -> dict[str, Any]:
    seconds: list[float] = []
    statuses: Counter[int] = Counter()
    for _ in range(requests):
        began = time.monotonic()
        answer = user.infer(body)
        statuses[answer.status_code] += 1
        if answer.status_code == 200:
            seconds.append(time.monotonic() - began)
        elif answer.status_code == 202:
            user.http.delete(answer.headers["Location"])
    cuts = statistics.quantiles(seconds, n=100) if len(seconds) > 1 else [float("nan")] * 99
    return {"statuses": dict(statuses), "p50": cuts[49], "p99": cuts[98], "most": max(seconds, default=float("nan"))}


def main() -> None:
    parser = argparse.ArgumentParser(description="short requests beside a long job")
    parser.add_argument("--small", default="iris-tree", help="model of the short requests")
    parser.add_argument("--large", default="cifar10-vgg", help="model of the job")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--workers", type=int, default=0, help="of a fleet; 0: one process")
    parser.add_argument("--threads", type=int, default=2, help="of one process")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        service(Path(name), (options.small, options.large), options.workers, options.threads) as (server, database),
    ):

        def user(tenant: str, model: str) -> User:
            token = new_tenant(server.data, tenant, database=database, max_bootstraps_per_day=10**12)
            http = httpx.Client(
                base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=600, trust_env=False
            )
            made = User.of(http, model)
            made.upload()
            return made

        greedy, calm = user("greedy", options.large), user("calm", options.small)
        body = encrypted(calm)
        ask(calm, body, 20)
        alone = ask(calm, body, options.requests)
        facts = greedy.facts
        samples = min(facts["largest_batch"], math.ceil(_JOB_SECONDS / facts["estimated_seconds"]))
        images = encrypted(greedy, samples)
        jobs = []
        for _ in range(math.ceil(_JOB_SECONDS / (samples * facts["estimated_seconds"]))):
            answer = greedy.http.post(f"/v2/models/{options.large}/jobs", content=images)
            assert answer.status_code == 202, answer.text
            jobs.append(answer.json()["id"])
        assert becomes(lambda: greedy.http.get(f"/v2/jobs/{jobs[0]}").json()["state"], "running")
        beside = ask(calm, body, options.requests)
        states = Counter(greedy.http.get(f"/v2/jobs/{job}").json()["state"] for job in jobs)
        for job in jobs:
            greedy.http.delete(f"/v2/jobs/{job}")
    record = {
        "workers": options.workers,
        "threads": options.threads if not options.workers else 1,
        "job_seconds": samples * facts["estimated_seconds"],
        "job_samples": samples,
        "jobs": dict(states),
        "alone": alone,
        "beside": beside,
    }
    print(json.dumps(record, indent=1))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
