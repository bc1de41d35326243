"""The steps before an estimator become the client's: the same features, the same refusals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import pandas as pd
from scipy import sparse
from sklearn import (
    compose,
    decomposition,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    neural_network,
    pipeline,
    preprocessing,
    tree,
)
from sklearn.feature_extraction import text

import cloakwork as cw
from cloakwork.models.client_steps import (
    input_steps_from_fields,
    run_input_steps,
    steps_to_fields,
)
from cloakwork.models.errors import CompileError, ShapeError, UnsupportedOperatorError
from cloakwork.training.importers.preprocessing import input_steps, split_pipeline

RNG = np.random.default_rng(4)
ROWS = 150
TABLE = pd.DataFrame(
    {
        "size": np.where(RNG.random(ROWS) < 0.1, np.nan, RNG.normal(3, 2, ROWS)),
        "kind": RNG.choice(["x", "y", "z"], ROWS),
        "age": RNG.normal(0, 50, ROWS),
        "level": RNG.choice([1, 2, 5], ROWS),
    }
)
TARGET = (TABLE["age"] > 0).to_numpy() ^ (TABLE["kind"] == "x").to_numpy()
NUMBERS = ["age", "size"]
make, columns = pipeline.make_pipeline, compose.ColumnTransformer
filled = make(impute.SimpleImputer(strategy="median"), preprocessing.StandardScaler())
hot = preprocessing.OneHotEncoder

CHAINS: dict[str, tuple[Any, ...]] = {
    "numbers": (columns([("n", filled, NUMBERS)]),),
    "one-hot": (columns([("n", filled, NUMBERS), ("k", hot(), ["kind", "level"])]),),
    "dropped": (columns([("k", hot(drop="first"), ["kind", "level"]), ("n", filled, NUMBERS)]),),
    "ordinal": (columns([("o", preprocessing.OrdinalEncoder(), ["kind"]), ("n", filled, NUMBERS)]),),
    "rest": (columns([("n", filled, NUMBERS), ("x", "drop", ["kind"])], remainder="passthrough"),),
    "scaled after": (columns([("k", hot(), ["kind"]), ("n", filled, NUMBERS)]), preprocessing.MinMaxScaler()),
    "robust": (columns([("n", filled, NUMBERS)]), preprocessing.RobustScaler(), preprocessing.MaxAbsScaler()),
    "normalised": (columns([("n", filled, NUMBERS), ("p", "passthrough", [3])]), preprocessing.Normalizer("l1")),
    "selected": (
        columns([("n", filled, NUMBERS), ("k", hot(), ["kind"])]),
        feature_selection.SelectKBest(k=3),
        preprocessing.StandardScaler(),
    ),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
def test_the_client_makes_the_features_of_the_pipeline(chain: tuple[Any, ...]) -> None:
    fitted = make(*chain, linear_model.LogisticRegression(max_iter=1000)).fit(TABLE, TARGET)
    steps, last = split_pipeline(fitted)
    assert last is fitted[-1]
    expected = fitted[:-1].transform(TABLE)
    found = run_input_steps(steps, TABLE)
    np.testing.assert_allclose(found, expected.toarray() if hasattr(expected, "toarray") else expected, atol=1e-9)
    travelled = input_steps_from_fields(steps_to_fields(steps))
    np.testing.assert_array_equal(run_input_steps(travelled, TABLE), found)
    compiled = cw.compile(fitted, TABLE)
    assert (compiled.predict(TABLE) == fitted.predict(TABLE)).mean() >= 0.99


# --- categories, missing ones among them ---

HOLES = TABLE.assign(
    kind=TABLE["kind"].where(RNG.random(ROWS) > 0.2, np.nan),
    rare=RNG.choice(list("abcdefg"), ROWS, p=[0.03, 0.3, 0.02, 0.3, 0.05, 0.2, 0.1]),
    whole=pd.array([None if i % 7 == 0 else i % 5 for i in range(ROWS)], dtype="Int64"),
)
UNSEEN = pd.concat([HOLES, HOLES.head(9).assign(kind="w", rare="z", level=9)], ignore_index=True)
ordinal, imputer = preprocessing.OrdinalEncoder, impute.SimpleImputer
OWN_NUMBER: dict[str, Any] = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
ENCODERS: dict[str, tuple[Any, list[str]]] = {
    "rare ones share a number": (ordinal(min_frequency=20, **OWN_NUMBER), ["rare"]),
    "rare ones by a share": (ordinal(min_frequency=0.1, **OWN_NUMBER), ["rare", "level"]),
    "three numbers": (ordinal(max_categories=3, **OWN_NUMBER), ["rare", "kind"]),
    "rare ones share a column": (hot(min_frequency=20, handle_unknown="infrequent_if_exist"), ["rare"]),
    "a warning": (hot(max_categories=3, handle_unknown="warn"), ["rare"]),
    "no rare ones": (hot(min_frequency=1, handle_unknown="infrequent_if_exist"), ["rare", "kind"]),
    "the rare column dropped": (hot(min_frequency=9, drop="first", handle_unknown="ignore"), ["rare"]),
    "missing is a column": (hot(handle_unknown="ignore"), ["kind", "rare"]),
    "missing and dropped": (hot(drop="first", handle_unknown="ignore"), ["kind"]),
    "missing has a number": (ordinal(encoded_missing_value=-2, **OWN_NUMBER), ["kind", "level"]),
    "missing stays, then is filled": (make(ordinal(**OWN_NUMBER), imputer(strategy="median")), ["kind"]),
    "unseen is missing, then filled": (
        make(ordinal(handle_unknown="use_encoded_value", unknown_value=np.nan), imputer(strategy="constant", fill_value=7)),
        ["kind", "rare"],
    ),
    "the most frequent text": (make(imputer(strategy="most_frequent"), hot(handle_unknown="ignore")), ["kind", "rare"]),
    "a text of its own": (make(imputer(strategy="constant", fill_value="none"), ordinal(**OWN_NUMBER)), ["kind"]),
    "imputed twice": (make(imputer(strategy="most_frequent"), imputer(strategy="most_frequent"), hot(handle_unknown="ignore")), ["kind"]),
    "imputed numbers": (make(imputer(strategy="most_frequent"), hot(handle_unknown="ignore")), ["whole", "level"]),
    "scaled codes": (make(ordinal(encoded_missing_value=9, **OWN_NUMBER), preprocessing.StandardScaler()), ["kind", "rare"]),
}  # fmt: skip


@pytest.mark.parametrize("target", [TARGET, TABLE["level"], TABLE["age"]], ids=["binary", "classes", "values"])
def test_categories_as_means_of_the_target(target: Any) -> None:
    """For unseen ones the mean of all."""
    parts = [("t", preprocessing.TargetEncoder(), ["kind", "rare"]), ("n", filled, NUMBERS)]
    agrees(columns(parts).fit(HOLES, target), UNSEEN)


def agrees(fitted: Any, samples: Any) -> None:
    """The client's numbers are those of the transformer."""
    steps = input_steps_from_fields(json.loads(json.dumps(steps_to_fields(input_steps([fitted], missing=True)))))
    expected = fitted.transform(samples)
    expected = np.asarray(expected.toarray() if hasattr(expected, "toarray") else expected, dtype=float)
    np.testing.assert_allclose(run_input_steps(steps, samples), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore")  # of scikit-learn: unknown categories
@pytest.mark.parametrize("name", ENCODERS)
def test_categories_get_the_numbers_of_the_encoder(name: str) -> None:
    encoder, own = ENCODERS[name]
    parts = [("e", encoder, own), ("n", filled, NUMBERS)]
    agrees(columns(parts).fit(HOLES), UNSEEN)


@pytest.mark.parametrize(
    "estimator", [linear_model.LogisticRegression(), neural_network.MLPClassifier(4, solver="lbfgs", max_iter=3000)]
)
def test_categories_that_no_calibration_sample_has_count(estimator: Any) -> None:
    fitted = make(columns([("k", hot(), ["kind"]), ("n", filled, NUMBERS)]), estimator).fit(TABLE, TARGET)
    compiled = cw.compile(fitted, TABLE[TABLE["kind"] != "x"])
    found, expected = (each.predict(TABLE) for each in (compiled, fitted))
    assert (found == expected).mean() >= 0.97


def test_none_nan_and_na_are_one_missing_value() -> None:
    fitted = make(imputer(strategy="most_frequent"), hot()).fit(HOLES[["kind"]])
    steps = input_steps([fitted])
    rows = np.array([["x"], [np.nan], [None], [pd.NA]], dtype=object)
    found = run_input_steps(steps, rows)
    np.testing.assert_array_equal(
        found[1:], np.repeat(fitted.transform(HOLES[HOLES["kind"].isna()][["kind"]].head(1)).toarray(), 3, axis=0)
    )
    both = pd.DataFrame({"kind": pd.Series(["x", None, np.nan, "y"] * 5, dtype=object)})
    for encoder in (hot(), make(imputer(strategy="most_frequent"), hot())):
        with pytest.raises(UnsupportedOperatorError, match="one kind of missing value|fill value = None"):
            input_steps([encoder.fit(both)])


def test_an_encoder_without_a_rule_refuses_missing_values_as_unseen_ones() -> None:
    steps = input_steps([ordinal().fit(TABLE[["kind"]])])
    with pytest.raises(ShapeError, match=r"column 'kind' has a category .*\(row 1\)"):
        run_input_steps(steps, np.array([["x"], [None]], dtype=object))


@pytest.mark.parametrize("values", ["Float64", "Int64", "boolean", "float64"])
def test_nullable_columns_of_pandas(values: str) -> None:
    whole = pd.array([None if i % 4 == 0 else i % 2 for i in range(100)], dtype=values)
    table = pd.DataFrame({"a": whole, "b": np.linspace(0, 1, 100)})
    agrees(imputer().fit(table), table)
    y = np.arange(100) % 3 > 0
    fitted = ensemble.HistGradientBoostingClassifier(max_iter=3).fit(table, y)
    assert (cw.compile(fitted, table).predict(table) == fitted.predict(table)).all()


def test_texts_that_nothing_encodes_are_named() -> None:
    table = TABLE[["age", "kind"]].assign(kind=TABLE["kind"].astype("category"))
    fitted = ensemble.HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype").fit(table, TARGET)
    with pytest.raises(UnsupportedOperatorError, match="categorical_features .* encode categories"):
        cw.compile(fitted, table)
    numbers = tree.DecisionTreeClassifier().fit(TABLE[["age"]], TARGET)
    with pytest.raises(CompileError, match="got texts or categories; encode them .* OneHotEncoder"):
        cw.compile(numbers, TABLE[["kind"]])
    with pytest.raises(UnsupportedOperatorError, match=r"imputes texts \('x'\).* no encoder takes"):
        input_steps([imputer(strategy="most_frequent").fit(TABLE[["kind"]])])


# --- missing numbers ---


@pytest.mark.filterwarnings("ignore")  # of scikit-learn: columns without values
@pytest.mark.parametrize(
    "transformer",
    [
        imputer(strategy="constant", fill_value=-1.5),
        imputer(strategy="constant", fill_value=0),
        imputer(add_indicator=True),
        imputer(keep_empty_features=True),
        make(imputer(), imputer(strategy="median"), preprocessing.StandardScaler()),
        make(
            preprocessing.FunctionTransformer(np.tanh), imputer(fill_value=0.5, strategy="constant", add_indicator=True)
        ),
        impute.MissingIndicator(features="all"),
        pipeline.FeatureUnion([("m", impute.MissingIndicator()), ("i", imputer())], transformer_weights={"m": 3}),
    ],
    ids=repr,
)
def test_missing_numbers_are_filled_and_told(transformer: Any) -> None:
    x = np.where(RNG.random((50, 4)) < 0.3, np.nan, RNG.normal(size=(50, 4)))
    x[:, 2] = np.nan
    x[:, 3] = 1.5
    agrees(transformer.fit(x), x)


def test_trees_take_what_is_missing_beside_imputed_columns() -> None:
    parts = [("i", imputer(), ["size"]), ("o", ordinal(), ["kind"]), ("p", "passthrough", ["age"])]
    table = HOLES.assign(age=HOLES["age"].where(RNG.random(ROWS) > 0.3, np.nan))
    fitted = make(columns(parts), ensemble.HistGradientBoostingClassifier(max_iter=3)).fit(table, TARGET)
    compiled = cw.compile(fitted, table)
    assert (compiled.predict(table) == fitted.predict(table)).mean() >= 0.98


# --- scalers ---


@pytest.mark.parametrize(
    "scaler",
    [
        preprocessing.StandardScaler(),
        preprocessing.StandardScaler(with_mean=False),
        preprocessing.StandardScaler(with_std=False),
        preprocessing.MinMaxScaler((-1, 3)),
        preprocessing.MinMaxScaler(clip=True),
        preprocessing.RobustScaler(),
        preprocessing.MaxAbsScaler(),
        make(preprocessing.MinMaxScaler(), preprocessing.StandardScaler(), preprocessing.RobustScaler()),
        make(imputer(), preprocessing.StandardScaler()),
    ],
    ids=repr,
)
def test_scaled_numbers_are_those_of_scikit_learn_to_the_last_bit(scaler: Any) -> None:
    """Histogram boosting has thresholds that are scaled training values themselves: a bit decides."""
    x = np.random.default_rng(1).normal(3, 20, (400, 3))
    fitted = scaler.fit(x)
    z = np.concatenate([x, x * 1.7])
    np.testing.assert_array_equal(run_input_steps(input_steps([fitted]), z), fitted.transform(z))


@pytest.mark.parametrize("as_table", [np.asarray, pd.DataFrame])
def test_samples_of_float32_are_prepared_in_float32(as_table: Any) -> None:
    """As in scikit-learn, whose trees compare what came of them in training."""
    x = as_table(np.random.default_rng(1).normal(3, 20, (400, 3)).astype(np.float32))
    for transformer in (
        make(preprocessing.MinMaxScaler(), preprocessing.StandardScaler(), preprocessing.FunctionTransformer(np.tanh)),
        columns([("s", preprocessing.StandardScaler(), [2, 0]), ("p", preprocessing.PowerTransformer(), [1])]),
        pipeline.FeatureUnion(
            [("m", preprocessing.MaxAbsScaler()), ("n", make(imputer(), preprocessing.StandardScaler()))]
        ),
    ):
        fitted = transformer.fit(x)
        expected, found = fitted.transform(x), run_input_steps(input_steps([fitted]), x)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.asarray(expected))


