"""How soon a GPU answers: batches of one and a few ciphertexts, and models on one sample, with where the time goes.

    python tests/benchmarks/cuda/bench_latency.py [--json PATH] [--sets gate_64 lut4] [--batches 1 30] [--models FOLDER/NAME.clkm]

`host` is the time until a call has enqueued its work, `total` until its result is there, medians in microseconds. For models the steps of
the schedule follow, each waited for by itself (`alone`), and how long each takes to be enqueued in a run (`host`). Words are compared with
the CPU's: `wrong` counts ciphertexts that differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.engine import host_session, upload
from cloakwork.fhe_core.server import Session
from cloakwork.models.program.artefact import load_program
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime import Runtime
from cloakwork.models.runtime.machines import device as machine

STEPS = ("extract", "multiply", "look_up", "output")


def medians(call: Callable[[], Any], wait: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Microseconds until `call` returns, and until `wait` does."""
    host, total = [], []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        held = call()
        host.append(time.perf_counter() - start)
        wait()
        total.append(time.perf_counter() - start)
        del held
    return 1e6 * statistics.median(host[3:]), 1e6 * statistics.median(total[3:])


def bench_set(name: str, batches: list[int], repeats: int) -> list[dict[str, Any]]:
    """A sign, on arrays of the device and of the host."""
    key = ClientKey.generate(name)
    keys = key.evaluation_keys()
    session, cpu = Session(keys, device="cuda"), host_session(keys.expand().engine_keys[0], threads=8)
    params, engine, records = key.parameters, session.device_sessions[0], []
    dtype = np.uint32 if params.limb_count == 1 else np.uint64
    table = np.full((1, params.polynomial_size), params.modulus // 8, dtype)
    words: Any = np.random.default_rng(1).integers(
        0, params.modulus, (max(batches), params.large_dimension + 1), dtype=dtype
    )
    expected = cpu.bootstrap(words, table)
    for batch in batches:
        part = np.ascontiguousarray(words[:batch])
        for place, lwe in (("device", upload(part, 0)), ("host", part)):

            def call(lwe: Any = lwe) -> Any:
                return engine.bootstrap(lwe, table)

            out: Any = call()
            found = out if place == "host" else out.to_host()
            host, total = medians(call, session.synchronize, repeats)
            stages = {stage: 1e6 * seconds for stage, seconds in engine.last_bootstrap.items()}
            wrong = int((found != expected[:batch]).any(axis=(1, 2)).sum())
            records.append(
                {"set": name, "batch": batch, "arrays": place, "host": host, "total": total, **stages, "wrong": wrong}
            )
            show(records[-1])
    return records


def timed_steps(times: dict[str, list[float]], wait: Callable[[], None] | None) -> Callable[[], None]:
    """Notes the microseconds of every step of the device's machine; the result ends that."""
    originals = {step: getattr(machine.Device, step) for step in STEPS}

    def timed(step: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = originals[step](*arguments)
            if wait is not None:
                wait()
            times[step].append(1e6 * (time.perf_counter() - start))
            return result

        return run

    for step in STEPS:
        setattr(machine.Device, step, timed(step))

    def restore() -> None:
        for step, original in originals.items():
            setattr(machine.Device, step, original)

    return restore


def sample_shape(client: ClientSpecification) -> tuple[int, ...]:
    """Of what a user has: tables count their columns, before any is encoded."""
    columns = getattr(client.input_steps[0], "count", None) if client.input_steps else None
    return client.input_shape if columns is None else (columns,)


def bench_model(path: Path, samples: list[int], repeats: int) -> list[dict[str, Any]]:
    """A request on the server: seeded ciphertexts in host memory to encrypted outputs in host memory."""
    program = load_program(path)
    client = ClientSpecification.from_json(path.with_suffix(".json").read_text(encoding="utf-8"))
    key = ClientKey.generate(program.parameters)
    keys = key.evaluation_keys()
    session, records = Session(keys, device="cuda"), []
    runtime, cpu = Runtime(program, session), Runtime(program, Session(keys, threads=8))
    for count in samples:
        x = client.encrypt(key, np.random.default_rng(2).uniform(*client.input_range, (count, *sample_shape(client))))
        result = runtime.run(x)
        wrong = int((cpu.run(x).words != result.words).any(axis=-1).sum()) if count == 1 else -1
        total = medians(partial(runtime.run, x), session.synchronize, repeats)[1]
        record: dict[str, Any] = {"model": path.stem, "samples": count, "total": total, "wrong": wrong}
        for kind, wait in (("host", None), ("alone", session.synchronize)):
            times: dict[str, list[float]] = defaultdict(list)
            restore = timed_steps(times, wait)
            try:
                for _ in range(repeats):
                    runtime.run(x)
            finally:
                restore()
            for step in STEPS:
                each = len(times[step]) // repeats
                record[f"{step} {kind}"] = [round(statistics.median(times[step][i::each]), 1) for i in range(each)]
        record |= {f"bootstrap {stage}": 1e6 * s for stage, s in session.device_sessions[0].last_bootstrap.items()}
        records.append(record)
        show(record)
    return records


def show(record: dict[str, Any]) -> None:
    print("  ".join(f"{k} {v:.1f}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=["gate_64", "lut4"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 30])
    parser.add_argument("--models", nargs="*", type=Path, default=[])
    parser.add_argument("--samples", nargs="+", type=int, default=[1])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    for name in options.sets:
        records += bench_set(name, options.batches, options.repeats)
    for model in options.models:
        records += bench_model(model, options.samples, options.repeats)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
