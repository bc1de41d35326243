"""How long one tenant waits while another floods the service.

PYTHONPATH=tests/api:tests/models python tests/benchmarks/two_tenants.py --model iris-tree --requests 60 --clients 32 --json result.json

A server of its own, two tenants with keys of their own. The calm one asks one request after the other, alone and then beside a flood of
`infer`, a flood of jobs, and both. Clients run on the same machine as the server, so that the flood costs the calm tenant processor time too.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from scoring_server import Server, User, new_tenant, running

import cloakwork.models.zoo

ZOO = Path(cloakwork.models.zoo.__file__).parent
FLOODS = {"alone": (), "infer": ("infer",), "jobs": ("jobs",), "infer and jobs": ("infer", "jobs")}


def client(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=600, trust_env=False)


def encrypted(user: User) -> bytes:
    """One sample, as a client sends it."""
    with np.load(ZOO / f"{user.model}.samples.npz") as samples:
        row = samples["x"][:1]
    return bytes(user.specification.encrypt(user.key, row).to_bytes())


def flood(url: str, token: str, model: str, route: str, clients: int) -> None:
    """Until standard input ends; then what was answered, as JSON."""
    with client(url, token) as one:
        user = User.of(one, model)
        user.upload()
        body = encrypted(user)
    over, answered = threading.Event(), Counter[int]()

    def keep_asking() -> None:
        parts = httpx.URL(url)
        connection = http.client.HTTPConnection(parts.host, parts.port, timeout=600)
        while not over.is_set():
            connection.request("POST", f"/v2/models/{model}/{route}", body, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            answered[answer.status] += 1

    threads = [threading.Thread(target=keep_asking, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    print("flooding", flush=True)
    sys.stdin.read()
    over.set()
    print(json.dumps(answered))


def latencies(user: User, body: bytes, requests: int) -> list[float]:
    found = []
    for _ in range(requests):
        began = time.monotonic()
        answer = user.infer(body)
        found.append(time.monotonic() - began)
        assert answer.status_code == 200, (answer.status_code, answer.text)
    return found


def measure(server: Server, calm: User, greedy: str, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    own = [sys.executable, __file__, "--url", server.url, "--model", options.model, "--clients", str(options.clients)]
    pipe = subprocess.PIPE
    floods = [
        subprocess.Popen([*own, "--token", greedy, "--flood", route], stdin=pipe, stdout=pipe, text=True)
        for route in FLOODS[kind]
    ]
    for process in floods:
        assert process.stdout is not None and process.stdout.readline() == "flooding\n"
    body = encrypted(calm)
    if floods:
        time.sleep(3)
    latencies(calm, body, 5)
    found = latencies(calm, body, options.requests)
    answers = [json.loads(process.communicate(timeout=900)[0]) for process in floods]
    with client(server.url, greedy) as cleaner:
        while jobs := cleaner.get("/v2/jobs", params={"limit": 1000}).json()["jobs"]:
            for job in jobs:
                cleaner.delete(f"/v2/jobs/{job['id']}")
    return {
        "flood": kind,
        "p50_seconds": statistics.median(found),
        "p95_seconds": statistics.quantiles(found, n=20)[-1],
        "flood_answers": answers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="one tenant beside another that floods the service")
    parser.add_argument("--model", default="iris-tree", help="of the zoo")
    parser.add_argument("--requests", type=int, default=60, help="of the calm tenant, in each case")
    parser.add_argument("--clients", type=int, default=32, help="connections of each flood")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path)
    for name in ("--url", "--token", "--flood"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        flood(options.url, options.token, options.model, options.flood, options.clients)
        return
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        (data / "models" / options.model).mkdir(parents=True)
        shutil.copy(ZOO / f"{options.model}.clkm", data / "models" / options.model / "1.clkm")
        greedy, calm_token = new_tenant(data, "greedy"), new_tenant(data, "calm")
        with running(data, insecure=False) as server, client(server.url, calm_token) as http:
            calm = User.of(http, options.model)
            calm.upload()
            for _ in range(options.repeats):
                for kind in FLOODS:
                    record = measure(server, calm, greedy, kind, options)
                    alone = [each["p50_seconds"] for each in records if each["flood"] == "alone"]
                    record["times_alone"] = record["p50_seconds"] / alone[-1] if alone else 1.0
                    records.append(record)
                    print(json.dumps(record), flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
