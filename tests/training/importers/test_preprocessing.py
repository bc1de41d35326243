"""The steps before an estimator become the client's: the same features, the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import pandas as pd
from sklearn import compose, decomposition, feature_selection, impute, linear_model, pipeline, preprocessing, tree

from cloakwork.models.client_steps import (
    input_steps_from_fields,
    run_input_steps,
    steps_to_fields,
)
from cloakwork.models.errors import ShapeError, UnsupportedOperatorError
from cloakwork.training.importers.preprocessing import split_pipeline
from cloakwork.training.sklearn_compiler import compile_estimator

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
    compiled = compile_estimator(fitted, TABLE)
    assert (compiled.predict(TABLE) == fitted.predict(TABLE)).mean() >= 0.99


def test_a_pipeline_of_numbers_ends_in_a_tree() -> None:
    x = RNG.normal(size=(100, 3))
    fitted = make(preprocessing.StandardScaler(), tree.DecisionTreeClassifier(max_depth=3)).fit(x, x[:, 0] > 0)
    compiled = compile_estimator(fitted, x, comparisons="client")
    assert (compiled.predict(x) == fitted.predict(x)).all()
    assert split_pipeline(make("passthrough", tree.DecisionTreeClassifier()))[0] == ()


def test_unseen_categories_and_missing_values() -> None:
    unseen = TABLE.head(4).assign(kind="w")
    refusing = make(*CHAINS["one-hot"], linear_model.LogisticRegression()).fit(TABLE, TARGET)
    with pytest.raises(
        ShapeError, match=r"column 'kind' has a category .* \(row 0\); expected one of \['x', 'y', 'z'\]"
    ):
        compile_estimator(refusing, TABLE).predict(unseen)
    parts = [("n", filled, NUMBERS), ("k", hot(handle_unknown="ignore"), ["kind"])]
    ignoring = make(columns(parts), linear_model.LogisticRegression()).fit(TABLE, TARGET)
    compiled = compile_estimator(ignoring, TABLE)
    assert (compiled.predict(unseen) == ignoring.predict(unseen)).all()
    partly = make(columns([("n", filled, ["size"]), ("p", "passthrough", ["age"])]), linear_model.LogisticRegression())
    compiled = compile_estimator(partly.fit(TABLE, TARGET), TABLE)
    with pytest.raises(ShapeError, match="column 'age' has missing values .* replaced in other columns only"):
        compiled.predict(TABLE.assign(age=np.nan))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (decomposition.NMF(2), "NMF has no counterpart at the client; nothing of a name like it can run"),
        (preprocessing.MinMaxScaler(clip=True), "clip = True cannot be imported"),
        (impute.SimpleImputer(add_indicator=True), "add_indicator or keep_empty_features"),
        (preprocessing.FunctionTransformer(np.sort), "func = .* apply it to the table yourself"),
        (columns([("n", "passthrough", [0])], transformer_weights={"n": 2.0}), "transformer_weights"),
        (hot(max_categories=2), "min_frequency or max_categories"),
        (hot(handle_unknown="infrequent_if_exist"), "handle_unknown"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_the_client_cannot_do_is_named(step: Any, message: str) -> None:
    x = np.round(np.abs(RNG.normal(size=(60, 3))) + 1)
    fitted = make(step, linear_model.LogisticRegression()).fit(x, x[:, 0] > 1.5)
    with pytest.raises(UnsupportedOperatorError, match=message):
        compile_estimator(fitted, x)
