"""One task by cloakwork and by other libraries, in turns, each in a fresh process on one core: a row of Markdown for each.

`python compare_libraries.py linear --peer tenseal=ENV/bin/python --peer concrete_ml=ENV/bin/python`. Tasks: `linear`, a logistic regression on the
breast cancer table, whose weights all get; `tree`, a decision tree of depth 3 on iris, which each fits by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

HERE = Path(__file__).resolve().parent
SHOWN = (
    "keys_s",
    "encrypt_ms",
    "evaluate_ms",
    "decrypt_ms",
    "upload_bytes",
    "request_bytes",
    "answer_bytes",
    "same_labels",
)


def write_task(name: str, folder: Path) -> None:
    x, y = load_breast_cancer(return_X_y=True) if name == "linear" else load_iris(return_X_y=True)
    train, test, labels, _ = train_test_split(x, y, random_state=1)
    arrays = {}
    if name == "linear":
        scaler = StandardScaler().fit(train)
        train, test = scaler.transform(train), scaler.transform(test)
        fitted = LogisticRegression(max_iter=1000).fit(train, labels)
        arrays = {"weights": fitted.coef_[0], "bias": fitted.intercept_}
    else:
        fitted = DecisionTreeClassifier(max_depth=3, random_state=1).fit(train, labels)
    np.savez(folder / "task.npz", train=train, test=test, labels=labels, expected=fitted.predict(test), **arrays)


def run_once(python: str, script: str, task: str, folder: Path, core: int) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if script != "ours.py":
        environment.pop("PYTHONPATH", None)
    command = ["taskset", "--cpu-list", str(core), python, str(HERE / script), task, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    facts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("linear", "tree"))
    parser.add_argument("--peer", action="append", default=[], help="NAME=PYTHON, of peer_NAME.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0)
    options = parser.parse_args()
    sides = {"cloakwork": (sys.executable, "ours.py")}
    for peer in options.peer:
        name, _, python = peer.partition("=")
        sides[name] = (python, f"peer_{name}.py")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        write_task(options.task, Path(folder))
        for _ in range(options.rounds):
            for name, (python, script) in sides.items():
                results[name].append(run_once(python, script, options.task, Path(folder), options.core))
    print(f"| {options.task} | set | {' | '.join(SHOWN)} |\n|---|---|{'---|' * len(SHOWN)}")
    for name, runs in results.items():
        cells = [
            f"{statistics.median(run[key] for run in runs):.3g}"
            if key.endswith(("_s", "_ms"))
            else f"{runs[-1][key]:,}"
            for key in SHOWN
        ]
        print(f"| {name} | {runs[-1]['set']} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
