"""What Ray costs: the part of the workers' time that their engines do not compute, and the digest compared with one process.

python tests/benchmarks/batch_on_ray.py --model iris-tree --samples 20000 --per-file 5 --workers 2 --json result.json
python tests/benchmarks/batch_on_ray.py --model mnist-mlp-1x30 --samples 2000 --per-file 10 --nodes 2 --kill-at 0.5
python tests/benchmarks/batch_on_ray.py --model mnist-mlp-1x30 --samples 20000 --per-file 500 --device cuda

Samples are those of the zoo's table (digits: those that the program draws), again and again, encrypted to files of about `--per-file` samples.
One process computes every `--check-every`th file, whose bytes must be those that lie in the output, and with 1 the digest of all.
`--nodes` starts a cluster of so many nodes on this machine, each with the CPUs of one worker (and a GPU); with `--kill-at` the last of them is
killed when that part of the samples is done. `share_of_engines_alone` is of the rate of as many engines that do nothing else (one is measured).
The overhead counts the seconds that each worker was there, which in it begin with the first one's.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cloakwork.app.batch import BatchOptions, score_batch
from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime import Runtime


def samples_of(name: str) -> Any:
    """[samples, ..]"""
    path = Path(zoo.__file__).parent / f"{name}.samples.npz"
    if path.exists():
        with np.load(path) as held:
            return held["x"]
    return sample_digits()[0]


def encrypt(model: CompiledModel, key: ClientKey, rows: Any, count: int, per_file: int, folder: Path) -> None:
    """Files of one to twice `per_file` samples, `count` together."""
    random, written = np.random.default_rng(0), 0
    while written < count:
        size = min(int(random.integers(1, 2 * per_file)), count - written)
        chosen = rows[np.arange(written, written + size) % len(rows)]
        model.client.encrypt(key, chosen).save(folder / f"{written:08d}.bin")
        written += size


class Nodes:
    """A cluster on this machine, whose last node ends when a part of the work is done."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from ray.cluster_utils import Cluster

        node = {"num_cpus": arguments.threads, "object_store_memory": 512 << 20}
        if arguments.device == "cuda":
            node["num_gpus"] = 1
        self._cluster: Any = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        self._last = None
        for _ in range(arguments.nodes - 1):
            self._last = self._cluster.add_node(**node)
        self._cluster.wait_for_nodes()
        self._kill_at = arguments.kill_at
        self._killer: threading.Thread | None = None
        self.killed_at: float | None = None

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def progress(self, done: int, total: int) -> bool:
        if self._kill_at is not None and self._killer is None and done >= self._kill_at * total:
            self.killed_at = time.monotonic()
            self._killer = threading.Thread(target=self._cluster.remove_node, args=(self._last, False))
            self._killer.start()
        return True

    def stop(self) -> None:
        if self._killer is not None:
            self._killer.join()
        self._cluster.shutdown()


@contextlib.contextmanager
def nodes_of(arguments: argparse.Namespace) -> Iterator[Nodes | None]:
    """None: Ray is started by the run."""
    if arguments.nodes is None:
        yield None
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = Nodes(arguments)
    try:
        yield nodes
    finally:
        nodes.stop()


def one_process(
    model: CompiledModel, key: ClientKey, keys: Path, source: Path, target: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The same files without Ray. Results that are re-randomised are compared when they are decrypted: labels, and scores."""
    every, device = arguments.check_every, arguments.check_device or arguments.device
    runtime = Runtime(model.program, Session(EvaluationKeys.load(keys).expand(device), threads=arguments.threads))
    names = sorted(path.name for path in source.iterdir())[::every]
    digests, seconds, samples, different, labels, error = [], 0.0, 0, 0, 0, 0.0
    first = SeededPackedCiphertexts.from_bytes((source / names[0]).read_bytes(), parameters=model.program.parameters)
    runtime.run(first)  # what a first run prepares
    for name in names:
        inputs = SeededPackedCiphertexts.from_bytes((source / name).read_bytes(), parameters=model.program.parameters)
        start = time.perf_counter()
        outputs = runtime.run(inputs).to_host()
        seconds += time.perf_counter() - start
        body = outputs.to_bytes()
        samples += inputs.shape[0]
        digests.append(hashlib.sha256(body).digest())
        found = (target / f"{name}.results").read_bytes()
        if arguments.rerandomised:
            ours, theirs = (model.client.decrypt(key, load_results(each)) for each in (body, found))
            labels += int((np.argmax(ours, axis=-1) != np.argmax(theirs, axis=-1)).sum())
            error = max(error, float(np.abs(ours - theirs).max() / np.abs(ours).max()))
        else:
            different += body != found
    sha256 = hashlib.sha256(b"".join(digests)).hexdigest() if every == 1 and not arguments.rerandomised else None
    return {
        "files_compared": len(names),
        "different": different,
        "labels_different": labels,
        "largest_difference": error,  # of re-randomised scores, as part of the largest
        "sha256_one_process": sha256,
        "seconds_per_sample_alone": seconds / samples,
    }


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model = zoo.load_model(arguments.model)
    key = ClientKey.generate(model.program.parameters)
    keys, source, target = folder / "evaluation.keys", folder / "in", folder / "out"
    key.evaluation_keys().save(keys)
    source.mkdir()
    encrypt(model, key, samples_of(arguments.model), arguments.samples, arguments.per_file, source)
    with nodes_of(arguments) as nodes:
        options = BatchOptions(
            address=None if nodes is None else nodes.address,
            device=arguments.device,
            threads=arguments.threads,
            workers=arguments.workers,
            deterministic=not arguments.rerandomised,
        )
        record = score_batch(model.program, keys, source, target, options, None if nodes is None else nodes.progress)
        end = time.monotonic()
        away = 0.0 if nodes is None or nodes.killed_at is None else end - nodes.killed_at
    record["seconds_node_away"] = away
    record["overhead"] = (record["workers"] * record["seconds"] - away) / record["seconds_engine"] - 1
    record |= one_process(model, key, keys, source, target, arguments)
    record["share_of_engines_alone"] = record["per_second"] * record["seconds_per_sample_alone"] / record["workers"]
    same = record["sha256_one_process"] in (None, record["sha256"])
    return {**record, "model": arguments.model, "same": same and record["different"] == 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="iris-tree")
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--per-file", type=int, default=5)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--kill-at", type=float, help="part of the samples, with --nodes")
    parser.add_argument("--rerandomised", action="store_true", help="as clients get them; else bytes are compared")
    parser.add_argument("--check-device", choices=["cpu", "cuda"], help="that one process computes on; else --device")
    parser.add_argument("--check-every", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.kill_at is not None and (arguments.nodes or 0) < 2:
        parser.error("--kill-at needs --nodes of at least 2")
    with tempfile.TemporaryDirectory(prefix="cloakwork-batch-") as folder:
        record = measure(arguments, Path(folder))
    print(json.dumps(record, indent=1))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
