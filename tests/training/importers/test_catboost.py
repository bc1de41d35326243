"""CatBoost's losses, labels and missing values: what is imported answers as its own `predict` and `predict_proba`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
catboost = pytest.importorskip("catboost", reason="`pip install catboost` runs this")

import pandas as pd  # noqa: E402
from sklearn import ensemble  # noqa: E402

import cloakwork as cw  # noqa: E402
from cloakwork.models.errors import ShapeError, UnsupportedOperatorError  # noqa: E402
from cloakwork.training.importers import import_estimator  # noqa: E402

RNG = np.random.default_rng(7)
X = RNG.normal(size=(160, 4))
VALUES = X[:, 0] + 0.5 * X[:, 1] * X[:, 2]
SEVERAL = np.stack([VALUES > 0, VALUES > 0.5, X[:, 3] > 0], axis=1).astype(int)
CLASSES = np.digitize(VALUES, [-0.5, 0.5])
OPTIONS: dict[str, Any] = {
    "iterations": 4,
    "depth": 3,
    "learning_rate": 0.4,
    "verbose": 0,
    "allow_writing_files": False,
}


def regressor(loss: str, **options: Any) -> Any:
    return catboost.CatBoostRegressor(loss_function=loss, **{**OPTIONS, **options})


def classifier(loss: str, **options: Any) -> Any:
    return catboost.CatBoostClassifier(loss_function=loss, **{**OPTIONS, **options})


def agrees(fitted: Any, x: np.ndarray = X, missing: bool = False) -> None:
    model: Any = import_estimator(fitted, missing=missing)
    expected, found = np.asarray(fitted.predict(x)), model.evaluate(x)
    assert found.shape == expected.shape
    if not hasattr(fitted, "predict_proba"):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        return
    assert (found == expected.astype(found.dtype)).all()
    np.testing.assert_allclose(model.probabilities(x), fitted.predict_proba(x), atol=1e-9)


@pytest.mark.parametrize(
    "loss",
    ["RMSE", "Quantile:alpha=0.8", "Poisson", "Tweedie:variance_power=1.3", "LogLinQuantile", "RMSEWithUncertainty", "MultiQuantile:alpha=0.1,0.9"],
)  # fmt: skip
def test_what_predict_makes_of_the_sum(loss: str) -> None:
    agrees(regressor(loss).fit(X, np.exp(VALUES)))


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise", "Lossguide"])
def test_several_values_and_trees_of_other_shapes(policy: str) -> None:
    agrees(regressor("MultiRMSE", grow_policy=policy).fit(X, np.stack([VALUES, X[:, 3]], axis=1)))
    scaled = regressor("RMSE", grow_policy=policy).fit(X, VALUES)
    scaled.set_scale_and_bias(2.0, 0.3)
    agrees(scaled)


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        ("Logloss", CLASSES > 0),
        ("Logloss", np.array([-2.5, 1.0])[(CLASSES > 0).astype(int)]),
        ("CrossEntropy", 1 / (1 + np.exp(-VALUES))),
        ("Focal:focal_alpha=0.25;focal_gamma=2.0", CLASSES > 1),
        ("MultiClass", np.array(["low", "mid", "high"])[CLASSES]),
        ("MultiClass", np.array([7, -1, 0])[CLASSES]),
        ("MultiClassOneVsAll", CLASSES),
        ("MultiLogloss", SEVERAL),
        ("MultiCrossEntropy", 0.8 * SEVERAL),
    ],
)
def test_probabilities_and_labels_of_each_loss(loss: str, labels: np.ndarray) -> None:
    agrees(classifier(loss).fit(X, labels))


@pytest.mark.parametrize("threshold", [0.2, 0.7, 0.0, 1.0])
def test_where_labels_are_decided_can_be_moved(threshold: float) -> None:
    fitted = classifier("Logloss").fit(X, CLASSES > 0)
    fitted.set_probability_threshold(threshold)
    agrees(fitted)
    fitted.set_probability_threshold(None)
    agrees(fitted)


@pytest.mark.parametrize("mode", ["Min", "Max"])
def test_missing_values_go_where_the_mode_says(mode: str) -> None:
    x = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    x[:, 3] = X[:, 3]  # never in training
    fitted = regressor("RMSE", nan_mode=mode).fit(x, VALUES + np.isnan(x[:, 0]))
    probes = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    agrees(fitted, probes, missing=True)
    found = cw.compile(fitted, x, thresholds="client", leaf_bits=8).predict(x)
    assert np.abs(found - fitted.predict(x)).max() < 0.05


def test_loaded_models(tmp_path: Path) -> None:
    """A loaded Poisson model does not know its loss: its predict gives the sum."""
    for fitted in (
        regressor("Poisson").fit(X, np.exp(VALUES)),
        classifier("MultiClassOneVsAll").fit(X, CLASSES),
        classifier("MultiLogloss").fit(X, SEVERAL),
    ):
        fitted.save_model(str(tmp_path / "model.cbm"))
        loaded = type(fitted)()
        loaded.load_model(str(tmp_path / "model.cbm"))
        agrees(loaded)


def test_names_labels_alone_and_members() -> None:
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    fitted = classifier("MultiClass").fit(table, CLASSES)
    compiled = cw.compile(fitted, table, thresholds="client")
    assert compiled.predict(table).shape == fitted.predict(table).shape == (160, 1)
    with pytest.raises(ShapeError, match="the order differs"):  # CatBoost puts them in order
        compiled.predict(table[["b", "a", "c", "d"]])
    told = cw.compile(fitted, table, thresholds="client", tell="labels")
    assert (told.predict(table) == fitted.predict(table)[:, 0]).mean() > 0.97
    members = [("a", classifier("MultiClass")), ("b", classifier("MultiClass", depth=2))]
    voting = ensemble.VotingClassifier(members, voting="soft").fit(X, CLASSES)
    model: Any = import_estimator(voting)
    np.testing.assert_allclose(model.probabilities(X), voting.predict_proba(X), atol=1e-9)


def test_categories_and_own_losses_are_refused() -> None:
    table = pd.DataFrame({"a": X[:, 0], "c": np.array(list("xyz"))[CLASSES]})
    with pytest.raises(UnsupportedOperatorError, match="features = .*categorical"):
        import_estimator(regressor("RMSE", cat_features=["c"]).fit(table, VALUES))
