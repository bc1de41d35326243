"""Estimators made of estimators, quadratic and multi-output ones: the import is the estimator, the program its quantised self."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from cases import in_tiers

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import (
    calibration,
    datasets,
    discriminant_analysis,
    ensemble,
    linear_model,
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    pipeline,
    preprocessing,
    svm,
    tree,
)

import cloakwork as cw
from cloakwork.models.client_steps import Columns, run_input_steps, run_output_steps
from cloakwork.models.errors import AccuracyWarning, CompileError, UnsupportedOperatorError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.training.importers import import_part

RANDOM = {"random_state": 0}
make = pipeline.make_pipeline
stump, small = tree.DecisionTreeClassifier(max_depth=1), tree.DecisionTreeClassifier(max_depth=3, **RANDOM)
logistic, scaled = (
    linear_model.LogisticRegression(),
    make(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
)
forest = ensemble.RandomForestClassifier(4, max_depth=3, **RANDOM)
boosted = ensemble.GradientBoostingClassifier(n_estimators=3, max_depth=2, **RANDOM)
# Kernels that separate need not be written: these are the shapes of what the importer reads.
CLASSIFIERS: dict[str, Any] = {
    "ridge": linear_model.RidgeClassifier(),
    "ridge cv": linear_model.RidgeClassifierCV(),
    "perceptron": linear_model.Perceptron(),
    "logistic cv": linear_model.LogisticRegressionCV(Cs=2, cv=2, l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy"),
    "discriminant": discriminant_analysis.LinearDiscriminantAnalysis(),
    "discriminant shrunk": discriminant_analysis.LinearDiscriminantAnalysis("lsqr", shrinkage=0.3),
    "quadratic": discriminant_analysis.QuadraticDiscriminantAnalysis(),
    "gaussian": naive_bayes.GaussianNB(),
    "gaussian prior": naive_bayes.GaussianNB(var_smoothing=1e-2),
    "bernoulli": naive_bayes.BernoulliNB(binarize=0.3),
    "adaboost": ensemble.AdaBoostClassifier(n_estimators=9, **RANDOM),
    "adaboost deeper": ensemble.AdaBoostClassifier(small, n_estimators=3, **RANDOM),
    "bagged trees": ensemble.BaggingClassifier(small, 5, max_features=0.6, **RANDOM),
    "bagged logistic": ensemble.BaggingClassifier(logistic, 3, max_features=0.8, bootstrap_features=True, **RANDOM),
    "bagged machines": ensemble.BaggingClassifier(svm.LinearSVC(), 3, **RANDOM),
    "bagged pipelines": ensemble.BaggingClassifier(scaled, 3, **RANDOM),
    "vote": ensemble.VotingClassifier([("l", scaled), ("r", linear_model.RidgeClassifier()), ("g", naive_bayes.GaussianNB())]),
    "vote weighted": ensemble.VotingClassifier([("a", small), ("b", forest), ("c", stump)], weights=[2, 1, 3]),
    "vote soft": ensemble.VotingClassifier([("l", logistic), ("s", scaled)], voting="soft", weights=[1, 3]),
    "vote soft trees": ensemble.VotingClassifier([("f", forest), ("t", small), ("x", "drop")], voting="soft"),
    "vote soft boosted": ensemble.VotingClassifier([("f", forest), ("b", boosted)], voting="soft"),
    "stack": ensemble.StackingClassifier([("l", scaled), ("r", linear_model.RidgeClassifier())], cv=2),
    "stack trees": ensemble.StackingClassifier([("f", forest), ("t", small)], cv=2),
    "stack boosted": ensemble.StackingClassifier([("b", boosted), ("f", forest)], cv=2),
    "rest logistic": multiclass.OneVsRestClassifier(logistic),
    "rest machines": multiclass.OneVsRestClassifier(svm.LinearSVC()),
    "rest forests": multiclass.OneVsRestClassifier(forest),
    "calibrated machine": calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2),
    "calibrated forest": calibration.CalibratedClassifierCV(forest, cv=2, method="isotonic"),
    "calibrated pipeline": calibration.CalibratedClassifierCV(scaled, ensemble=False, cv=2),
    "searched": model_selection.GridSearchCV(logistic, {"C": [0.1, 1.0]}, cv=2),
}  # fmt: skip


def classification(classes: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = datasets.make_classification(
        160, 6, n_informative=4, n_redundant=0, n_classes=classes, class_sep=1.4, random_state=2
    )
    return np.round(x * [1, 1, 20, 1, 0.1, 1], 2), np.array(["red", "green", "blue"])[y]


def fitted(estimator: Any, x: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(x, y)


def results(estimator: Any, x: np.ndarray, stage: str = "labels") -> Any:
    """Of the imported model in float64."""
    part = import_part(estimator)
    assert isinstance(part.model, TreeEnsemble | LinearModel)
    table = run_input_steps(part.steps, x) if part.steps else x
    return run_output_steps(part.model.output_steps, part.model.scores(table), stage)  # type: ignore[arg-type]


def on_own_thresholds(estimator: Any) -> dict[str, str]:
    """Options of `cloakwork.compile` with which trees compare as the estimator does."""
    return {"thresholds": "client"} if isinstance(import_part(estimator).model, TreeEnsemble) else {}


# One of each importer with three classes in every run; what is fitted many times, and shapes that are like another, in tier `all`.
LATER = {
    "logistic cv", "discriminant shrunk", "gaussian prior", "adaboost deeper", "bagged machines", "bagged pipelines", "vote soft boosted",
    "stack trees", "stack boosted", "rest forests", "calibrated forest", "searched",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "classes"),
    in_tiers(itertools.product(CLASSIFIERS, (2, 3)), quick=[(name, 3) for name in CLASSIFIERS if name not in LATER]),
)
def test_classifiers(name: str, classes: int) -> None:
    x, y = classification(classes)
    member = fitted(CLASSIFIERS[name], x, y)
    expected = member.predict(x)
    assert (results(member, x) == expected).all()
    if hasattr(member, "predict_proba"):
        assert np.abs(results(member, x, "probabilities") - member.predict_proba(x)).max() < 1e-9
    compiled = cw.compile(member, x, **on_own_thresholds(member))
    found = compiled.predict(x)
    assert found.dtype.kind == "U" and (found == expected).mean() >= 0.97, (found == expected).mean()


COUNTS = np.random.default_rng(0).poisson(2.0, (160, 8)).astype(float)


@pytest.mark.parametrize(
    "estimator", [naive_bayes.MultinomialNB(), naive_bayes.ComplementNB()], ids=["multinomial", "complement"]
)
def test_naive_bayes_of_counts(estimator: Any) -> None:
    for classes in (2, 3):
        y = COUNTS[:, :classes].argmax(axis=1)
        member = estimator.fit(COUNTS, y)
        assert (results(member, COUNTS) == member.predict(COUNTS)).all()
        assert np.abs(results(member, COUNTS, "probabilities") - member.predict_proba(COUNTS)).max() < 1e-9


ridge = linear_model.Ridge()
REGRESSORS: dict[str, Any] = {
    "bagged": ensemble.BaggingRegressor(tree.DecisionTreeRegressor(max_depth=3), 4, max_features=0.7, **RANDOM),
    "bagged linear": ensemble.BaggingRegressor(ridge, 3, **RANDOM),
    "vote": ensemble.VotingRegressor([("r", ridge), ("l", make(preprocessing.RobustScaler(), linear_model.Lasso(0.01)))]),
    "vote links": ensemble.VotingRegressor([("r", ridge), ("p", linear_model.PoissonRegressor())], weights=[1, 2]),
    "stack": ensemble.StackingRegressor([("r", ridge), ("h", linear_model.HuberRegressor(max_iter=500))], cv=2),
    "stack trees": ensemble.StackingRegressor(
        [("f", ensemble.RandomForestRegressor(3, max_depth=3, **RANDOM)), ("t", tree.DecisionTreeRegressor(max_depth=2))], ridge, cv=2
    ),
    "bayesian": linear_model.BayesianRidge(),
    "quantile": linear_model.QuantileRegressor(alpha=0.01),
}  # fmt: skip


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name: str) -> None:
    x, _ = classification(3)
    y = np.abs(x[:, 0] + 0.1 * x[:, 2] - x[:, 4]) + 0.1
    member = fitted(REGRESSORS[name], x, y)
    expected = member.predict(x)
    np.testing.assert_allclose(results(member, x), expected, atol=1e-9)
    found = cw.compile(member, x, **on_own_thresholds(member)).predict(x)
    assert found.shape == expected.shape and np.abs(found - expected).max() < 0.02 * np.ptp(expected)


SEVERAL: dict[str, Any] = {
    "forest": ensemble.RandomForestClassifier(4, max_depth=3, **RANDOM),
    "tree": tree.DecisionTreeClassifier(max_depth=4, **RANDOM),
    "extra trees": ensemble.ExtraTreesClassifier(3, max_depth=3, **RANDOM),
    "multi-output": multioutput.MultiOutputClassifier(logistic),
    "multi-output forests": multioutput.MultiOutputClassifier(forest),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_labels_of_a_sample(name: str) -> None:
    x, y = classification(3)
    labels = np.stack([y, np.where(x[:, 0] > 0, "red", "no"), np.full(len(y), "same")], axis=1)
    labels = labels[:, :2] if name.startswith("multi") else labels
    member = fitted(SEVERAL[name], x, labels)
    expected = member.predict(x)
    assert (results(member, x) == expected).all()
    shares = np.concatenate(member.predict_proba(x), axis=1)
    assert np.abs(results(member, x, "probabilities") - shares).max() < 1e-9
    found = cw.compile(member, x, accuracy=0.95).predict(x)
    assert found.shape == expected.shape and (found == expected).mean() > 0.97


def test_indicators_and_values_of_several_outputs() -> None:
    x = np.random.default_rng(1).poisson(5.0, (160, 6)).astype(float)
    y = (x[:, :3] > x[:, 3:]).astype(int)
    for member in (
        ensemble.RandomForestClassifier(3, max_depth=2, **RANDOM),
        linear_model.RidgeClassifier(),
        multiclass.OneVsRestClassifier(logistic),
        multiclass.OneVsRestClassifier(small),
    ):
        member = fitted(member, x, y)
        assert (results(member, x) == member.predict(x)).all()
        found = cw.compile(member, x).predict(x)
        assert found.shape == y.shape and (found == member.predict(x)).mean() > 0.97
    values = np.stack([x[:, 0] - x[:, 1], x[:, 2]], axis=1)
    for regressor in (
        ensemble.ExtraTreesRegressor(2, max_depth=1, **RANDOM),
        multioutput.MultiOutputRegressor(ensemble.GradientBoostingRegressor(n_estimators=2, max_depth=1, **RANDOM)),
        linear_model.MultiTaskLasso(0.1),
    ):
        member = fitted(regressor, x, values)
        np.testing.assert_allclose(results(member, x), member.predict(x), atol=1e-9)
        assert cw.compile(member, x).predict(x).shape == values.shape


def test_an_ensemble_runs_encrypted() -> None:
    x, y = classification(3)
    for name in ("vote", "gaussian"):
        compiled = cw.compile(fitted(CLASSIFIERS[name], x, y), x)
        np.testing.assert_array_equal(compiled.predict(x[:4], how="encrypted"), compiled.predict(x[:4]))


def test_what_integers_cannot_hold_is_refused() -> None:
    """Pixels that are always black in a class weigh a thousand million times as much as others."""
    x, y = datasets.load_digits(return_X_y=True)
    member = naive_bayes.GaussianNB().fit(x[:500], y[:500])
    with pytest.raises(CompileError, match=r"agrees with the model in clear on \d+.\d% .*var_smoothing.* accuracy=0"):
        cw.compile(member, x[:500])
    with pytest.warns(
        AccuracyWarning, match=r"agrees with the model in clear on \d+.\d% .*accuracy=0 lets pass.*var_smoothing"
    ) as warned:
        assert cw.compile(member, x[:500], accuracy=0).predict(x[:5]).shape == (5,)
    assert warned[0].filename == __file__
    smooth = naive_bayes.GaussianNB(var_smoothing=1e-2).fit(x[:500], y[:500])
    assert (cw.compile(smooth, x[:500]).predict(x[:500]) == smooth.predict(x[:500])).mean() > 0.98


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (ensemble.VotingClassifier([("l", logistic), ("f", forest)]), "members of one kind, got trees and linear models"),
        (ensemble.StackingClassifier([("l", logistic)], forest, cv=2), "final_estimator = 'RandomForestClassifier'.*use a linear one"),
        (ensemble.StackingClassifier([("l", logistic)], passthrough=True, cv=2), "passthrough = True"),
        (ensemble.StackingClassifier([("l", logistic)], stack_method="predict", cv=2), "stack_method = 'predict'"),
        (ensemble.AdaBoostClassifier(logistic, n_estimators=2), "estimator = 'LogisticRegression'.*decision trees"),
        (ensemble.BaggingClassifier(svm.SVC(), 2), "SVC cannot run on encrypted data"),
        (calibration.CalibratedClassifierCV(logistic, method="temperature", cv=2), "method = 'temperature'"),
        (ensemble.VotingClassifier([("h", ensemble.HistGradientBoostingClassifier(max_iter=2)), ("f", forest)]), "different ways"),
        (ensemble.AdaBoostRegressor(n_estimators=2), "AdaBoostRegressor cannot run on encrypted data; nearest"),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_what_cannot_be_joined_is_named(estimator: Any, message: str) -> None:
    x, y = classification(2)
    y = (y == "red").astype(int)
    with pytest.raises(UnsupportedOperatorError, match=message):
        cw.compile(fitted(estimator, x, y), x)


@pytest.mark.parametrize("positive", [None, "no", "yes"])
@pytest.mark.parametrize("threshold", ["auto", 0.3, 0.8])
def test_thresholds_of_the_users(threshold: Any, positive: Any) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 3))
    y = np.where(x[:, 0] + 0.5 * rng.normal(size=120) > 0.2, "yes", "no")
    members = [
        linear_model.LogisticRegression(),
        linear_model.SGDClassifier(loss="modified_huber", random_state=0),
        tree.DecisionTreeClassifier(max_depth=2),
        ensemble.GradientBoostingClassifier(n_estimators=3, loss="exponential"),
        naive_bayes.GaussianNB(),
    ]
    for member in members:
        for method in ("predict_proba", "decision_function"):
            if not hasattr(member, method):
                continue
            fitted = model_selection.FixedThresholdClassifier(
                member, threshold=threshold, pos_label=positive, response_method=method
            ).fit(x, y)
            part = import_part(fitted)
            features = run_input_steps((Columns(3), *part.steps), x)
            assert (part.model.evaluate(features) == fitted.predict(x)).all()  # type: ignore[union-attr]
            shares = part.model.probabilities(features)  # type: ignore[union-attr]
            np.testing.assert_allclose(shares, fitted.predict_proba(x), atol=1e-9)
    tuned = model_selection.TunedThresholdClassifierCV(linear_model.LogisticRegression(), cv=2).fit(x, y)
    assert (cw.compile(tuned, x).predict(x) == tuned.predict(x)).mean() > 0.98
