"""Bootstraps per second on one, two and four GPUs of one host, through numpy arrays, words compared with those of one GPU.

python tests/benchmarks/cuda/bench_sharding.py [--set gate_64] [--batch 65536]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.evaluation_keys import engine_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default="gate_64")
    parser.add_argument("--batch", type=int, default=65536, help="ciphertexts, shared among the GPUs")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    keys = ClientKey.generate(options.set).evaluation_keys()
    params = keys.parameters
    rng = np.random.default_rng(1)
    dtype = np.uint32 if params.limb_count == 1 else np.uint64
    lwe = rng.integers(0, params.modulus, (options.batch, params.large_dimension + 1), dtype=dtype)
    table = rng.integers(0, params.modulus, (1, params.polynomial_size), dtype=dtype)
    out = np.empty((options.batch, 1, params.large_dimension + 1), dtype)
    expected, single = None, 0.0
    for count in (1, 2, 4):
        if count > _engine.cuda_device_count():
            break
        device = "cuda:" + ",".join(map(str, range(count)))
        session = engine_session(keys.expand(device))
        session.bootstrap(lwe, table, out=out)
        times = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            session.bootstrap(lwe, table, out=out)
            times.append(time.perf_counter() - start)
        seconds = statistics.median(times)
        if expected is None:
            expected, single = out.copy(), seconds
        print(
            json.dumps(
                {
                    "set": options.set,
                    "device": device,
                    "batch": options.batch,
                    "median_seconds": seconds,
                    "per_second": options.batch / seconds,
                    "times_one": single / seconds,
                    "words_equal": bool(np.array_equal(out, expected)),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
