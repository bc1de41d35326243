"""Fitted estimators and pipelines drawn from a seed: tables of every kind, transformers, estimators of four libraries, odd options, files saved and
loaded. What is drawn is fitted as its owner would; options that a library itself refuses are drawn again."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pandas as pd
from sklearn import (
    compose,
    decomposition,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    naive_bayes,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.base import clone, is_classifier

ROWS: Final = 240
FRESH: Final = 400  # samples that nothing has seen
_TRIES: Final = 20


@dataclass(frozen=True)
class Stranger:
    name: str
    fitted: Any
    target: np.ndarray
    samples: Any  # that it was fitted on
    fresh: Any

    @property
    def classifies(self) -> bool:
        return bool(is_classifier(self.fitted))


def drawn_estimator(seed: int) -> Stranger:
    rng = np.random.default_rng([20261128, seed])
    for _ in range(_TRIES):
        kind = pick(rng, *_TABLES)
        table = _TABLES[kind](rng)
        target, y = _target(rng, table)
        steps = _transformers(rng, kind, table)
        last = pick(rng, *_estimators(target))(rng)
        made = pipeline.Pipeline([*steps, ("last", last)]) if steps else last
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fitted = _saved(rng, made.fit(_rows(table, 0, ROWS), y[:ROWS]))
                fitted.predict(_rows(table, ROWS, ROWS + FRESH))
            except Exception:  # whatever a library raises on options that do not go together
                continue
        shown = " ".join(repr(made).split())
        return Stranger(
            f"{kind}, {target}: {shown}", fitted, y[:ROWS], _rows(table, 0, ROWS), _rows(table, ROWS, ROWS + FRESH)
        )
    raise AssertionError(f"seed {seed}: nothing that can be fitted was drawn")


def smallest(stranger: Stranger, fails: Callable[[Stranger], bool]) -> Stranger:
    """The same with as few transformers as still fail."""
    steps = getattr(stranger.fitted, "steps", [])
    for i in range(len(steps) - 1):
        made = clone(pipeline.Pipeline([*steps[:i], *steps[i + 1 :]]))
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # a table that the rest does not take
            warnings.simplefilter("ignore")
            fitted = made.fit(stranger.samples, stranger.target)
            fewer = replace(stranger, name=" ".join(repr(made).split()), fitted=fitted)
            if fails(fewer):
                return smallest(fewer, fails)
    return stranger


def pick(rng: np.random.Generator, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _rows(table: Any, first: int, end: int) -> Any:
    return table.iloc[first:end] if hasattr(table, "iloc") else table[first:end]


# --- tables --------------------------------------------------------------------------------------------------------------------------


def _numbers(rng: np.random.Generator) -> np.ndarray:
    scales = 10.0 ** rng.integers(-2, 4, 4)
    return rng.normal(size=(ROWS + FRESH, 4)) * scales + rng.normal(size=4) * scales


def _skewed(rng: np.random.Generator) -> np.ndarray:
    return rng.gamma(1.5, 20.0, (ROWS + FRESH, 5))


def _whole(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 12, (ROWS + FRESH, 4)).astype(pick(rng, np.int64, np.int8, np.float32))


def _holes(rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random((ROWS + FRESH, 4)) < 0.1, np.nan, rng.normal(size=(ROWS + FRESH, 4)))


def _frame(rng: np.random.Generator, holes: bool = False) -> pd.DataFrame:
    count = ROWS + FRESH
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, count),
            "the income": np.round(rng.lognormal(3, 1, count), 1),
            "place": rng.choice(["north", "south", "east", "rare"], count, p=[0.4, 0.3, 0.28, 0.02]),
            "member": rng.random(count) < 0.3,
            "size": rng.choice([1.0, 2.0, 4.0], count),
        }
    )
    if holes:
        for name in ("the income", "place", "size"):
            frame.loc[rng.random(count) < 0.1, name] = None
    return frame


_TABLES: Final[dict[str, Callable[[np.random.Generator], Any]]] = {
    "numbers": _numbers,
    "skewed numbers": _skewed,
    "whole numbers": _whole,
    "numbers with holes": _holes,
    "a frame": _frame,
    "a frame with holes": lambda rng: _frame(rng, holes=True),
}


def _target(rng: np.random.Generator, table: Any) -> tuple[str, np.ndarray]:
    numbers = table.select_dtypes("number") if hasattr(table, "columns") else table
    x = np.nan_to_num(np.asarray(numbers, dtype=np.float64))
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-12)
    value = x[:, 0] + 0.7 * x[:, 1] * x[:, -1] + 0.2 * rng.normal(size=len(x))
    kind = pick(rng, "two classes", "three classes", "values", "counts", "several values")
    if kind == "two classes":
        return kind, np.asarray(pick(rng, [0, 1], ["no", "yes"], [-1, 1], [False, True]))[(value > 0).astype(int)]
    if kind == "three classes":
        return kind, np.asarray(pick(rng, [0, 1, 2], ["a", "b", "c"], [5, 7, 9]))[np.digitize(value, [-0.6, 0.6])]
    if kind == "counts":
        return kind, rng.poisson(np.exp(np.clip(value, -2, 2))).astype(float)
    if kind == "several values":
        return kind, np.stack([1e-4 * x[:, 0], 1000.0 * np.log(np.abs(x[:, 1]) + 1), value], axis=1)[
            :, : pick(rng, 2, 3)
        ]
    return kind, value * pick(rng, 1.0, 100.0) + pick(rng, 0.0, 1000.0)


# --- transformers --------------------------------------------------------------------------------------------------------------------


def _transformers(rng: np.random.Generator, kind: str, table: Any) -> list[tuple[str, Any]]:
    if hasattr(table, "columns"):
        return [("columns", _of_columns(rng, kind.endswith("holes")))]
    steps: list[tuple[str, Any]] = []
    if kind.endswith("holes") and rng.random() < 0.7:
        steps.append(("fill", impute.SimpleImputer(strategy=pick(rng, "mean", "median", "most_frequent"))))
    for number in range(int(rng.integers(0, 3))):
        steps.append((f"step {number}", _of_numbers(rng)))
    return steps


def _of_numbers(rng: np.random.Generator) -> Any:
    return pick(
        rng,
        preprocessing.StandardScaler(with_mean=pick(rng, True, False), with_std=pick(rng, True, False)),
        preprocessing.MinMaxScaler(clip=pick(rng, True, False)),
        preprocessing.RobustScaler(),
        preprocessing.MaxAbsScaler(),
        preprocessing.PowerTransformer(),
        preprocessing.QuantileTransformer(n_quantiles=30, output_distribution=pick(rng, "uniform", "normal")),
        preprocessing.KBinsDiscretizer(4, encode=pick(rng, "onehot", "ordinal", "onehot-dense"), strategy="uniform"),
        preprocessing.SplineTransformer(n_knots=4, extrapolation=pick(rng, "constant", "linear", "continue")),
        preprocessing.PolynomialFeatures(2, interaction_only=pick(rng, True, False)),
        preprocessing.Normalizer(),
        decomposition.PCA(3, whiten=pick(rng, True, False)),
        feature_selection.SelectKBest(k=2),
        pipeline.FeatureUnion([("scaled", preprocessing.StandardScaler()), ("few", decomposition.PCA(2))]),
    )


def _of_columns(rng: np.random.Generator, holes: bool) -> Any:
    numbers: list[tuple[str, Any]] = (
        [("fill", impute.SimpleImputer(strategy=pick(rng, "mean", "constant")))] if holes else []
    )
    numbers.append(("scale", pick(rng, preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), "passthrough")))
    texts: list[tuple[str, Any]] = []
    if holes and rng.random() < 0.7:
        texts.append(("fill", impute.SimpleImputer(strategy=pick(rng, "most_frequent", "constant"))))
    if rng.random() < 0.6:
        encoder: Any = preprocessing.OneHotEncoder(
            handle_unknown=pick(rng, "ignore", "error", "infrequent_if_exist"),
            drop=pick(rng, None, None, "first"),
            min_frequency=pick(rng, None, 20),
            sparse_output=pick(rng, True, False),
        )
    else:
        encoder = preprocessing.OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, max_categories=pick(rng, None, 3)
        )
    texts.append(("encode", encoder))
    return compose.ColumnTransformer(
        [
            ("numbers", pipeline.Pipeline(numbers), ["age", "the income", "size"]),
            ("texts", pipeline.Pipeline(texts), ["place"]),
        ],
        remainder=pick(rng, "drop", "passthrough"),
        sparse_threshold=pick(rng, 0.3, 1.0),
    )


# --- estimators ----------------------------------------------------------------------------------------------------------------------

Make = Callable[[np.random.Generator], Any]


def _estimators(target: str) -> list[Make]:
    if target.endswith("classes"):
        return [*_CLASSIFIERS, *_BOOSTED_CLASSIFIERS]
    if target == "several values":
        return _OF_SEVERAL
    return [*_REGRESSORS, *_BOOSTED, *(_COUNTERS if target == "counts" else [])]


def _small(rng: np.random.Generator, **more: Any) -> dict[str, Any]:
    return {"n_estimators": int(rng.integers(1, 6)), "max_depth": int(rng.integers(1, 4)), "random_state": 0, **more}


_CLASSIFIERS: Final[list[Make]] = [
    lambda rng: linear_model.LogisticRegression(C=pick(rng, 0.1, 1.0), class_weight=pick(rng, None, "balanced")),
    lambda rng: linear_model.RidgeClassifier(),
    lambda rng: svm.LinearSVC(),
    lambda rng: linear_model.SGDClassifier(loss=pick(rng, "log_loss", "hinge", "modified_huber"), random_state=0),
    lambda rng: naive_bayes.GaussianNB(),
    lambda rng: tree.DecisionTreeClassifier(max_depth=4, random_state=0, class_weight=pick(rng, None, "balanced")),
    lambda rng: ensemble.RandomForestClassifier(**_small(rng)),
    lambda rng: ensemble.ExtraTreesClassifier(**_small(rng)),
    lambda rng: ensemble.GradientBoostingClassifier(**_small(rng), loss=pick(rng, "log_loss", "exponential")),
    lambda rng: ensemble.HistGradientBoostingClassifier(max_iter=4, max_depth=3, early_stopping=pick(rng, True, False)),
    lambda rng: ensemble.AdaBoostClassifier(n_estimators=4, random_state=0),
    lambda rng: ensemble.BaggingClassifier(tree.DecisionTreeClassifier(max_depth=2), 3, random_state=0),
    lambda rng: ensemble.VotingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))],
        voting=pick(rng, "soft", "hard"),
    ),
]
_REGRESSORS: Final[list[Make]] = [
    lambda rng: linear_model.Ridge(),
    lambda rng: linear_model.HuberRegressor(max_iter=1000),
    lambda rng: svm.LinearSVR(max_iter=5000),
    lambda rng: tree.DecisionTreeRegressor(max_depth=4, random_state=0),
    lambda rng: ensemble.RandomForestRegressor(**_small(rng)),
    lambda rng: ensemble.GradientBoostingRegressor(**_small(rng), loss=pick(rng, "squared_error", "huber", "quantile")),
    lambda rng: ensemble.HistGradientBoostingRegressor(max_iter=4, max_depth=3),
    lambda rng: ensemble.BaggingRegressor(tree.DecisionTreeRegressor(max_depth=2), 3, random_state=0),
]
_COUNTERS: Final[list[Make]] = [
    lambda rng: linear_model.PoissonRegressor(),
    lambda rng: linear_model.TweedieRegressor(power=pick(rng, 0, 1, 1.5), link=pick(rng, "auto", "log")),
    lambda rng: ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=4, max_depth=3),
    lambda rng: neural_network.MLPRegressor(hidden_layer_sizes=(6,), max_iter=60, random_state=0, loss="poisson"),
]
_OF_SEVERAL: Final[list[Make]] = [
    lambda rng: tree.DecisionTreeRegressor(max_depth=pick(rng, 4, 6), random_state=0),
    lambda rng: ensemble.RandomForestRegressor(**_small(rng)),
    lambda rng: ensemble.ExtraTreesRegressor(n_estimators=10, max_depth=6, random_state=0),
    lambda rng: linear_model.Ridge(),
]
_BOOSTED_CLASSIFIERS: list[Make] = []
_BOOSTED: list[Make] = []

if find_spec("xgboost") is not None:
    import xgboost

    def _xgboost(rng: np.random.Generator) -> dict[str, Any]:
        return _small(
            rng,
            booster=pick(rng, "gbtree", "gbtree", "dart", "gblinear"),
            base_score=pick(rng, None, 0.3),
            num_parallel_tree=pick(rng, 1, 2),
            learning_rate=pick(rng, 0.3, 1.0),
        )

    _BOOSTED_CLASSIFIERS.append(
        lambda rng: xgboost.XGBClassifier(**_xgboost(rng), scale_pos_weight=pick(rng, None, 3.0))
    )
    _BOOSTED.append(
        lambda rng: xgboost.XGBRegressor(
            **_xgboost(rng),
            objective=pick(rng, "reg:squarederror", "count:poisson", "reg:tweedie", "reg:absoluteerror"),
        )
    )
if find_spec("lightgbm") is not None:
    import lightgbm

    def _lightgbm(rng: np.random.Generator) -> dict[str, Any]:
        kind = pick(rng, "gbdt", "gbdt", "rf", "dart")
        sampled = {"bagging_freq": 1, "bagging_fraction": 0.7} if kind == "rf" else {}
        return _small(
            rng, boosting_type=kind, verbose=-1, linear_tree=pick(rng, False, False, True), n_jobs=1, **sampled
        )

    _BOOSTED_CLASSIFIERS.append(
        lambda rng: lightgbm.LGBMClassifier(**_lightgbm(rng), class_weight=pick(rng, None, "balanced"))
    )
    _BOOSTED.append(
        lambda rng: lightgbm.LGBMRegressor(
            **_lightgbm(rng),
            objective=pick(rng, "regression", "poisson", "tweedie", "quantile", "regression_l1", "huber"),
        )
    )
if find_spec("catboost") is not None:
    import catboost

    def _catboost(rng: np.random.Generator) -> dict[str, Any]:
        return {
            "iterations": int(rng.integers(1, 6)),
            "depth": int(rng.integers(1, 4)),
            "verbose": 0,
            "allow_writing_files": False,
            "random_seed": 0,
            "thread_count": 1,
        }

    _BOOSTED_CLASSIFIERS.append(
        lambda rng: catboost.CatBoostClassifier(**_catboost(rng), auto_class_weights=pick(rng, None, "Balanced"))
    )
    _BOOSTED_CLASSIFIERS.append(
        lambda rng: catboost.CatBoostClassifier(
            **_catboost(rng), loss_function=pick(rng, "MultiClass", "MultiClassOneVsAll")
        )
    )
    _BOOSTED.append(
        lambda rng: catboost.CatBoostRegressor(
            **_catboost(rng),
            loss_function=pick(
                rng, "RMSE", "Poisson", "Tweedie:variance_power=1.5", "MAE", "Quantile:alpha=0.7", "Huber:delta=2"
            ),
        )
    )


def _saved(rng: np.random.Generator, fitted: Any) -> Any:
    """Sometimes as its library reads it from a file that it wrote."""
    name = type(fitted).__name__
    if not name.startswith(("XGB", "CatBoost")) or rng.random() < 0.5:
        return fitted
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / ("model.json" if name.startswith("XGB") else "model.cbm"))
        fitted.save_model(path)
        again = type(fitted)()
        again.load_model(path)
    return again
