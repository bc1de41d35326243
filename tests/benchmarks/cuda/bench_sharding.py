"""Bootstraps per second on one, two and four GPUs of one host, words compared with those of one GPU: `host` through numpy arrays, with `out`
and input in page-locked memory and in ordinary memory (`pageable`); `resident` with each GPU's share on it before and after.

python tests/benchmarks/cuda/bench_sharding.py [--set gate_64] [--batch 65536]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.device_words import DeviceWords
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.session.sharding import device_sessions, session_over


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
    lwe: Any = rng.integers(0, params.modulus, (options.batch, params.large_dimension + 1), dtype=dtype)
    table = rng.integers(0, params.modulus, (1, params.polynomial_size), dtype=dtype)
    pinned = _engine.pinned_empty(lwe.shape, dtype)
    pinned[:] = lwe
    shape = (options.batch, 1, params.large_dimension + 1)
    expected: Any = None
    single: dict[str, float] = {}
    for count in (1, 2, 4):
        if count > _engine.cuda_device_count():
            break
        device = "cuda:" + ",".join(map(str, range(count)))
        parts = device_sessions(keys.expand(device).engine_keys, device, None)
        session = session_over(parts)
        spread = DeviceWords.upload(params, lwe, device).contiguous()
        ways = {
            "resident": (spread, None),
            "host": (pinned, _engine.pinned_empty(shape, dtype)),
            "pageable": (lwe, np.empty(shape, dtype)),
        }
        for way, (words, out) in ways.items():
            seconds, result = measured(session, parts, words, table, out, options.repeats)
            words_of = result if isinstance(result, np.ndarray) else result.to_host()
            expected = words_of.copy() if expected is None else expected
            single.setdefault(way, seconds)
            record = {"set": options.set, "device": device, "arrays": way, "batch": options.batch}
            record |= {"median_seconds": seconds, "per_second": options.batch / seconds}
            record |= {"times_one": single[way] / seconds, "words_equal": bool(np.array_equal(words_of, expected))}
            print(json.dumps(record), flush=True)


def measured(session: Any, parts: Sequence[Any], words: Any, table: Any, out: Any, repeats: int) -> tuple[float, Any]:
    """Median seconds of a call, and its result."""
    result = session.bootstrap(words, table, out=out)
    for part in parts:
        part.synchronize()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = session.bootstrap(words, table, out=out)
        for part in parts:
            part.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


if __name__ == "__main__":
    main()
