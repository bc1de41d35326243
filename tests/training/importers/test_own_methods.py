"""Classes of the user's that extend supported ones: imported where they answer as these, else refused by the name of what differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import (
    base,
    dummy,
    ensemble,
    feature_selection,
    linear_model,
    model_selection,
    pipeline,
    preprocessing,
    tree,
)

import cloakwork as cw
from cloakwork import estimators
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.training.importers.nodes import unwrapped
from cloakwork.training.importers.preprocessing import split_pipeline

X = np.random.default_rng(0).normal(size=(120, 3))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
make = pipeline.make_pipeline


class Cautious(linear_model.LogisticRegression):
    def predict(self, X: Any) -> Any:
        return (self.predict_proba(X)[:, 1] > 0.2).astype(int)


class Shifted(linear_model.LogisticRegression):
    def decision_function(self, X: Any) -> Any:
        return super().decision_function(X) + 1


class Reporting:
    def predict(self, X: Any) -> Any:
        return 1 - super().predict(X)  # type: ignore[misc]


class Reported(Reporting, tree.DecisionTreeClassifier):
    pass


class OwnStump(tree.DecisionTreeClassifier):
    def predict_proba(self, X: Any, check_input: bool = True) -> Any:
        return super().predict_proba(X)[:, ::-1]


class OwnStart(dummy.DummyClassifier):
    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X) ** (1 + np.asarray(X)[:, :1] ** 2)


class OwnRaw(ensemble.GradientBoostingClassifier):
    def _raw_predict(self, X: Any) -> Any:
        return 2 * super()._raw_predict(X)


class Clipped(preprocessing.StandardScaler):
    def transform(self, X: Any, copy: Any = None) -> Any:
        return np.clip(super().transform(X), -0.5, 0.5)


class Doubled(feature_selection.SelectKBest):
    def transform(self, X: Any) -> Any:
        return 2 * super().transform(X)


class OwnPipeline(pipeline.Pipeline):
    def predict(self, X: Any, **options: Any) -> Any:
        return 1 - super().predict(X, **options)


class OwnSearch(model_selection.GridSearchCV):
    def predict(self, X: Any) -> Any:
        return 1 - super().predict(X)


class OwnRidge(estimators.LogisticRegression):
    def predict(self, X: Any, *args: Any, **options: Any) -> Any:
        return 1 - super().predict(X, *args, **options)


def patched() -> Any:
    fitted = linear_model.LogisticRegression()
    fitted.predict = lambda X: np.zeros(len(X))
    return fitted


@pytest.mark.parametrize(
    ("estimator", "named"),
    [
        (Cautious(), "Cautious extends LogisticRegression by its own 'predict'"),
        (Shifted(), "own 'decision_function'"),
        (Reported(max_depth=2), "Reported extends DecisionTreeClassifier by its own 'predict'"),
        (ensemble.AdaBoostClassifier(OwnStump(max_depth=1), n_estimators=2), "OwnStump extends .* own 'predict_proba'"),
        (ensemble.BaggingClassifier(Cautious(), n_estimators=2), "Cautious extends"),
        (OwnRaw(n_estimators=2), "own '_raw_predict'"),
        (ensemble.GradientBoostingClassifier(n_estimators=2, init=OwnStart()), "OwnStart extends DummyClassifier"),
        (make(Clipped(), linear_model.LogisticRegression()), "Clipped extends StandardScaler by its own 'transform'"),
        (make(Doubled(k=2), linear_model.LogisticRegression()), "Doubled extends .* own 'transform'"),
        (OwnPipeline([("m", linear_model.LogisticRegression())]), "OwnPipeline extends Pipeline by its own 'predict'"),
        (OwnSearch(linear_model.LogisticRegression(), {"C": [1.0]}), "OwnSearch extends .* own 'predict'"),
        (OwnRidge(), "OwnRidge extends"),
        (patched(), "LogisticRegression extends LogisticRegression by its own 'predict'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_answers_in_its_own_way_is_refused(estimator: Any, named: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=named):
        cw.compile(estimator.fit(X, Y), X)


class Named(linear_model.LogisticRegression):
    """Other options, training and reports: the answers are the same."""

    def __init__(self, strength: float = 1.0) -> None:
        super().__init__(C=strength)
        self.strength = strength

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(2 * X, y, sample_weight)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return 1.0

    def explained(self) -> Any:
        return self.coef_


class OwnSelection(feature_selection.SelectorMixin, base.BaseEstimator):
    def fit(self, X: Any, y: Any = None) -> Any:
        self.n_features_in_ = X.shape[1]
        return self

    def _get_support_mask(self) -> Any:
        return np.array([True, False, True])


@pytest.mark.parametrize("estimator", [Named(), make(OwnSelection(), Named())], ids=["alone", "pipe"])
def test_what_answers_as_its_base_is_taken(estimator: Any) -> None:
    fitted = estimator.fit(X, Y)
    assert (cw.compile(fitted, X).predict(X) == fitted.predict(X)).mean() > 0.98


def test_a_search_over_pipelines_within_a_pipeline() -> None:
    inner = make(preprocessing.PolynomialFeatures(2), linear_model.Ridge())
    search = model_selection.GridSearchCV(inner, {"ridge__alpha": [0.1, 1.0]})
    values = X[:, 0] + X[:, 1] ** 2
    fitted = make(preprocessing.StandardScaler(), search).fit(X, values)
    assert np.abs(cw.compile(fitted, X).predict(X) - fitted.predict(X)).max() < 0.05
    outer = model_selection.GridSearchCV(fitted, {"standardscaler__with_mean": [True]}).fit(X, values)
    assert type(split_pipeline(unwrapped(outer))[1]).__name__ == "Ridge"
