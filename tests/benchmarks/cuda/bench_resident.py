"""What a GPU does when nothing is copied between operations: bootstraps, linear layers and the zoo's MNIST model on device arrays.

    python tests/benchmarks/cuda/bench_resident.py [--json PATH] [--only bootstrap linear model] [--sets gate_64 nn2]

Times are medians, with the device idle at both ends; several calls are enqueued before the wait (`--depth`), as a server would. A few
ciphertexts of every result are compared with the CPU back end word for word: `wrong` counts those that differ, and bits or labels that
decrypt to something else.

`macs_per_second` of a linear layer counts int8 multiply-adds: rows x columns x samples x (kN + 1) x slices, where slices is the product of
the byte slices of a word (4 for one limb, 7 for two) and those of the weights (1 for -128 .. 127).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.engine import host_session, upload
from cloakwork.fhe_core.server import Session
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import load_program, save_program
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime import Runtime

CHECKED = 4


def seconds_per_call(call: Callable[[], Any], session: Session, repeats: int, depth: int) -> float:
    """Median over `repeats` of the time of `depth` calls in a row, divided by their number."""
    call()
    session.synchronize()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        held = [call() for _ in range(depth)]
        session.synchronize()
        times.append((time.perf_counter() - start) / depth)
        del held
    return statistics.median(times)


def bench_bootstrap(name: str, batches: list[int], repeats: int, depth: int) -> list[dict[str, Any]]:
    """NAND for gate sets, else a sign, both with tables that are on the device after the first call."""
    key = ClientKey.generate(name)
    keys = key.evaluation_keys()
    cuda, cpu = Session(keys, device="cuda"), host_session(keys.expand().engine_keys[0], threads=8)
    params = key.parameters
    eighth, records = params.modulus // 8, []
    table = np.full((1, params.polynomial_size), eighth, np.uint32 if params.limb_count == 1 else np.uint64)
    for batch in batches:
        bits = np.random.default_rng(batch).integers(0, 2, batch)
        encrypted: Any = key.encrypt_torus(np.where(bits == 1, 0.125, -0.125), limit=0.5)
        lwe = encrypted.to_device()
        held: Any = lwe.words
        words, engine = held.contiguous(), cuda.device_sessions[0]

        def call(words: Any = words, engine: Any = engine) -> Any:
            return engine.bootstrap(words, table)

        seconds = seconds_per_call(call, cuda, repeats, 1 if batch == 1 else depth)
        out = call().to_host()
        stages = engine.last_bootstrap
        expected = cpu.bootstrap(lwe.to_host().words[:CHECKED].copy(), table)
        phases = key._secret_key.phase_lwe(np.ascontiguousarray(out[:, 0]))
        wrong = int(np.count_nonzero((phases < params.modulus // 2) != (bits == 1)))
        wrong += int((out[:CHECKED] != expected).any(axis=(1, 2)).sum())
        rates = {"median_seconds": seconds, "per_second": batch / seconds, **stages, "wrong": wrong}
        records.append({"kind": "bootstrap", "set": name, "batch": batch, **rates})
        show(records[-1])
    return records


def bench_linear(name: str, shape: tuple[int, int, int], repeats: int, depth: int) -> dict[str, Any]:
    rows, columns, samples = shape
    key = ClientKey.generate(name)
    params, keys = key.parameters, key.evaluation_keys()
    cuda, cpu = Session(keys, device="cuda"), host_session(keys.expand().engine_keys[0], threads=8)
    generator = np.random.default_rng(1)
    matrix = generator.integers(-127, 128, (rows, columns))
    dtype = np.uint32 if params.limb_count == 1 else np.uint64
    words: Any = generator.integers(0, params.modulus, (samples, columns, params.large_dimension + 1), dtype=dtype)
    array, engine = upload(words, 0), cuda.device_sessions[0]
    weights = engine.upload_weights(matrix.astype(np.int32))
    out = engine.gathered_linear(weights, array)
    seconds = seconds_per_call(lambda: engine.gathered_linear(weights, array, out=out), cuda, repeats, depth)
    checked = out[:1].to_host()
    expected = cpu.linear(matrix.astype(np.int32), words[:1].copy())
    slices = 4 if params.limb_count == 1 else 7
    macs = rows * columns * samples * (params.large_dimension + 1) * slices
    record = {"kind": "linear", "set": name, "rows": rows, "columns": columns, "samples": samples, "slices": slices}
    record |= {
        "median_seconds": seconds,
        "macs_per_second": macs / seconds,
        "wrong": int((checked != expected).any(axis=2).sum()),
    }
    show(record)
    return record


def bench_model(name: str, images: int, repeats: int) -> list[dict[str, Any]]:
    """The whole request on the server: seeded ciphertexts in host memory to encrypted scores in host memory."""
    program, client = compiled_model(name)
    key = ClientKey.generate(program.parameters)
    keys = key.evaluation_keys()
    session = Session(keys, device="cuda")
    runtime, records = Runtime(program, session), []
    x = np.random.default_rng(2).uniform(*client.input_range, (images, *client.input_shape))
    for count in (1, 64, images):
        encrypted = client.encrypt(key, x[:count])
        runtime.run(encrypted)
        times = []
        for _ in range(repeats if count > 1 else 5 * repeats):
            start = time.perf_counter()
            result = runtime.run(encrypted)
            times.append(time.perf_counter() - start)
        wrong = 0
        if count == 1:
            expected = Runtime(program, Session(keys, threads=8)).run(encrypted)
            wrong = int((expected.words != result.words).any(axis=-1).sum())
        seconds = statistics.median(times)
        records.append(
            {
                "kind": "model",
                "model": name,
                "set": program.parameters.name,
                "images": count,
                "bootstraps_per_image": program.bootstraps,
                "median_seconds": seconds,
                "per_second": count / seconds,
                "wrong": wrong,
            }
        )
        show(records[-1])
    return records


def compiled_model(name: str) -> tuple[Program, ClientSpecification]:
    """A name of the zoo (which needs the onnx package), or a compiled program's file with its client's JSON beside it (`--write` makes both)."""
    path = Path(name)
    if path.suffix == ".clkm":
        specification = path.with_suffix(".json").read_text(encoding="utf-8")
        return load_program(path), ClientSpecification.from_json(specification)
    from cloakwork.models.zoo import load_model

    compiled = load_model(name)
    return compiled.program, compiled.client


def write_model(name: str, folder: Path) -> None:
    from cloakwork.models.zoo import load_model

    compiled = load_model(name)
    stem = f"{name}-{compiled.program.parameters.name}"
    save_program(folder / f"{stem}.clkm", compiled.program)
    (folder / f"{stem}.json").write_text(compiled.client.to_json(), encoding="utf-8")


def show(record: dict[str, Any]) -> None:
    print("  ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["bootstrap", "linear", "model"])
    parser.add_argument("--sets", nargs="+", default=["gate_64", "nn2"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 132, 16384])
    parser.add_argument("--linear", nargs="+", type=int, default=[1024, 1024, 64], help="rows, columns, samples")
    parser.add_argument("--model", nargs="+", default=["mnist-mlp-1x30"])
    parser.add_argument("--write", type=Path, help="compile the model into this folder, and nothing else")
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    if options.write:
        write_model(options.model[0], options.write)
        return
    if "bootstrap" in options.only:
        for name in options.sets:
            records += bench_bootstrap(name, options.batches, options.repeats, options.depth)
    if "linear" in options.only:
        rows, columns, samples = options.linear
        records.append(bench_linear(options.sets[0], (rows, columns, samples), options.repeats, options.depth))
    if "model" in options.only:
        for model in options.model:
            records += bench_model(model, options.images, options.repeats)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
