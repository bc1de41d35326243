"""Encrypted arg-max on many samples: gradient boosting of ten classes on scikit-learn's digits, labels only.

    python tests/benchmarks/encrypted_labels.py compile FOLDER            # fits and compiles, needs scikit-learn
    python tests/benchmarks/encrypted_labels.py run FOLDER --device cuda  # 1,000 samples really encrypted, one JSON object

`run` needs the package alone. `wrong` counts encrypted labels that differ from the clear quantised model's; `expected` are those of the
fitted model. Samples are the held-out ones first, then those that the model was fitted on.
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

ROUNDS, HELD_OUT = 50, 0.4


def compile_digits(folder: Path) -> None:
    from sklearn.datasets import load_digits
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=HELD_OUT, random_state=0, stratify=y)
    estimator = GradientBoostingClassifier(n_estimators=ROUNDS, random_state=0).fit(x_train, y_train)
    model = cw.compile(estimator, x_train, tell="labels")
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "digits.clkm")
    samples, classes = np.concatenate([x_test, x_train]), np.concatenate([y_test, y_train])
    expected = estimator.predict(samples)
    np.savez(folder / "samples.npz", x=samples, expected=expected, classes=classes, held_out=len(x_test))
    print(model)


def run(folder: Path, device: str, count: int) -> dict[str, object]:
    model = CompiledModel.load(folder / "digits.clkm")
    with np.load(folder / "samples.npz") as held:
        x, expected, classes = held["x"][:count], held["expected"][:count], held["classes"][:count]
    key = ClientKey.generate(model.program.parameters)
    session = Session(key.evaluation_keys(), device=device)
    model.predict(x[:1], "encrypted", key=key, session=session)  # what the first call prepares
    start = time.perf_counter()
    labels = np.asarray(model.predict(x, "encrypted", key=key, session=session))
    seconds = time.perf_counter() - start
    clear = np.asarray(model.predict(x))
    return {
        "device": session.device,
        "parameter_set": model.program.parameters.name,
        "samples": len(x),
        "bootstraps": model.program.bootstraps,
        "wrong": int(np.count_nonzero(labels != clear)),
        "agreement": float((labels == expected).mean()),
        "accuracy": float((labels == classes).mean()),
        "seconds": seconds,
        "bootstraps_per_second": model.program.bootstraps * len(x) / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compile", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.what == "compile":
        compile_digits(arguments.folder)
    else:
        print(json.dumps(run(arguments.folder, arguments.device, arguments.samples)))


if __name__ == "__main__":
    main()
