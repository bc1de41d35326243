"""Bootstraps and linear layers on a CUDA device through the engine's Python classes: seconds, rates, wrong words.

    python tests/benchmarks/cuda/bench_engine.py [--sets gate_64 lut4] [--batches 1 132 16384] [--json PATH]

Outputs of a few ciphertexts are compared with the CPU back end word for word, and all of them are decrypted: `wrong` counts phases that
differ from the clear look-up. `host` includes copies to and from numpy arrays; `device` is the time of the stages alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from cloakwork.fhe_core import _engine

CHECKED = 3
LINEAR_SHAPES = [(1024, 1024, 64), (1024, 1024, 16), (128, 784, 16)]


def bench_set(name: str, batches: list[int], repeats: int) -> list[dict[str, Any]]:
    params = _engine.parameter_set(name)
    secret = _engine.SecretKey.generate(params)
    keys = secret.evaluation_keys()
    start = time.perf_counter()
    key = _engine.CudaKey(params, *keys)
    expand_seconds = time.perf_counter() - start
    session = _engine.CudaSession(key)
    cpu = _engine.CpuSession(_engine.CpuKey(params, *keys), 16)
    print(
        f"{name}: kernel {key.kernel}, expansion {expand_seconds:.2f} s, {key.nbytes >> 20} MiB, {session.matrix_products}",
        flush=True,
    )
    return [bench_batch(name, secret, cpu, session, batch, repeats) for batch in batches]


def bench_batch(name: str, secret: Any, cpu: Any, session: Any, batch: int, repeats: int) -> dict[str, Any]:
    params = session.params
    generator = np.random.default_rng(batch)
    eighth = params.modulus // 8
    bits = generator.integers(0, 2, batch)
    lwe = secret.encrypt_lwe(np.where(bits == 1, eighth, params.modulus - eighth).astype(np.uint64))
    table = np.full((1, params.table_size), eighth, lwe.dtype)  # a sign
    seconds, keyswitch, rotate = [], [], []
    wrong = 0
    for _ in range(repeats + 1):
        start = time.perf_counter()
        outputs = session.bootstrap(lwe, table)
        seconds.append(time.perf_counter() - start)
        stages = session.last_bootstrap
        keyswitch.append(stages["keyswitch_seconds"])
        rotate.append(stages["blind_rotate_seconds"])
    phases = secret.phase_lwe(np.ascontiguousarray(outputs[:, 0]))
    wrong = int(np.count_nonzero((phases < params.modulus // 2) != (bits == 1)))
    same = np.array_equal(outputs[:CHECKED], cpu.bootstrap(lwe[:CHECKED], table))
    record = {
        "set": name,
        "batch": batch,
        "host_seconds": statistics.median(seconds[1:]),
        "keyswitch_seconds": statistics.median(keyswitch[1:]),
        "blind_rotate_seconds": statistics.median(rotate[1:]),
        "wrong": wrong,
        "words_equal": same,
    }
    device = max(record["keyswitch_seconds"] + record["blind_rotate_seconds"], 1e-9)  # 0 when emulated
    print(
        f"  batch {batch:6d}: host {record['host_seconds'] * 1e3:9.3f} ms {batch / record['host_seconds']:9.0f}/s | device "
        f"{device * 1e3:9.3f} ms {batch / device:9.0f}/s, keyswitch {record['keyswitch_seconds'] * 1e3:7.3f} ms "
        f"({100 * record['keyswitch_seconds'] / device:.1f} %) | wrong {wrong}, words equal: {same}",
        flush=True,
    )
    return record


def bench_linear(name: str, repeats: int) -> list[dict[str, Any]]:
    """Numpy arrays in and out; weights are on the device, results in page-locked memory unless said. Multiply-adds as in bench_resident.py."""
    params = _engine.parameter_set(name)
    secret = _engine.SecretKey.generate(params)
    keys = secret.evaluation_keys()
    session = _engine.CudaSession(_engine.CudaKey(params, *keys))
    cpu = _engine.CpuSession(_engine.CpuKey(params, *keys), 16)
    generator = np.random.default_rng(1)
    dtype = np.uint32 if params.limb_count == 1 else np.uint64
    slices = 4 if params.limb_count == 1 else 7
    records = []
    for rows, columns, samples in LINEAR_SHAPES:
        matrix = generator.integers(-127, 128, (rows, columns), dtype=np.int32)
        weights = session.upload_weights(matrix)
        ordinary: Any = generator.integers(
            0, params.modulus, (samples, columns, params.large_dimension + 1), dtype=dtype
        )
        locked = _engine.pinned_empty(ordinary.shape, dtype)
        locked[...] = ordinary
        expected = cpu.linear(matrix, ordinary[:1].copy())
        macs = rows * columns * samples * (params.large_dimension + 1) * slices
        result = np.zeros((samples, rows, params.large_dimension + 1), dtype)
        ways = (
            ("ordinary", ordinary, None),
            ("page-locked", locked, None),
            ("ordinary, results too", ordinary, result),
        )
        for memory, lwe, into in ways:
            seconds = []
            for _ in range(repeats + 2):
                start = time.perf_counter()
                out = session.gathered_linear(weights, lwe, out=into)
                seconds.append(time.perf_counter() - start)
            wrong = int((out[:1] != expected).any(axis=2).sum())
            median = statistics.median(seconds[2:])
            record = {"set": name, "rows": rows, "columns": columns, "samples": samples, "memory": memory}
            record |= {"host_seconds": median, "macs_per_second": macs / median, "wrong": wrong}
            records.append(record)
            print(
                f"{name} linear {rows} x {columns}, {samples} samples, {memory} arrays: {median * 1e3:.2f} ms (least "
                f"{min(seconds[2:]) * 1e3:.2f}, first call {seconds[0] * 1e3:.0f}), {macs / median / 1e12:.1f} T multiply-adds/s, "
                f"{lwe.nbytes / median / 1e9:.1f} GB/s in, "
                f"{out.nbytes / median / 1e9:.1f} GB/s out, wrong {wrong}",
                flush=True,
            )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["gate_64", "nn2", "lut2_64", "lut3_64", "lut4"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 132, 528, 16384])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=["bootstrap", "linear"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    records = []
    for name in arguments.sets if "bootstrap" in arguments.only else []:
        records += bench_set(name, arguments.batches, arguments.repeats)
    if "linear" in arguments.only:
        records += bench_linear(arguments.sets[0], arguments.repeats)
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