def test_histogram_boosting_behind_a_scaler_decides_ties_alike() -> None:
    x = np.random.default_rng(1).normal(size=(300, 4))
    y = x[:, 0] + x[:, 1] * x[:, 2] > 0
    fitted = make(preprocessing.StandardScaler(), ensemble.HistGradientBoostingClassifier(max_iter=10)).fit(x, y)
    compiled = cw.compile(fitted, x, thresholds="client")
    assert (compiled.predict(x) == fitted.predict(x)).all()


# --- columns ---

CHOICES: dict[str, Any] = {
    "names": slice("size", "age"),
    "first names": slice(None, "kind"),
    "numbers": slice(0, 3, 2),
    "mask": [False, True, True, False],
    "negative": [-1, 0],
    "function": compose.make_column_selector(dtype_include=float),
    "one": ["age"],
    "nothing": [],
}


@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES.keys())
def test_columns_are_chosen_as_scikit_learn_does(chosen: Any) -> None:
    table = TABLE.assign(kind=TABLE["level"] * 2.5)
    parts = [("a", imputer(), chosen), ("b", "drop", ["level"])]
    fitted = columns(parts, remainder=imputer(strategy="median"), transformer_weights={"a": 0.3}).fit(table)
    agrees(fitted, table)


# --- classes of the user's ---


