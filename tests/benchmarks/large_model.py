"""A program of 2 GiB in a service: what it takes to describe, load and ask it.

PYTHONPATH=tests/api:tests/models:tests/suite:tests/benchmarks python tests/benchmarks/large_model.py --mib 2100 --json result.json

`digits-logistic` with blocks of weights that no position uses, as many as the file shall have MiB, in integers of eight bytes: what the program
computes stays, and reading it costs what weights cost. Peak memory of each process of the service, by its name; the answer is compared with the
program's own in clear. `--upload` sends it over HTTP, otherwise it lies in the models' folder. `--limit MIB` puts the service into a cgroup.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from many_tenants import ZOO, Memory, client
from memory_cgroup import MemoryCgroup
from scoring_server import Server, User, new_tenant

from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.graph.ir import Linear
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import load_program, save_program

NAME = "large"


def padded(program: Program, mib: int) -> Program:
    """With unused blocks; one number that needs eight bytes has all stored in as many."""

    def grown(node: Any) -> Any:
        if not isinstance(node, Linear):
            return node
        _, rows, width = node.weights.shape
        blocks = (mib << 20) // (8 * rows * (width + 1))
        weights, bias = np.ones((blocks, rows, width), np.int64), np.zeros((blocks, rows))
        weights[: len(node.weights)], bias[: len(node.bias)] = node.weights, node.bias
        weights[-1, -1, -1] = 1 << 40
        return replace(node, weights=weights, bias=bias)

    graph = replace(program.graph, nodes=tuple(map(grown, program.graph.nodes)))
    return replace(program, graph=graph)


def blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            yield block


def measure(folder: Path, options: argparse.Namespace, cgroup: MemoryCgroup | None) -> dict[str, Any]:
    small, file = load_program(ZOO / "digits-logistic.clkm"), folder / "large.clkm"
    save_program(file, padded(small, options.mib))
    data, variables = folder / "data", {"LARGE": "1"} if cgroup is None else cgroup.variables
    record: dict[str, Any] = {"file_bytes": file.stat().st_size, "limit_mib": options.limit}
    token = new_tenant(data, "owner", "score", "models")
    settings = {"METRICS_PUBLIC": "true", "STRICT_READINESS": "false", "ENGINE_MISSED_PINGS": "10"}
    if not options.upload:
        (data / "models" / NAME).mkdir(parents=True)
        file = file.rename(data / "models" / NAME / "1.clkm")
    server, began = Server(data, settings, insecure=False, variables=variables), time.monotonic()
    server.start()
    record["start_seconds"] = round(time.monotonic() - began, 1)
    try:
        with Memory(server) as memory, client(server, token) as http:
            if options.upload:
                record |= uploaded(http, file)
            record |= asked(http, small)
        record["most_rss_mb"] = {name: each // 1_000_000 for name, each in memory.most.items()}
        record["warnings"] = [line for line in server.log_lines() if line["level"] not in ("info", "debug")]
        if cgroup is not None:
            record["cgroup"] = cgroup.facts()
    finally:
        server.stop()
    return record


def uploaded(http: httpx.Client, file: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), str(file.stat().st_size)
    for block in blocks_of(file):
        digest.update(block)
    headers, began = {"Content-Length": size, "Fhe-Artefact-Sha256": digest.hexdigest()}, time.monotonic()
    try:
        answer = http.put(f"/v2/repository/models/{NAME}/versions/1", content=blocks_of(file), headers=headers)
        said = {"upload": [answer.status_code, answer.text[:300]]}
    except httpx.HTTPError as error:
        said = {"upload": [type(error).__name__, str(error)]}
    return {**said, "upload_seconds": round(time.monotonic() - began, 1)}


def asked(http: httpx.Client, small: Program) -> dict[str, Any]:
    """Twice: the first request has the program loaded."""
    there = http.get(f"/v2/models/{NAME}")
    if there.status_code != 200:
        return {"model": [there.status_code, there.text[:400]]}
    user, compiled = User.of(http, NAME), CompiledModel(small)
    user.upload()
    with np.load(ZOO / "digits-logistic.samples.npz") as samples:
        rows = samples["x"][:1]
    seconds: list[float] = []
    answers: list[Any] = []
    for _ in range(2):
        began = time.monotonic()
        answer = user.infer(user.specification.encrypt(user.key, rows).to_bytes())
        seconds.append(round(time.monotonic() - began, 2))
        right = answer.status_code == 200 and np.array_equal(
            user.specification.decrypt(user.key, load_results(answer.content)), compiled.predict(rows)
        )
        answers.append("right" if right else [answer.status_code, answer.text[:300]])
    return {"answers": answers, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2100)
    parser.add_argument("--upload", action="store_true")
    parser.add_argument("--limit", type=int, help="MiB of memory, all processes of the service together")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cgroups = nullcontext() if options.limit is None else MemoryCgroup.made(options.limit << 20)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, cgroups as cgroup:
        record = measure(Path(folder), options, cgroup)
    print(json.dumps(record, indent=1))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
