"""What it costs to keep the thresholds of trees from clients: agreement, bytes, look-ups and seconds beside the same model with thresholds disclosed.

    OMP_NUM_THREADS=1 python tests/benchmarks/secret_thresholds.py [--ways "grid 6" "server 8"] [--turns 12]     # Markdown; five minutes

An iris tree, a forest of 20 trees and XGBoost (20 trees of depth 4) on breast cancer, as the package splits these tables. Labels of held-out samples
are those of the program in clear. Samples are really encrypted, one at a time on one CPU thread, all ways of a model taking turns. Seconds are
processor time of an answer, ratios are formed within a turn; medians are given. Every decrypted label is compared with the program's in clear.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import xgboost
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime import Runtime
from cloakwork.training.tabular_data import load_tabular

MODELS: Final[dict[str, tuple[str, Any]]] = {
    "iris tree": ("iris", DecisionTreeClassifier(random_state=0)),
    "breast cancer forest, 20 trees": ("breast-cancer", RandomForestClassifier(20, max_depth=6, random_state=0)),
    "XGBoost, 20 trees of depth 4": ("breast-cancer", xgboost.XGBClassifier(n_estimators=20, max_depth=4, n_jobs=1)),
}
DISCLOSED: Final = "client"
WAYS: Final = (DISCLOSED, "grid 6", "grid 8", "grid 16", "server 6", "server 8")
HEAD: Final = (
    "way", "bootstraps by level", "bytes up", "seconds", "ratio", "labels of the model", "failure of a sample", "wrong", "the specification tells",
)  # fmt: skip


@dataclass
class Way:
    """One program of a model, with what it takes to run it."""

    model: CompiledModel
    key: ClientKey
    runtime: Runtime
    bytes_up: int = 0
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)

    def answer(self, x: Any) -> None:
        """One sample [1, features]."""
        sample = self.model.client.encrypt(self.key, x)
        start = time.process_time()
        answer = self.runtime.answer(sample)
        self.seconds.append(time.process_time() - start)
        self.bytes_up = len(sample.to_bytes())
        self.wrong += int(self.model.client.decrypt(self.key, answer)[0] != self.model.predict(x)[0])


def ways_of(estimator: Any, data: Any, names: list[str]) -> dict[str, Way]:
    """Keys are shared by programs of one parameter set."""
    keys: dict[str, tuple[ClientKey, Session]] = {}
    found = {}
    for name in names:
        comparisons, *bits = name.split()
        options: dict[str, Any] = {"grid_bits": int(bits[0])} if bits else {}
        model = cw.compile(estimator, data.train_x, thresholds=comparisons, **options)
        params = model.program.parameters
        if params.name not in keys:
            key = ClientKey.generate(params)
            keys[params.name] = key, Session(key.evaluation_keys())
        key, session = keys[params.name]
        found[name] = Way(model, key, Runtime(model.program, session))
    return found


def measured(title: str, names: list[str], turns: int) -> Iterator[tuple[str, ...]]:
    source, estimator = MODELS[title]
    data = load_tabular(source)
    estimator.fit(data.train_x, data.train_y)
    ways = ways_of(estimator, data, names)
    for turn in range(turns):
        for way in ways.values():
            way.answer(data.test_x[turn % len(data.test_x)][None])
    labels = np.asarray(estimator.predict(data.test_x))
    for name, way in ways.items():
        report = way.model.report()
        agreement = float((np.asarray(way.model.predict(data.test_x)) == labels).mean())
        ratio = np.median(np.array(way.seconds) / np.array(ways[DISCLOSED].seconds))
        yield (
            f"{name}, {report['parameter_set']}",
            " + ".join(map(str, report["bootstraps_per_level"])),
            f"{way.bytes_up:,}",
            f"{np.median(way.seconds):.3g}",
            f"{ratio:.2f}",
            f"{100 * agreement:.1f} % of {len(labels)}",
            f"2^{report['p_fail_log2']:.1f}",
            f"{way.wrong} of {turns}",
            ", ".join(f"{each['count']} {each['what']}" for each in report["discloses"]),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="*", choices=WAYS[1:], default=list(WAYS[1:]), help="beside the disclosed one")
    parser.add_argument("--turns", type=int, default=12, help="encrypted samples of each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong = 0
    for title in MODELS:
        rows = list(measured(title, [DISCLOSED, *options.ways], options.turns))
        wrong += sum(int(row[-2].split()[0]) for row in rows)
        print(f"\n{title}\n\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
        for row in rows:
            print(f"| {' | '.join(row)} |", flush=True)
    sys.exit(f"{wrong} labels are wrong" if wrong else 0)


if __name__ == "__main__":
    main()