class Clipped(preprocessing.StandardScaler):
    def transform(self, X: Any, copy: Any = None) -> Any:
        return np.clip(super().transform(X), -0.5, 0.5)


class Cut(text.CountVectorizer):
    def build_analyzer(self) -> Any:
        return lambda document: document.split("-")


class Fewer(feature_selection.SelectKBest):
    def _get_support_mask(self) -> Any:
        return super()._get_support_mask()

    def transform(self, X: Any) -> Any:
        return -super().transform(X)


class Patient(preprocessing.StandardScaler):
    """Trains otherwise alone."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(2 * X, y)


def test_what_a_class_of_the_users_does_is_not_guessed() -> None:
    x = RNG.normal(size=(60, 3))
    for step in (Clipped(), Fewer(k=2), make(Clipped())):
        fitted = make(step, linear_model.LogisticRegression()).fit(x, x[:, 0] > 0)
        with pytest.raises(UnsupportedOperatorError, match="by its own '(transform|_get_support_mask)'"):
            cw.compile(fitted, x)
    with pytest.raises(UnsupportedOperatorError, match="Cut extends CountVectorizer by its own 'build_analyzer'"):
        input_steps([Cut().fit(["a-b", "c-d"])])
    agrees(Patient().fit(x), x)


def test_sparse_samples() -> None:
    x = RNG.normal(size=(100, 3)) * (RNG.random((100, 3)) < 0.4)
    fitted = linear_model.LogisticRegression().fit(sparse.csr_matrix(x), x[:, 0] > 0)
    for each in (sparse.csr_matrix(x), sparse.csc_array(x)):
        compiled = cw.compile(fitted, each)
        np.testing.assert_array_equal(compiled.predict(each), fitted.predict(x))


def test_a_pipeline_of_numbers_ends_in_a_tree() -> None:
    x = RNG.normal(size=(100, 3))
    fitted = make(preprocessing.StandardScaler(), tree.DecisionTreeClassifier(max_depth=3)).fit(x, x[:, 0] > 0)
    compiled = cw.compile(fitted, x, thresholds="client")
    assert (compiled.predict(x) == fitted.predict(x)).all()
    for nothing in ("passthrough", make("passthrough", None)):
        assert split_pipeline(make(nothing, tree.DecisionTreeClassifier()))[0] == ()
    empty = make(feature_selection.SelectKBest(k=0), tree.DecisionTreeClassifier())
    empty[0].fit(x, x[:, 0] > 0)
    with pytest.raises(UnsupportedOperatorError, match="its steps leave no column"):
        split_pipeline(empty)


def test_unseen_categories_and_missing_values() -> None:
    unseen = TABLE.head(4).assign(kind="w")
    refusing = make(*CHAINS["one-hot"], linear_model.LogisticRegression()).fit(TABLE, TARGET)
    with pytest.raises(
        ShapeError, match=r"column 'kind' has a category .* \(row 0\); expected one of \['x', 'y', 'z'\]"
    ):
        cw.compile(refusing, TABLE).predict(unseen)
    parts = [("n", filled, NUMBERS), ("k", hot(handle_unknown="ignore"), ["kind"])]
    ignoring = make(columns(parts), linear_model.LogisticRegression()).fit(TABLE, TARGET)
    compiled = cw.compile(ignoring, TABLE)
    assert (compiled.predict(unseen) == ignoring.predict(unseen)).all()
    partly = make(columns([("n", filled, ["size"]), ("p", "passthrough", ["age"])]), linear_model.LogisticRegression())
    compiled = cw.compile(partly.fit(TABLE, TARGET), TABLE)
    with pytest.raises(ShapeError, match="column 'age' has missing values .* replaced in other columns only"):
        compiled.predict(TABLE.assign(age=np.nan))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (decomposition.NMF(2), "NMF has no counterpart at the client; nothing of a name like it can run"),
        (impute.SimpleImputer(missing_values=2.0), "missing_values = 2.0 .* mark missing values by NaN"),
        (preprocessing.FunctionTransformer(np.sort), "func = .* apply it to the table yourself"),
        (impute.KNNImputer(), "KNNImputer has no counterpart at the client"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_the_client_cannot_do_is_named(step: Any, message: str) -> None:
    x = np.round(np.abs(RNG.normal(size=(60, 3))) + 1)
    fitted = make(step, linear_model.LogisticRegression()).fit(x, x[:, 0] > 1.5)
    with pytest.raises(UnsupportedOperatorError, match=message):
        cw.compile(fitted, x)
