"""Multilayer perceptrons with an exact profile: the client rounds to the grid that the program assumes, so encrypted equals clear."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import pandas as pd
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cloakwork as cw
from cloakwork.estimators import MLPClassifier, MLPRegressor
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.client_steps import Columns, Quantise, Rescale
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CalibratedRangeWarning, ShapeError
from cloakwork.models.program.client_specification import ClientSpecification

TOY = "toy_two_limb"
EXACT: dict[str, Any] = {
    "precision": "exact_64", "sets": [TOY], "weight_bits": 2, "input_bits": 2, "activation_bits": 2, "accuracy": 0.0,
}  # fmt: skip
X, Y = datasets.load_iris(return_X_y=True)
X = X[:, :3]
OFF_GRID = X[::30] + 0.0137


@pytest.fixture(scope="module")
def encrypted() -> dict[str, Any]:
    key = ClientKey.generate(TOY)
    return {"how": "encrypted", "key": key, "session": Session(key.evaluation_keys())}


def fitted(kind: type, x: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return kind(hidden_layer_sizes=(3,), max_iter=60, random_state=0, solver="lbfgs").fit(x, y)


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_encrypted_equals_clear_between_grid_points(encrypted: dict[str, Any], kind: type) -> None:
    estimator = fitted(kind, X, Y)
    model = estimator.compile(X, **EXACT)
    assert [type(step) for step in model.program.input_steps] == [Columns, Quantise]
    assert model.program.output_unit > 0
    for output in ("scores", "labels"):
        clear = model.predict(OFF_GRID, output=output)
        np.testing.assert_array_equal(model.predict(OFF_GRID, "simulate", seed=1, output=output), clear)
        np.testing.assert_array_equal(model.predict(OFF_GRID, output=output, **encrypted), clear)
    grid = model.client.inputs(OFF_GRID) / model.program.input_steps[1].unit
    np.testing.assert_allclose(grid, np.rint(grid), atol=1e-9)
    np.testing.assert_array_equal(estimator.predict(OFF_GRID, **encrypted), estimator.predict(OFF_GRID))


def test_a_pipeline_scales_then_rounds(encrypted: dict[str, Any], tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["length", "width", "petal"])
    scaler = StandardScaler().fit(frame)
    pipeline = make_pipeline(scaler, fitted(MLPClassifier, scaler.transform(frame), Y))
    model = cw.compile(pipeline, frame, **EXACT)
    assert [type(step) for step in model.program.input_steps] == [
        Columns,
        Rescale,
        Quantise,
    ]  # the network has taken in means and scales
    some = frame.iloc[::40] + 0.0137
    clear = model.predict(some, output="scores")
    np.testing.assert_array_equal(model.predict(some, output="scores", **encrypted), clear)

    model.save(tmp_path / "mlp.clkm")
    loaded = CompiledModel.load(tmp_path / "mlp.clkm")
    np.testing.assert_array_equal(loaded.predict(some, output="scores"), clear)
    travelled = ClientSpecification.from_json(model.client.to_json())
    np.testing.assert_array_equal(travelled.phases(some), model.client.phases(some))

    some.iloc[0, 1] = 900.0
    for mode in ({}, encrypted):
        with pytest.warns(CalibratedRangeWarning, match=r"1 of 4 samples .*\(1 value in columns 'width'\)") as caught:
            found = loaded.predict(some, output="scores", **mode)
        assert len(caught) == 1
        np.testing.assert_array_equal(found[1:], clear[1:])
    with pytest.raises(ShapeError, match="column 'petal' has missing values"):
        loaded.predict(some.assign(petal=np.nan))


def test_classes_in_other_modes_are_those_of_the_scores(encrypted: dict[str, Any]) -> None:
    estimator = fitted(MLPClassifier, X, np.array(["setosa", "versicolor", "virginica"])[Y])
    model = estimator.compile(X, **EXACT)
    scores = model.predict(OFF_GRID, output="scores")
    np.testing.assert_array_equal(estimator.predict(OFF_GRID), estimator.classes_[scores.argmax(axis=1)])
    shares = estimator.predict_proba(OFF_GRID, **encrypted)
    np.testing.assert_array_equal(shares, estimator.predict_proba(OFF_GRID))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
