"""Times of the browser's client in Node beside Python's, one operation a line: `python tests/benchmarks/web_client.py [--json FILE]`.

Needs `make web`. Both on one core; the native engine with the instructions that it chooses, and with vectors of 128 bits (CLOAKWORK_CPU=baseline).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cloakwork.fhe_core.client import ClientKey
from cloakwork.models import zoo
from cloakwork.models.program.client_specification import ClientSpecification

WEB = Path(__file__).parents[2] / "web"
MODEL, SET = "mnist-mlp-1x30", "lut2"


def median(work: Callable[[], object], repeats: int = 7) -> float:
    """Milliseconds; the first call warms up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def native(client: Path) -> dict[str, float]:
    specification = ClientSpecification.from_json(client.read_text())
    key = ClientKey.generate(SET)
    image = (np.arange(specification.input_shape[0]) % 7 / 7)[None]
    answer = key.encrypt_torus(np.zeros(10))
    with tempfile.TemporaryDirectory() as folder:
        return {
            "secret key": median(lambda: ClientKey.generate(SET)),
            "evaluation keys, as an object": median(lambda: key.evaluation_keys().to_bytes()),
            "encryption of an image": median(lambda: specification.encrypt(key, image).to_bytes(), 50),
            "decryption of ten numbers": median(lambda: key.decrypt(answer), 50),
            "key file written (scrypt)": median(lambda: key.save(Path(folder) / "key", "a passphrase"), 3),
        }


def measured(command: list[str], **variables: str) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--native", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.native is not None:
        print(json.dumps(native(arguments.native)))
        return
    with tempfile.TemporaryDirectory() as folder:
        client = Path(folder) / "client.json"
        client.write_text(zoo.load_model(MODEL).client.to_json())
        python = [sys.executable, __file__, "--native", str(client)]
        columns = {
            "Node": measured(["node", str(WEB / "test" / "bench.mjs"), str(client), SET]),
            "native": measured(python),
            "native, 128 bits": measured(python, CLOAKWORK_CPU="baseline"),
        }
    wasm = (WEB / "dist" / "client.wasm").read_bytes()
    sizes = {"bytes": len(wasm), "gzip_bytes": len(gzip.compress(wasm, 9))}
    print(f"client.wasm: {sizes['bytes']} bytes, {sizes['gzip_bytes']} with gzip -9\n")
    print(f"| ms, set {SET} | {' | '.join(columns)} | Node / native |\n|---|{'---:|' * (len(columns) + 1)}")
    for name in columns["Node"]:
        times = [column[name] for column in columns.values()]
        print(f"| {name} | {' | '.join(f'{ms:.3g}' for ms in times)} | {times[0] / times[1]:.1f} |")
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"set": SET, "model": MODEL, "times_ms": columns, **sizes}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
