"""Faults are put into the importers: the user's own fitted object finds each, and says which step is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import compose, ensemble, linear_model, neural_network, pipeline, preprocessing

import cloakwork as cw
from cloakwork.estimators import LogisticRegression
from cloakwork.models.compile import tables
from cloakwork.models.errors import AccuracyError, CompileError, ImportFaultError
from cloakwork.training import sklearn_compiler
from cloakwork.training.importers import linear, networks, sklearn_trees
from cloakwork.training.importers import preprocessing as steps
from cloakwork.training.original import without_program

RNG = np.random.default_rng(20261128)
X = RNG.normal((0, 5, 0), size=(200, 3))
VALUES = X[:, 0] + 0.5 * (X[:, 1] - 5) * X[:, 2]
LABELS = np.array(["no", "yes"])[(VALUES > 0).astype(int)]


def off_by_one_feature(monkeypatch: pytest.MonkeyPatch) -> Any:
    right = sklearn_trees.tree_nodes
    monkeypatch.setattr(sklearn_trees, "tree_nodes", lambda *a: right(*a).of_nodes(**swapped(right(*a))))
    return ensemble.RandomForestClassifier(4, max_depth=3, random_state=0).fit(X, LABELS)


def swapped(tree: Any) -> dict[str, Any]:
    return {
        "feature": np.where(tree.feature == 0, 2, tree.feature),
        "threshold": tree.threshold,
        "left": tree.left,
        "right": tree.right,
        "values": tree.values,
        "missing_left": tree.missing_left,
    }


def a_lost_intercept(monkeypatch: pytest.MonkeyPatch) -> Any:
    right = linear.linear_coefficients
    monkeypatch.setattr(linear, "linear_coefficients", lambda e: (right(e)[0], 0 * right(e)[1]))
    return linear_model.LogisticRegression().fit(X, LABELS)


def a_lost_link(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(linear, "linear_transform", lambda estimator, name: "none")
    return linear_model.PoissonRegressor().fit(X, np.exp(np.clip(VALUES, -2, 2)))


def another_activation(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(networks._ACTIVATIONS, "tanh", "Sigmoid")
    return neural_network.MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", max_iter=30, random_state=0).fit(
        X, VALUES
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fault", [off_by_one_feature, a_lost_intercept, a_lost_link, another_activation])
def test_an_estimator_that_is_imported_wrongly(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = fault(monkeypatch)
    with pytest.raises(ImportFaultError, match=f"the step that differs is {type(fitted).__name__} itself"):
        cw.compile(fitted, X)


def test_a_transformer_that_is_imported_wrongly_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = steps._READERS["StandardScaler"]
    monkeypatch.setitem(steps._READERS, "StandardScaler", lambda t, flow, recipe: right(t, flow, recipe)[::-1])
    fitted = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()).fit(X, LABELS)
    with pytest.raises(ImportFaultError, match="among the transformers before it"):
        cw.compile(fitted, X)


def test_faults_that_typical_samples_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Categories that nobody has seen count for nothing to scikit-learn."""
    frame = pd.DataFrame({"place": np.where(VALUES > 0, "north", "south"), "size": X[:, 0]})
    encoder = preprocessing.OneHotEncoder(handle_unknown="ignore")
    columns = compose.ColumnTransformer([("place", encoder, ["place"])], remainder="passthrough")
    fitted = pipeline.make_pipeline(columns, linear_model.LogisticRegression()).fit(frame, LABELS)
    assert cw.compile(fitted, frame).program.facts.original is not None
    right = tables.run_input_steps

    def wrong(chain: Any, samples: Any, *more: Any) -> Any:
        known = samples["place"].isin(["north", "south"]) if hasattr(samples, "columns") else True
        return right(
            chain,
            samples.assign(place=samples["place"].where(known, "north")) if hasattr(samples, "columns") else samples,
        )

    monkeypatch.setattr(tables, "run_input_steps", wrong)
    with pytest.raises(ImportFaultError, match="a sample at the edges of the samples"):
        cw.compile(fitted, frame)


def test_a_program_that_decides_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = linear_model.LogisticRegression().fit(X, LABELS)
    right = sklearn_compiler.compile_linear

    def other(model: Any, *arguments: Any, **options: Any) -> Any:
        return right(sklearn_compiler.replace(model, intercept=model.intercept + 1), *arguments, **options)

    monkeypatch.setattr(sklearn_compiler, "compile_linear", other)
    with pytest.raises(
        AccuracyError,
        match=r"decides as it on [0-9.]+ % of 200 samples \(at least .*gives yes where the model says no",
    ):
        cw.compile(fitted, X)


def test_cloakworks_own_estimators_are_asked_in_clear() -> None:
    """Compiled once more, they are not judged by the program that was made before."""
    fitted = LogisticRegression().fit(X, LABELS)
    fitted.compile(X)
    judge = without_program(pipeline.make_pipeline(preprocessing.StandardScaler().fit(X), fitted))
    assert hasattr(fitted, "compiled_")
    assert not hasattr(judge.steps[-1][1], "compiled_")
    assert str(fitted.compile(X)).startswith("as your model: 100.0 % of labels (200 samples, at least 98.7 %)")


def test_samples_without_the_names_that_steps_choose_columns_by() -> None:
    frame = pd.DataFrame(X, columns=["a b", "c", "d"])
    columns = compose.ColumnTransformer([("some", preprocessing.StandardScaler(), ["a b", "d"])])
    fitted = pipeline.make_pipeline(columns, linear_model.Ridge()).fit(frame, VALUES)
    with pytest.raises(ValueError, match="columns using strings"):
        fitted.predict(X)
    assert cw.compile(fitted, X).program.facts.original is not None


def test_samples_that_the_object_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, X: Any) -> Any:
        raise ValueError("not today")

    fitted = linear_model.LogisticRegression().fit(X, LABELS)
    monkeypatch.setattr(linear_model.LogisticRegression, "predict_proba", refuse)
    with pytest.raises(
        CompileError, match=r"LogisticRegression itself refuses these samples \(ValueError: not today\)"
    ):
        cw.compile(fitted, X)
