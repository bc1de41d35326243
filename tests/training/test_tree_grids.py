"""Fitted estimators whose thresholds stay on the server: held-out labels, bytes and look-ups beside the disclosed way."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sessions import Sessions
from sklearn import datasets

from cloakwork import estimators
from cloakwork.models.client_steps import Positions, Thermometer
from cloakwork.training.tabular_data import load_tabular

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tree": ("iris", "DecisionTreeClassifier", {"random_state": 0}),
    "forest": ("breast-cancer", "RandomForestClassifier", {"n_estimators": 20, "max_depth": 6, "random_state": 0}),
    "boosting": ("breast-cancer", "XGBClassifier", {"n_estimators": 20, "max_depth": 4}),
}


def of_name(name: str, options: dict[str, Any]) -> Any:
    if name.startswith("XGB"):
        pytest.importorskip("xgboost", reason="XGBoost is not installed")
    return getattr(estimators, name)(**options)


@pytest.mark.parametrize("bits", [6, pytest.param(8, marks=pytest.mark.tier("all"))])
@pytest.mark.parametrize("name", MODELS)
def test_secret_thresholds_cost_no_labels_and_no_look_ups(name: str, bits: int) -> None:
    data_name, class_name, options = MODELS[name]
    data, fitted = load_tabular(data_name), of_name(class_name, options)
    clear = fitted.fit(data.train_x, data.train_y).predict(data.test_x)
    told = fitted.compile(data.train_x, thresholds="client").report()
    model = fitted.compile(data.train_x, grid_bits=bits)
    report = model.report()
    assert (fitted.predict(data.test_x) == clear).mean() >= 0.98
    assert report["grid"]["agreement"] >= 0.98
    assert report["input_ciphertext_bytes"] <= 100_000
    assert report["bootstraps"] <= 1.1 * told["bootstraps"] and report["parameter_set"] == told["parameter_set"]
    assert told["discloses"][0]["what"] == "thresholds of the model"
    assert not any("threshold" in each["what"] for each in report["discloses"])
    assert model.program.output_unit > 0


@pytest.mark.tier("all")
def test_images_of_16_greys_lose_nothing() -> None:
    x, y = datasets.load_digits(return_X_y=True)
    fitted = estimators.RandomForestClassifier(3, max_depth=6, random_state=0).fit(x[:600], y[:600])
    on_grid, told = fitted.compile(x[:600]), fitted.compile(x[:600], thresholds="client")
    assert set(on_grid.report()["grid"]["kinds"]) == {"integers"}
    np.testing.assert_array_equal(on_grid.predict(x[600:], output="scores"), told.predict(x[600:], output="scores"))


@pytest.mark.parametrize(
    ("class_name", "options", "strict", "single"),
    [
        ("HistGradientBoostingRegressor", {"max_iter": 4}, False, False),
        ("LGBMRegressor", {"n_estimators": 4, "verbose": -1}, False, False),
        ("XGBRegressor", {"n_estimators": 4}, True, True),
        ("GradientBoostingRegressor", {"n_estimators": 4}, False, True),
    ],
)
def test_numbers_and_missing_values_of_every_library(
    class_name: str, options: dict[str, Any], strict: bool, single: bool
) -> None:
    """Whole numbers, decimals, switches and constants beside each other; NaN where the library takes it."""
    if class_name.startswith("LGBM"):
        pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    random = np.random.default_rng(0)
    columns = [
        random.integers(18, 70, 500),
        random.integers(0, 40, 500) / 10,
        random.random(500) < 0.2,
        np.full(500, 7),
    ]
    x = np.stack(columns, axis=1).astype(np.float64)
    y = x[:, 0] * 0.1 + np.sin(x[:, 1]) * 3 + 2 * x[:, 2]
    if class_name != "GradientBoostingRegressor":
        x[random.random(x.shape) < 0.1] = np.nan
    fitted = of_name(class_name, options).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_grid, placed = (fitted.compile(x, thresholds=way, leaf_bits=6) for way in ("grid", "server"))
    told = fitted.compile(x, thresholds="client", leaf_bits=6)
    for model, kind in ((on_grid, Thermometer), (placed, Positions)):
        np.testing.assert_array_equal(model.predict(x, output="scores"), told.predict(x, output="scores"))
        (step,) = (each for each in model.client.input_steps if isinstance(each, Thermometer | Positions))
        assert isinstance(step, kind) and (step.strict, step.single) == (strict, single)
        assert step.missing == bool(np.isnan(x).any())


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("name", "bits", "digits"), [("tree", 6, 8), ("tree", 16, 8), ("boosting", 6, 60), ("boosting", 8, 90)]
)
def test_positions_find_secret_thresholds_of_real_sets(sessions: Sessions, name: str, bits: int, digits: int) -> None:
    """Held-out labels, what is sent, and two samples really encrypted under a set of 128 bits."""
    data_name, class_name, options = MODELS[name]
    data, fitted = load_tabular(data_name), of_name(class_name, options)
    clear = fitted.fit(data.train_x, data.train_y).predict(data.test_x)
    on_grid = fitted.compile(data.train_x, grid_bits=bits)
    model = fitted.compile(data.train_x, thresholds="server", grid_bits=bits)
    report = model.report()
    assert (fitted.predict(data.test_x) == clear).mean() >= 0.98
    assert (report["grid"]["sent"], report["parameter_set"]) == (digits, "lut3")
    assert report["p_fail_log2"] <= -119 and report["lookup_p_fail_log2"] <= -128
    assert report["discloses"] == on_grid.report()["discloses"]
    np.testing.assert_array_equal(
        model.predict(data.test_x, output="scores"), on_grid.predict(data.test_x, output="scores")
    )
    key, server = sessions("lut3")
    found = model.predict(data.test_x[:2], "encrypted", key=key, session=server, output="scores")
    np.testing.assert_array_equal(found, model.predict(data.test_x[:2], output="scores"))
