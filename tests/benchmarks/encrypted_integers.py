"""Integer networks, encrypted: do they answer ONNX Runtime's integers?

    PYTHONPATH=tests/models python tests/benchmarks/encrypted_integers.py compile FOLDER      # trains, quantises, compiles; needs MNIST
    python tests/benchmarks/encrypted_integers.py run FOLDER --device cuda --samples 100      # JSON, a line a network

Networks are trained on MNIST and quantised by ONNX Runtime's `quantize_static`, per tensor: an MLP 784-64-10 of 8 bits and of 4, a network of two
convolutions by steps of 2 of 8 bits. `run` needs the package alone. `wrong` counts integers of encrypted outputs that are not ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel

CALIBRATION, HELD_OUT = 300, 1000
NAMES = ("mlp-8-bits", "mlp-4-bits", "cnn-8-bits")


def compile_networks(folder: Path, names: list[str]) -> None:
    from integer_networks import IMAGE, Format, answers, output_scale, quantise, trained_dense, trained_strided
    from onnxruntime.quantization import QuantType

    from cloakwork.training.mnist_data import load_mnist

    (x, labels), (unseen, truth) = load_mnist("train"), load_mnist("test")
    x, unseen = x.astype(np.float32), unseen.astype(np.float32)
    eight, four = Format(), Format(activations=QuantType.QUInt4, weights=QuantType.QInt4)
    for name in names:
        shape, form = IMAGE if name.startswith("cnn") else (x.shape[1],), four if "4" in name else eight
        samples, tested = x.reshape(-1, *shape), unseen[:HELD_OUT].reshape(-1, *shape)
        network = trained_strided(samples, labels) if name.startswith("cnn") else trained_dense(samples, labels)
        quantised = quantise(network, samples[:CALIBRATION], form)
        began = time.perf_counter()
        model = cw.compile(quantised, samples[:CALIBRATION], precision="exact", rounding="onnxruntime")
        print(f"{name}: compiled in {time.perf_counter() - began:.1f} s\n{model}")
        folder.mkdir(parents=True, exist_ok=True)
        model.save(folder / f"{name}.clkm")
        np.savez(
            folder / f"{name}.npz",
            x=tested,
            scale=output_scale(quantised),
            expected=answers(quantised, tested),
            classes=truth[:HELD_OUT],
        )


def run(folder: Path, name: str, device: str, count: int, at_once: int) -> dict[str, object]:
    model = CompiledModel.load(folder / f"{name}.clkm")
    with np.load(folder / f"{name}.npz") as held:
        x, expected, classes, scale = (
            held["x"][:count],
            held["expected"][:count],
            held["classes"][:count],
            held["scale"],
        )
    key = ClientKey.generate(model.program.parameters)
    session = Session(key.evaluation_keys(), device=device)
    began = time.perf_counter()
    model.predict(x[:1], "encrypted", key=key, session=session)
    alone, began = time.perf_counter() - began, time.perf_counter()
    parts = [
        np.asarray(model.predict(x[i : i + at_once], "encrypted", key=key, session=session))
        for i in range(0, len(x), at_once)
    ]
    seconds, found = time.perf_counter() - began, np.concatenate(parts)
    return {
        "network": name,
        "device": session.device,
        "parameter_set": model.program.parameters.name,
        "samples": len(x),
        "bootstraps": model.program.bootstraps,
        "integers": found.size,
        "wrong": int(np.count_nonzero(np.rint(found / scale) != np.rint(expected / scale))),
        "accuracy": float((found.argmax(axis=1) == classes).mean()),
        "seconds_a_sample": seconds / len(x),
        "seconds_of_one_alone": alone,
        "bootstraps_per_second": model.program.bootstraps * len(x) / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compile", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=100, help=f"at most {HELD_OUT}")
    parser.add_argument("--at-once", type=int, default=100, help="samples to a batch")
    arguments = parser.parse_args()
    if arguments.what == "compile":
        compile_networks(arguments.folder, arguments.networks)
        return
    for name in arguments.networks:
        print(
            json.dumps(run(arguments.folder, name, arguments.device, arguments.samples, arguments.at_once)), flush=True
        )


if __name__ == "__main__":
    main()
