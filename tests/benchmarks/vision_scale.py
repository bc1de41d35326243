"""A network of many look-ups from file to answers: compiled, simulated, encrypted, with seconds, memory and agreement.

python tests/benchmarks/vision_scale.py resnet.onnx --data cifar10 --images 1000 --save resnet.clkm      # on the CPU: compile and simulate
python tests/benchmarks/vision_scale.py resnet.clkm --data cifar10 --images 1000 --encrypted 64 --device cuda --json result.json

An ONNX file is compiled on images of the training part, or on the first half of a .npz file (arrays x and y); a compiled program is taken as it is.
Seconds of the CPU are the process's own time, so that what else the machine does matters little.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cloakwork as cw
from cloakwork.app.cli.shared.data_sets import DATA_SETS
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime import Runtime, samples_at_once
from cloakwork.training.image_data import calibration_images

Images = NDArray[np.float64]
Labels = NDArray[np.int64]
Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="an ONNX file, or a compiled program (.clkm)")
    parser.add_argument("--data", default="cifar10", help="mnist, cifar10, or a .npz file")
    parser.add_argument("--images", type=int, default=1000, help="that are simulated, evenly over all")
    parser.add_argument("--encrypted", type=int, default=0, help="of these, encrypted")
    parser.add_argument("--calibration", type=int, default=300, help="images that an ONNX file is compiled on")
    parser.add_argument("--options", type=json.loads, default={}, help="of cloakwork.compile, as JSON")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, help="where the compiled program goes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    record: Record = {"model": options.model.name, "data": options.data, "device": options.device}
    compiled = prepared(options.model, options, record)
    show(record)
    images, labels = some_of(tested(options.data), options.images)
    record |= simulated(compiled, images, labels, options.seed)
    show(record)
    if options.encrypted:
        count = min(options.encrypted, len(images))
        record |= encrypted(compiled, images[:count], labels[:count], options)
    show(record)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def show(record: Record) -> None:
    print(json.dumps(record), flush=True)


def peak_gib() -> float:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def tested(data: str) -> tuple[Images, Labels]:
    """The test part, or the second half of a file."""
    if data in DATA_SETS:
        return DATA_SETS[data]()
    held = np.load(data)
    half = len(held["y"]) // 2
    return held["x"][half:].astype(np.float64), held["y"][half:].astype(np.int64)


def some_of(samples: tuple[Images, Labels], count: int) -> tuple[Images, Labels]:
    """So many at most, evenly over all: CIFAR-10 comes class by class."""
    images, labels = samples
    step = max(1, -(-len(images) // count))
    return images[::step], labels[::step]


def typical(data: str, count: int) -> Images:
    """Images that are not tested, the same in every run."""
    if data in ("mnist", "cifar10"):
        images = np.asarray(calibration_images(data, count), dtype=np.float64)
    else:
        held = np.load(data)
        images = held["x"][: len(held["y"]) // 2][:count].astype(np.float64)
    return images


def prepared(path: Path, options: argparse.Namespace, record: Record) -> CompiledModel:
    if path.suffix == ".onnx":
        images = typical(options.data, options.calibration)
        start = time.process_time()
        compiled: CompiledModel = cw.compile(path, images, **options.options)
        record |= {
            "compile_cpu_seconds": round(time.process_time() - start, 1),
            "compile_peak_gib": round(peak_gib(), 2),
        }
    else:
        compiled = CompiledModel.load(path)
    if options.save:
        compiled.save(options.save)
    program, report = compiled.program, compiled.report()
    keys = ("parameter_set", "bootstraps", "upload_bytes", "input_ciphertext_bytes", "output_ciphertext_bytes")
    record |= {key: report[key] for key in keys}
    record |= {"ciphertext_bytes": program.ciphertext_bytes, "held_bytes": program.held_bytes}
    if program.facts.check is not None:
        record["agreement_on_calibration"] = program.facts.check.value
    return compiled


def answers(compiled: CompiledModel, images: Images, **options: Any) -> Labels:
    """Classes [images]."""
    scores = np.asarray(compiled.predict(images, **options))
    classes: Labels = scores.reshape(len(scores), -1).argmax(axis=1)
    return classes


def simulated(compiled: CompiledModel, images: Images, labels: Labels, seed: int) -> Record:
    start, cpu = time.perf_counter(), time.process_time()
    found = answers(compiled, images, how="simulate", seed=seed)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    clear = answers(compiled, images)
    record = {
        "images": len(images),
        "simulate_seconds": round(seconds, 1),
        "simulate_cpu_ms_per_image": round(1e3 * cpu / len(images), 2),
        "simulate_peak_gib": round(peak_gib(), 2),
        "accuracy_quantised": share(clear, labels),
        "accuracy_simulated": share(found, labels),
        "agreement_simulated_quantised": share(found, clear),
    }
    if compiled.float_graph is not None:
        scores = np.asarray(compiled.predict_float(images))
        real = scores.reshape(len(scores), -1).argmax(axis=1)
        record |= {"accuracy_clear": share(real, labels), "agreement_simulated_clear": share(found, real)}
    return record


def encrypted(compiled: CompiledModel, images: Images, labels: Labels, options: argparse.Namespace) -> Record:
    start = time.perf_counter()
    key = ClientKey.generate(compiled.program.parameters)
    keys = key.evaluation_keys()
    on_cpu = options.device == "cpu"
    session = Session(keys, threads=options.threads) if on_cpu else Session(keys, device=options.device)
    record: Record = {"key_seconds": round(time.perf_counter() - start, 2)}
    runtime = Runtime(compiled.program, session)
    size = min(len(images), samples_at_once(compiled.program, session) * compiled.program.parameters.lane_count)
    scores, seconds = [], []
    for first in range(0, len(images), size):
        part = images[first : first + size]
        batch = compiled.client.encrypt(key, part)
        start = time.perf_counter()
        answer = runtime.answer(batch)
        seconds.append(time.perf_counter() - start)
        print(f"{first + len(part)}/{len(images)} encrypted: {seconds[-1]:.1f} s for {len(part)}", flush=True)
        scores.append(np.asarray(compiled.client.decrypt(key, answer, samples=len(part))).reshape(len(part), -1))
    found = np.concatenate(scores).argmax(axis=1)
    return record | {
        "encrypted": len(images),
        "images_at_once": size,
        "seconds_first_batch": round(seconds[0], 3),
        "seconds_per_image": round(sum(seconds) / len(images), 4),
        "lookups_per_second": round(compiled.program.bootstraps * len(images) / sum(seconds)),
        "accuracy_encrypted": share(found, labels),
        "agreement_encrypted_simulated": share(found, answers(compiled, images, how="simulate", seed=options.seed)),
        "agreement_encrypted_quantised": share(found, answers(compiled, images)),
    }


def share(found: Labels, wanted: Labels) -> float:
    """Of equal entries."""
    return round(float((found == wanted).mean()), 4)


if __name__ == "__main__":
    main()
