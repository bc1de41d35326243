"""What ensembles of 100 and 1,000 trees take: seconds to compile, look-ups, bytes of a real answer, labels as the fitted model's.

    python tests/benchmarks/large_ensembles.py xgboost-1000 --encrypted     # one JSON object on standard output

The table is scikit-learn's `make_classification`, 4,000 samples of 57 columns to fit and 600 held out, compared with the models' own thresholds,
or on a public grid (`--comparisons server --grid-bits 8`). Encrypted: one sample on the CPU, one thread.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import xgboost
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime import Runtime

FITTED = 4000
ENSEMBLES: dict[str, Callable[[], Any]] = {
    "boosting-100": lambda: GradientBoostingClassifier(n_estimators=100, random_state=0),
    "boosting-1000": lambda: GradientBoostingClassifier(n_estimators=1000, random_state=0),
    "forest-100": lambda: RandomForestClassifier(100, random_state=0),
    "forest-1000-of-depth-8": lambda: RandomForestClassifier(1000, max_depth=8, random_state=0),
    "lightgbm-100": lambda: lightgbm.LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1),
    "lightgbm-1000": lambda: lightgbm.LGBMClassifier(n_estimators=1000, n_jobs=1, verbose=-1),
    "xgboost-100": lambda: xgboost.XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1),
    "xgboost-1000": lambda: xgboost.XGBClassifier(n_estimators=1000, max_depth=6, n_jobs=1),
}


def measured(name: str, encrypted: bool, **options: Any) -> dict[str, Any]:
    """Args: options: of `cloakwork.compile`."""
    x, y = make_classification(4600, 57, n_informative=20, flip_y=0.05, random_state=0)
    estimator = ENSEMBLES[name]().fit(x[:FITTED], y[:FITTED])
    start, start_cpu = time.perf_counter(), time.process_time()
    model = cw.compile(estimator, x[:FITTED], **options)
    seconds = {"compile_seconds": time.perf_counter() - start, "compile_cpu_seconds": time.process_time() - start_cpu}
    report, held_out = model.report(), x[FITTED:]
    labels = np.asarray(estimator.predict(held_out))
    record = {
        "ensemble": name,
        **seconds,
        **{fact: report[fact] for fact in ("parameter_set", "bootstraps", "outputs", "leaf_bits", "depth")},
        "bootstraps_per_level": report["bootstraps_per_level"],
        "request_bytes_stated": report["input_ciphertext_bytes"],
        "answer_bytes_stated": report["output_ciphertext_bytes"],
        "agreement": float((np.asarray(model.predict(held_out)) == labels).mean()),
    }
    return {**record, **_answered(model, held_out[:1], labels[:1])} if encrypted else record


def _answered(model: CompiledModel, x: np.ndarray, label: np.ndarray) -> dict[str, Any]:
    """One sample, really encrypted."""
    key = ClientKey.generate(model.program.parameters)
    runtime = Runtime(model.program, Session(key.evaluation_keys()))
    sample = model.client.encrypt(key, x)
    start = time.perf_counter()
    answer = runtime.answer(sample)
    return {
        "seconds": time.perf_counter() - start,
        "request_bytes": len(sample.to_bytes()),
        "answer_bytes": len(answer.to_bytes()),
        "label_is_right": bool(model.client.decrypt(key, answer)[0] == label[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ensemble", choices=sorted(ENSEMBLES), help="which one")
    parser.add_argument("--comparisons", choices=("client", "grid", "server"), default="client")
    parser.add_argument("--grid-bits", type=int, help="of a public grid")
    parser.add_argument("--encrypted", action="store_true", help="evaluate a sample really encrypted, too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    options = {"thresholds": arguments.comparisons, "grid_bits": arguments.grid_bits}
    given = {name: value for name, value in options.items() if value is not None}
    print(json.dumps(measured(arguments.ensemble, arguments.encrypted, **given)))


if __name__ == "__main__":
    main()
