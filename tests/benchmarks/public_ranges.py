"""What round ends of ranges cost: held-out samples that decide as the fitted model, with the ends of the samples and with ends rounded outwards.

    python tests/benchmarks/public_ranges.py > FILE.json     # one JSON object a line; a minute

Linear models and perceptrons of 16 neurons, after a scaler and without, on the package's four tables (training/tabular_data.py). Perceptrons are
trained from five seeds and simulated with the noise of encryption, each held-out sample five times.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import cloakwork as cw
from cloakwork.models.arrays import Reals
from cloakwork.models.criteria.feature_ranges import public_ends
from cloakwork.training.tabular_data import NAMES, load_tabular

SEEDS, TIMES = 5, 5
USERS = ("cloakwork.models.linear.linear_model", "cloakwork.models.passes.rescale_input")


def as_seen(low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Not rounded; constants as ever."""
    ends = public_ends(low, high)
    return np.where(high > low, low, ends[0]), np.where(high > low, high, ends[1])


@contextmanager
def exact_ends() -> Iterator[None]:
    with patch(f"{USERS[0]}.public_ends", as_seen), patch(f"{USERS[1]}.public_ends", as_seen):
        yield


def estimators(name: str) -> list[Any]:
    if name == "network":
        return [MLPClassifier((16,), max_iter=400, random_state=seed) for seed in range(SEEDS)]
    return [LogisticRegression(max_iter=5000) if name == "logistic regression" else LinearSVC(max_iter=5000)]


def measured(data: str, name: str, scaled: bool) -> dict[str, Any]:
    table = load_tabular(data)
    found: dict[str, list[float]] = {"exact": [], "rounded": []}
    sets: dict[str, list[str]] = {"exact": [], "rounded": []}
    for last in estimators(name):
        estimator = (make_pipeline(StandardScaler(), last) if scaled else last).fit(table.train_x, table.train_y)
        x = np.repeat(table.test_x, TIMES if name == "network" else 1, axis=0)
        for ends in found:
            if ends == "exact":
                with exact_ends():
                    compiled = cw.compile(estimator, table.train_x, accuracy=0.9)
            else:
                compiled = cw.compile(estimator, table.train_x, accuracy=0.9)
            labels = compiled.predict(x, how="simulate", seed=1)
            found[ends].append(float((labels == estimator.predict(x)).mean()))
            sets[ends].append(compiled.program.parameters.name)
    agreement = {f"agreement_{ends}": round(float(np.mean(values)), 4) for ends, values in found.items()}
    return {"data": data, "model": name, "scaled": scaled, **agreement, **{f"sets_{e}": s for e, s in sets.items()}}


def main() -> None:
    warnings.simplefilter("ignore")
    for name in ("logistic regression", "support vectors", "network"):
        for data in NAMES:
            for scaled in (False, True):
                print(json.dumps(measured(data, name, scaled)), flush=True)


if __name__ == "__main__":
    main()
