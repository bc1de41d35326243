"""Seconds against work on one GPU and more: bootstraps by batch, perceptrons by layers and by look-ups of a layer, linear layers by samples.

    python tests/benchmarks/cuda/bench_scaling.py compile FOLDER         # where onnxruntime is: the perceptrons
    python tests/benchmarks/cuda/bench_scaling.py measure FOLDER --json scaling.json [--devices cuda cuda:0,1] [--sets gate_64 lut4]
    python tests/benchmarks/cuda/bench_scaling.py plot scaling.json --folder docs/benchmarks/images [--markdown scaling.md]

Words lie on the devices before and after, but for perceptrons: a request there is seeded ciphertexts in host memory to encrypted outputs in
host memory. Medians; words of several GPUs are compared with one's, words of one GPU with the CPU's on up to 256 ciphertexts, networks with
the CPU on one sample: `wrong` counts what differs. The table gives seconds per unit of work over those of the largest: 1.00 is linear.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import cloakwork as cw

SETS = ["gate_64", "gate_64_block", "nn2", "lut4", "lut4_block"]
BATCHES = [1, 4, 16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536]
FULL = 8192  # ciphertexts at once on a card, which runs the largest group of blocks of every set several times
LAYERS = [1, 2, 4, 8, 16]
LAYER_WIDTH = 128
LOOK_UPS = [32, 128, 512, 2048]
SAMPLES = 64  # of a request to a perceptron: its smallest layer keeps a card busy
LINEAR = [1, 4, 16, 64, 256]
LINEAR_FEATURES = 1024

# Look-ups at once, by work; a linear layer of our sizes is bound by its smallest part up to its largest number of samples.
AT_ONCE: dict[str, Callable[[int], int]] = {
    "bootstraps": lambda batch: batch,
    "samples of a linear layer": lambda samples: 0,
    "layers": lambda layers: LAYER_WIDTH * SAMPLES,
    "look-ups of a layer": lambda width: width * SAMPLES,
}

Record = dict[str, Any]


# --- perceptrons -----------------------------------------------------------------------------------------------------------------


def perceptrons() -> dict[str, tuple[str, int, list[int]]]:
    """Name: (series, work, widths)."""
    deep = {f"layers_{count}": ("layers", count, [LAYER_WIDTH] * (count + 1) + [10]) for count in LAYERS}
    wide = {f"look_ups_{width}": ("look-ups of a layer", width, [64, width, 10]) for width in LOOK_UPS}
    return deep | wide


def compile_perceptrons(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))
    import onnx_models

    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, _, sizes) in perceptrons().items():
        rng = np.random.default_rng(len(sizes) + sizes[1])
        proto = onnx_models.mlp(rng, sizes)
        # Random networks of depth are judged by nothing: what counts here is the work of a program.
        compiled = cw.compile(proto, rng.uniform(-1, 1, (256, sizes[0])), precision="fast", accuracy=0, sets=["nn2"])
        compiled.save(folder / f"{name}.clkm")
        print(name, compiled.program.parameters.name, flush=True)


def bench_perceptrons(folder: Path, devices: list[str], repeats: int) -> list[Record]:
    from cloakwork.fhe_core.client import ClientKey
    from cloakwork.fhe_core.server import Session
    from cloakwork.models.program.artefact import load_program
    from cloakwork.models.program.client_specification import ClientSpecification
    from cloakwork.models.runtime import Runtime

    keys: dict[str, Any] = {}
    records = []
    for name, (series, work, sizes) in perceptrons().items():
        program = load_program(folder / f"{name}.clkm")
        client = ClientSpecification.of(program)
        set_name = program.parameters.name
        if set_name not in keys:
            key = ClientKey.generate(program.parameters)
            evaluation = key.evaluation_keys()
            keys[set_name] = key, {device: Session(evaluation, device=device) for device in ("cpu", *devices)}
        key, sessions = keys[set_name]
        x = client.encrypt(key, np.random.default_rng(2).uniform(-1, 1, (SAMPLES, sizes[0])))
        one = client.encrypt(key, np.random.default_rng(2).uniform(-1, 1, (1, sizes[0])))
        alone = Runtime(program, sessions["cpu"]).run(one)
        expected = None
        for device in devices:
            runtime, session = Runtime(program, sessions[device]), sessions[device]
            seconds, result = measured(partial(runtime.run, x), session.synchronize, repeats)
            expected = result.words if expected is None else expected
            wrong = differing(result.words, expected) + differing(runtime.run(one).words, alone.words)
            records.append(record(series, set_name, device, work, seconds, wrong))
    return records


# --- bootstraps and linear layers ------------------------------------------------------------------------------------------------


def bench_bootstraps(name: str, devices: list[str], repeats: int) -> list[Record]:
    from cloakwork.fhe_core.arrays.device_words import DeviceWords
    from cloakwork.fhe_core.client import ClientKey
    from cloakwork.fhe_core.engine import host_session
    from cloakwork.fhe_core.session.sharding import device_sessions, session_over

    keys = ClientKey.generate(name).evaluation_keys()
    params, rng, records = keys.parameters, np.random.default_rng(1), []
    dtype = np.uint32 if params.limb_count == 1 else np.uint64
    words: Any = rng.integers(0, params.modulus, (max(BATCHES), params.large_dimension + 1), dtype=dtype)
    table: Any = rng.integers(0, params.modulus, (1, params.table_size), dtype=dtype)
    cpu = host_session(keys.expand().engine_keys[0], threads=16).bootstrap(words[:256], table)
    first: Any = None
    for device in devices:
        parts = device_sessions(keys.expand(device).engine_keys, device, None)
        session: Any = session_over(parts)
        for batch in BATCHES:
            lwe = DeviceWords.upload(params, words[:batch], device).contiguous()
            seconds, result = measured(partial(session.bootstrap, lwe, table), partial(wait_for, parts), repeats)
            found = result.to_host()
            first = found if first is None or len(found) > len(first) else first
            wrong = differing(found[:256], cpu[:batch]) + differing(found, first[:batch])
            records.append(record("bootstraps", name, device, batch, seconds, wrong))
    return records


def bench_linear_layers(name: str, device: str, repeats: int) -> list[Record]:
    from cloakwork.app.cli.bench.measure import Arrays, Setting, bench_linear
    from cloakwork.fhe_core import _engine

    shape, records = (LINEAR_FEATURES, LINEAR_FEATURES), []
    for samples in LINEAR:
        setting = Setting(batch=samples, repeats=repeats, device=device, threads=16)
        found = bench_linear(_engine.parameter_set(name), shape, Arrays.DEVICE, setting, lambda done, total: True)
        records.append(
            record("samples of a linear layer", name, device, samples, found["median_seconds"], found["wrong"])
        )
    return records


def wait_for(sessions: Sequence[Any]) -> None:
    for session in sessions:
        session.synchronize()


def differing(found: Any, expected: Any) -> int:
    """Items with a word that is not the same."""
    return int((found != expected).reshape(len(found), -1).any(axis=1).sum())


def measured(call: Callable[[], Any], wait: Callable[[], None], repeats: int) -> tuple[float, Any]:
    """Median seconds of a call and what it gave, in at most a few seconds of them all."""
    result = call()
    wait()
    times: list[float] = []
    while len(times) < repeats and (len(times) < 3 or sum(times) < 2.0):
        start = time.perf_counter()
        result = call()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def record(series: str, name: str, device: str, work: int, seconds: float, wrong: int) -> Record:
    found = {"series": series, "set": name, "device": device, "work": work, "seconds": seconds, "wrong": wrong}
    print(json.dumps(found), flush=True)
    return found


# --- plots -----------------------------------------------------------------------------------------------------------------------


def lines(records: list[Record]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """{series: {set, device: [(work, seconds), ..]}}"""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for one in records:
        label = one["set"] if one["device"] in ("cuda", "cuda:0") else f"{one['set']}, {one['device']}"
        found.setdefault(one["series"], {}).setdefault(label, []).append((one["work"], one["seconds"]))
    return found


def plot(records: list[Record], folder: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "cloakwork"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for series, kinds in lines(records).items():
        figure, axis = plt.subplots(figsize=(7, 4.5))
        for label, points in kinds.items():
            work, seconds = zip(*points, strict=True)
            (line,) = axis.loglog(work, seconds, marker="o", markersize=3, label=label)
            ends = np.array([work[0], work[-1]])
            axis.loglog(ends, seconds[-1] * ends / ends[-1], color=line.get_color(), linewidth=0.6, linestyle=":")
        axis.set_xlabel(series)
        axis.set_ylabel("seconds")
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize="small")
        figure.tight_layout()
        paths.append(folder / f"scaling-{series.replace(' ', '-')}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
        plt.close(figure)
    return paths


def table(records: list[Record]) -> str:
    """Markdown: seconds per unit over those of the largest work, and the largest deviation where the device is full."""
    rows = []
    for series, kinds in lines(records).items():
        for label, points in kinds.items():
            work, seconds = points[-1]
            unit = seconds / work
            ratios = [(w, s / w / unit) for w, s in points]
            shown = ", ".join(f"{w}: {r:.2f}" for w, r in ratios[-5:])
            cards = max(1, label.count(","))  # "set, cuda:0,1" is two
            full = [r for w, r in ratios if AT_ONCE[series](w) >= FULL * cards]
            where_full = f"{min(full):.2f} to {max(full):.2f}" if full else "not full"
            rows.append(f"| {series} | {label} | {1e6 * unit:.2f} | {shown} | {where_full} |")
    head = "| work | set, device | us per unit, largest | per unit over the largest's | where full |\n| --- | --- | --- | --- | --- |"
    return "\n".join([head, *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["compile", "measure", "plot"])
    parser.add_argument("path", type=Path, help="folder of the perceptrons, or JSON to plot")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--devices", nargs="+", default=["cuda:0"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("docs/benchmarks/images"))
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    if options.command == "compile":
        compile_perceptrons(options.path)
    elif options.command == "measure":
        records: list[Record] = []
        for name in options.sets:
            records += bench_bootstraps(name, options.devices, options.repeats)
            save(records, options.json)
        records += bench_linear_layers("nn2", options.devices[0], options.repeats)
        save(records, options.json)
        records += bench_perceptrons(options.path, options.devices, options.repeats)
        save(records, options.json)
    else:
        found = json.loads(options.path.read_text(encoding="utf-8"))
        for path in plot(found, options.folder):
            print(path)
        print(table(found))
        if options.markdown:
            options.markdown.write_text(table(found), encoding="utf-8")


def save(records: list[Record], path: Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
