"""Behind steps that are exact but for their last bits, values that are thresholds themselves go where the user's own object sends them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import decomposition, ensemble, preprocessing
from sklearn.pipeline import make_pipeline

from cloakwork.models.client_steps import run_input_steps
from cloakwork.training.importers.estimator import import_part
from cloakwork.training.importers.preprocessing import split_pipeline
from cloakwork.training.importers.ties import above_ties


@pytest.mark.parametrize(
    "transformer",
    [
        decomposition.PCA(3),
        decomposition.PCA(2, whiten=True),
        preprocessing.Normalizer(),
        preprocessing.QuantileTransformer(n_quantiles=50, output_distribution="normal"),
    ],
    ids=repr,
)
def test_values_that_are_thresholds_stay_below_them(transformer: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 4))
    y = x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=500) > 0
    fitted = make_pipeline(transformer, ensemble.HistGradientBoostingClassifier(max_iter=5)).fit(x, y)
    steps, last = split_pipeline(fitted)
    model = import_part(last).model
    moved = above_ties(model, steps)
    expected, features = fitted.predict_proba(x), run_input_steps(steps, x)
    for last_bits in (0.0, 1e-13, -1e-13):  # of another library or processor
        rounded = features + last_bits * np.abs(features)
        np.testing.assert_allclose(moved.probabilities(rounded), expected, atol=1e-9)
    assert np.abs(model.probabilities(features + 1e-13 * np.abs(features)) - expected).max() > 1e-3


def test_exact_steps_and_comparisons_of_float32_leave_thresholds_alone() -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    for transformer, estimator in (
        (preprocessing.StandardScaler(), ensemble.HistGradientBoostingClassifier(max_iter=2)),
        (decomposition.PCA(2), ensemble.RandomForestClassifier(2, random_state=0)),
    ):
        steps, last = split_pipeline(make_pipeline(transformer, estimator).fit(x, x[:, 0] > 0))
        model = import_part(last).model
        assert above_ties(model, steps) is model
