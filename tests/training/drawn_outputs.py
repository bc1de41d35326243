"""Fitted regressors of several targets, drawn from a seed: trees and sums of trees of four libraries, targets of very different scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from sklearn import ensemble, multioutput, tree

ROWS: Final = 300
FRESH: Final = 200  # samples that nothing has seen


@dataclass(frozen=True)
class SeveralTargets:
    name: str
    fitted: Any
    scales: np.ndarray  # of the targets
    samples: np.ndarray  # that it was fitted on
    fresh: np.ndarray


def drawn_targets(seed: int) -> SeveralTargets:
    rng = np.random.default_rng([20261128, 37, seed])
    features, targets = int(rng.integers(2, 6)), int(rng.integers(2, 5))
    table = rng.normal(size=(ROWS + FRESH, features))
    if rng.random() < 0.3:
        table = np.rint(3 * table)
    scales = 10.0 ** rng.uniform(-3, 3, targets)
    offsets = rng.choice([0.0, 1.0, 10.0], targets) * scales
    values = np.stack([_target(rng, table) for _ in range(targets)], axis=1) * scales + offsets
    name = str(rng.choice(sorted(_REGRESSORS)))
    depth, count, random = (int(number) for number in rng.integers([2, 2, 0], [6, 16, 1 << 16]))
    fitted = _REGRESSORS[name](depth, count, random)
    fitted.fit(table[:ROWS], values[:ROWS])
    return SeveralTargets(name, fitted, scales, table[:ROWS], table[ROWS:])


def _target(rng: np.random.Generator, table: np.ndarray) -> np.ndarray:
    """A smooth function of two columns, or one of few values."""
    first, second = rng.choice(table.shape[1], 2, replace=False)
    x, y = table[:, first], table[:, second]
    kinds = (
        x + 0.5 * y,
        np.sin(x) + 0.3 * y**2,
        np.where(x > 0, 1.0, -1.0) * np.where(y > 0.5, 2.0, 1.0),
        np.abs(x) - (y > 0),
    )
    return kinds[int(rng.integers(len(kinds)))]


def _several(member: Any) -> multioutput.MultiOutputRegressor:
    return multioutput.MultiOutputRegressor(member)


_REGRESSORS: Final[dict[str, Callable[[int, int, int], Any]]] = {
    "tree": lambda depth, _, seed: tree.DecisionTreeRegressor(max_depth=depth, random_state=seed),
    "extra tree": lambda depth, _, seed: tree.ExtraTreeRegressor(max_depth=depth, random_state=seed),
    "forest": lambda depth, count, seed: ensemble.RandomForestRegressor(count, max_depth=depth, random_state=seed),
    "extra trees": lambda depth, count, seed: ensemble.ExtraTreesRegressor(count, max_depth=depth, random_state=seed),
    "bagging": lambda depth, count, seed: ensemble.BaggingRegressor(
        tree.DecisionTreeRegressor(max_depth=depth), count, random_state=seed
    ),
    "trees apart": lambda depth, _, seed: _several(tree.DecisionTreeRegressor(max_depth=depth, random_state=seed)),
    "boosting": lambda depth, count, seed: _several(
        ensemble.GradientBoostingRegressor(n_estimators=count, max_depth=min(depth, 3), random_state=seed)
    ),
    "histograms": lambda depth, count, seed: _several(
        ensemble.HistGradientBoostingRegressor(max_iter=count, max_depth=depth, learning_rate=0.3, random_state=seed)
    ),
}
if find_spec("xgboost"):
    import xgboost

    _REGRESSORS["xgboost"] = lambda depth, count, seed: xgboost.XGBRegressor(
        n_estimators=count, max_depth=depth, random_state=seed, n_jobs=1
    )
if find_spec("lightgbm"):
    import lightgbm

    _REGRESSORS["lightgbm"] = lambda depth, count, seed: _several(
        lightgbm.LGBMRegressor(n_estimators=count, max_depth=depth, learning_rate=0.3, verbose=-1, n_jobs=1)
    )
if find_spec("catboost"):
    import catboost

    _REGRESSORS["catboost"] = lambda depth, count, seed: catboost.CatBoostRegressor(
        iterations=count, depth=depth, learning_rate=0.5, loss_function="MultiRMSE", verbose=0, thread_count=1,
        random_seed=seed, allow_writing_files=False,
    )  # fmt: skip
