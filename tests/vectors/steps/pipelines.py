"""Transformers and estimators of scikit-learn drawn at random: numbers, categories or texts, through what the importers read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import (
    calibration,
    compose,
    decomposition,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    multiclass,
    multioutput,
    naive_bayes,
    pipeline,
    preprocessing,
    random_projection,
    svm,
    tree,
)
from sklearn.feature_extraction import text

make = pipeline.make_pipeline
ROWS = 40
COLOURS = np.array(["red", "green", "blue", "naïve ½"], dtype=object)
WORDS = """the quick Fox jumps over a lazy dog's café İstanbul ΣΊΣΥΦΟΣ straße ﬁne 42 x² snake_case हिन्दी 東京 don't É é ½""".split()  # noqa: SIM905


@dataclass(frozen=True)
class Drawn:
    """Fitted transformers, one after the other, and samples to ask."""

    kind: str
    transformers: list[Any]
    samples: Any

    def transform(self, x: Any) -> np.ndarray:
        for each in self.transformers:
            x = each.transform(x)
        return np.asarray(x.toarray() if hasattr(x, "toarray") else x, dtype=np.float64)


def draw(seed: int) -> Drawn | None:
    """None where scikit-learn itself refuses what was drawn."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["numbers", "numbers", "holes", "categories", "texts"]))
    x = {"numbers": numbers, "holes": holes, "categories": categories, "texts": texts}[kind](rng, ROWS)
    middle = {"numbers": of_numbers, "holes": of_holes, "categories": of_categories, "texts": of_texts}[kind](rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            make(*middle, linear_model.Ridge()).fit(x, truth(x, rng))
        except (TypeError, ValueError):
            return None
    return Drawn(kind, middle, probes(kind, rng, x))


# --- data ---


def numbers(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Of different size, one of few values, one with the same value in most samples."""
    columns = [
        rng.normal(3, 2, rows),
        np.exp(rng.normal(0, 1.5, rows)),
        rng.integers(0, 4, rows).astype(float),
        np.where(rng.random(rows) < 0.6, 0.25, rng.random(rows)),
    ]
    return np.stack(columns, axis=1)


def holes(rng: np.random.Generator, rows: int) -> np.ndarray:
    x = numbers(rng, rows)
    return np.where(rng.random(x.shape) < 0.15, np.nan, x)


def categories(rng: np.random.Generator, rows: int) -> np.ndarray:
    x = numbers(rng, rows)[:, :3].astype(object)
    colours = rng.choice(COLOURS, (rows, 1))
    colours[rng.random((rows, 1)) < 0.1] = np.nan
    return np.concatenate([x, colours, rng.choice([3, 7, 20], (rows, 1)).astype(object)], axis=1)


def texts(rng: np.random.Generator, rows: int) -> list[str]:
    spaces = [" ", "  ", "\t", "\u2003", "\x1d", ", "]
    return [
        str(rng.choice(spaces)).join(rng.choice(WORDS, rng.integers(0, 12)))
        for _ in range(rows)
    ]  # fmt: skip


def probes(kind: str, rng: np.random.Generator, x: Any) -> Any:
    """The training data, values between and far beyond them, and on the ends."""
    if kind == "texts":
        return [*x[:2], *texts(rng, 2), "", "fox " * 40, "ΟΔΟΣ ΟΔΟΣ", "\ufeffzero\u200bwidth", "😀 Ⅷ ½½"]
    if kind == "categories":
        fresh = categories(rng, 4)
        fresh[:, :2] = fresh[:, :2] * 3 - 1
        fresh[0, 3], fresh[1, 4] = "mauve", 21
        return np.concatenate([x[:2], fresh])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = [np.nanmin(x, axis=0, keepdims=True), np.nanmax(x, axis=0, keepdims=True)]
    return np.concatenate([x[:3], x[:1] + 1e-9, numbers(rng, 2) * 1.7, *ends])


def truth(x: Any, rng: np.random.Generator) -> np.ndarray:
    """[samples] reals that hang on the samples."""
    if isinstance(x, list):
        return np.array([len(each) + 3 * each.count("o") for each in x]) + rng.random(len(x))
    table = np.nan_to_num(np.asarray(x[:, :3], dtype=float))
    return table[:, 0] + np.log1p(table[:, 1]) - table[:, 2] + 0.2 * rng.normal(size=len(table))


# --- transformers ---


def of_numbers(rng: np.random.Generator) -> list[Any]:
    return [TRANSFORMERS[name](rng) for name in rng.choice(list(TRANSFORMERS), rng.integers(1, 4))]


def of_holes(rng: np.random.Generator) -> list[Any]:
    before = [
        preprocessing.StandardScaler(),
        quantile(rng),
        preprocessing.PowerTransformer(standardize=bool(rng.integers(2))),
    ]
    fill = impute.SimpleImputer(strategy=str(rng.choice(["mean", "median", "most_frequent"])))
    return [*before[: rng.integers(0, 3)], fill, *of_numbers(rng)]


def of_categories(rng: np.random.Generator) -> list[Any]:
    encoder = ENCODERS[rng.integers(len(ENCODERS))]
    parts = [("c", encoder, [3, 4]), ("n", make(*of_numbers(rng)), [0, 1, 2]), ("same", "passthrough", [1])]
    chosen = parts[: rng.integers(2, 4)]
    return [compose.ColumnTransformer(chosen, sparse_threshold=0)]


UNSEEN: dict[str, Any] = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
ENCODERS: list[Any] = [
    preprocessing.OneHotEncoder(handle_unknown="ignore", drop=None),
    preprocessing.OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=22),
    preprocessing.OrdinalEncoder(**UNSEEN, max_categories=3, encoded_missing_value=-2),
    make(preprocessing.OrdinalEncoder(**UNSEEN), impute.SimpleImputer(), preprocessing.StandardScaler()),
    make(impute.SimpleImputer(strategy="most_frequent"), preprocessing.OneHotEncoder(handle_unknown="ignore")),
    make(impute.SimpleImputer(strategy="constant", fill_value="none"), preprocessing.OrdinalEncoder(**UNSEEN)),
]


def of_texts(rng: np.random.Generator) -> list[Any]:
    analyzer = str(rng.choice(["word", "word", "char", "char_wb"]))
    shortest = int(rng.integers(1, 3))
    options = {
        "analyzer": analyzer,
        "ngram_range": (shortest, shortest + int(rng.integers(0, 2))),
        "lowercase": bool(rng.integers(2)),
        "strip_accents": rng.choice([None, "ascii", "unicode"]),
    }
    if analyzer == "word":
        options["token_pattern"] = str(
            rng.choice([r"(?u)\b\w\w+\b", r"(?u)\b\w+\b", r"\S+", r"[a-z]+", r"(?u)\b[a-zA-Z]\w+\b"])
        )
        options["stop_words"] = [None, ["the", "fox"]][rng.integers(2)]
    known: dict[str, Any] = {**options, "max_features": int(rng.integers(8, 30)), "binary": bool(rng.integers(2))}
    vectorizer = [
        text.CountVectorizer(**known),
        text.TfidfVectorizer(**known, sublinear_tf=bool(rng.integers(2)), norm=rng.choice([None, "l1", "l2"])),
        text.HashingVectorizer(**options, n_features=int(rng.integers(5, 40)), alternate_sign=bool(rng.integers(2))),
    ][rng.integers(3)]
    return [vectorizer, decomposition.TruncatedSVD(3, random_state=0)] if rng.random() < 0.3 else [vectorizer]


def quantile(rng: np.random.Generator) -> Any:
    output = str(rng.choice(["uniform", "normal"]))
    return preprocessing.QuantileTransformer(n_quantiles=int(rng.integers(2, 9)), output_distribution=output)


def box_cox(_: np.random.Generator) -> Any:
    return make(preprocessing.MinMaxScaler((1, 2)), preprocessing.PowerTransformer(method="box-cox"))


def function(rng: np.random.Generator) -> Any:
    """Of the whole line, so that every step may come before."""
    names = [
        "arcsinh", "arctan", "tanh", "cbrt", "cos", "exp2", "square", "floor", "rint", "sign", "absolute", "deg2rad", "trunc", "expm1",
    ]  # fmt: skip
    bounded = preprocessing.StandardScaler() if rng.random() < 0.5 else preprocessing.MaxAbsScaler()
    return make(bounded, preprocessing.FunctionTransformer(getattr(np, str(rng.choice(names)))))


def logarithm(rng: np.random.Generator) -> Any:
    name = str(rng.choice(["log", "log1p", "log2", "log10", "sqrt", "reciprocal"]))
    return make(preprocessing.MinMaxScaler((0.5, 9)), preprocessing.FunctionTransformer(getattr(np, name)))


def splines(rng: np.random.Generator) -> Any:
    return preprocessing.SplineTransformer(
        int(rng.integers(4, 7)),
        degree=int(rng.integers(1, 4)),
        knots=str(rng.choice(["uniform", "quantile"])) if rng.random() < 0.1 else "uniform",
        extrapolation=str(rng.choice(["constant", "continue", "periodic"])),
        include_bias=bool(rng.integers(2)),
    )


def bins(rng: np.random.Generator) -> Any:
    return preprocessing.KBinsDiscretizer(
        int(rng.integers(2, 5)), encode=str(rng.choice(["ordinal", "onehot-dense"])), strategy="uniform"
    )


def union(rng: np.random.Generator) -> Any:
    return pipeline.FeatureUnion([("p", decomposition.PCA(2)), ("f", function(rng)), ("x", "passthrough")])


TRANSFORMERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "standard": lambda _: preprocessing.StandardScaler(),
    "min-max": lambda _: preprocessing.MinMaxScaler((-1, 2)),
    "robust": lambda _: preprocessing.RobustScaler(),
    "norm": lambda rng: preprocessing.Normalizer(str(rng.choice(["l1", "l2", "max"]))),
    "yeo-johnson": lambda rng: preprocessing.PowerTransformer(standardize=bool(rng.integers(2))),
    "box-cox": box_cox,
    "quantile": quantile,
    "bins": bins,
    "polynomials": lambda rng: preprocessing.PolynomialFeatures(2, interaction_only=bool(rng.integers(2))),
    "splines": splines,
    "function": function,
    "logarithm": logarithm,
    "binarizer": lambda _: preprocessing.Binarizer(threshold=0.3),
    "pca": lambda rng: decomposition.PCA(2, whiten=bool(rng.integers(2))),
    "svd": lambda _: decomposition.TruncatedSVD(2, random_state=0),
    "projection": lambda _: random_projection.SparseRandomProjection(3, density=0.7, random_state=0),
    "best": lambda _: feature_selection.SelectPercentile(feature_selection.f_classif, percentile=70),
    "union": union,
}


# --- estimators ---


def fitted(name: str, several: bool) -> tuple[Any, np.ndarray]:
    """An estimator of numbers and samples. Args: several: of three classes instead of two."""
    rng = np.random.default_rng([len(name), several])
    x = np.random.default_rng(len(name)).normal(size=(ROWS, 3))
    values = x @ np.array([1.0, -0.5, 0.25]) + 0.2 * rng.normal(size=ROWS)
    y: np.ndarray = np.array(["no", "yes", "peut-être"])[
        np.digitize(values, np.quantile(values, [0.3, 0.7] if several else [0.5]))
    ]
    if name in REGRESSORS:
        y = np.abs(values) + 0.1
    elif name in SEVERAL:
        both = np.stack([values, -values + 0.3 * rng.normal(size=ROWS)], axis=1)
        y = both if name.endswith("values") else (both > np.median(both, axis=0)).astype(int)
    return ESTIMATORS[name].fit(x, y), x[:6]


ZERO: dict[str, Any] = {"random_state": 0}
logistic = linear_model.LogisticRegression(max_iter=400)
scaled = make(preprocessing.StandardScaler(), linear_model.LogisticRegression(max_iter=400))
small, forest = (
    tree.DecisionTreeClassifier(max_depth=3, **ZERO),
    ensemble.RandomForestClassifier(4, max_depth=3, **ZERO),
)
boosted = ensemble.GradientBoostingClassifier(n_estimators=3, max_depth=2, **ZERO)
ridge = linear_model.RidgeClassifier()
CLASSIFIERS: dict[str, Any] = {
    "logistic": logistic,
    "machine": svm.LinearSVC(**ZERO),
    "huber": linear_model.SGDClassifier(loss="modified_huber", **ZERO),
    "gaussian": naive_bayes.GaussianNB(var_smoothing=1e-2),
    "tree": small,
    "forest": forest,
    "boosted": boosted,
    "histograms": ensemble.HistGradientBoostingClassifier(max_iter=4, max_depth=3, **ZERO),
    "vote": ensemble.VotingClassifier([("l", logistic), ("r", ridge), ("s", scaled)]),
    "vote soft": ensemble.VotingClassifier([("l", logistic), ("s", scaled)], voting="soft", weights=[1, 3]),
    "vote trees": ensemble.VotingClassifier([("f", forest), ("b", boosted), ("t", small)], voting="soft"),
    "stack": ensemble.StackingClassifier([("l", logistic), ("r", ridge)], cv=2),
    "stack trees": ensemble.StackingClassifier([("b", boosted), ("f", forest)], cv=2),
    "calibrated": calibration.CalibratedClassifierCV(svm.LinearSVC(**ZERO), cv=2),
    "calibrated isotonic": calibration.CalibratedClassifierCV(boosted, cv=2, method="isotonic"),
    "bagged": ensemble.BaggingClassifier(logistic, 3, max_features=0.8, **ZERO),
    "rest": multiclass.OneVsRestClassifier(logistic),
    "adaboost": ensemble.AdaBoostClassifier(n_estimators=4, **ZERO),
}
REGRESSORS: dict[str, Any] = {
    "ridge": linear_model.Ridge(),
    "poisson": linear_model.PoissonRegressor(),
    "tree of values": tree.DecisionTreeRegressor(max_depth=3, **ZERO),
    "forest of values": ensemble.RandomForestRegressor(3, max_depth=3, **ZERO),
    "vote of values": ensemble.VotingRegressor([("r", linear_model.Ridge()), ("p", linear_model.PoissonRegressor())]),
    "outliers": ensemble.IsolationForest(n_estimators=5, max_samples=30, **ZERO),
}
SEVERAL: dict[str, Any] = {
    "logistic of several": multioutput.MultiOutputClassifier(logistic),
    "forest of several": forest,
    "ridge of several values": multioutput.MultiOutputRegressor(linear_model.Ridge()),
    "tree of several values": tree.DecisionTreeRegressor(max_depth=2, **ZERO),
}
ESTIMATORS = CLASSIFIERS | REGRESSORS | SEVERAL
