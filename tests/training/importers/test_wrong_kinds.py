"""Models of another kind than they look: the answer is of the right kind, or an error says what is the matter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import sklearn.base
from sklearn import (
    compose,
    ensemble,
    linear_model,
    model_selection,
    multioutput,
    naive_bayes,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.exceptions import ConvergenceWarning

import cloakwork as cw
from cloakwork.estimators import IsolationForest, MLPClassifier
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.models.client_steps import run_output_steps
from cloakwork.models.client_steps.feature_tables import check_column_names
from cloakwork.models.client_steps.transforms import label_array
from cloakwork.models.errors import CompileError, ShapeError, UnsupportedOperatorError
from cloakwork.training.importers import import_estimator

X = np.random.default_rng(3).uniform(0, 1, (150, 6))
LABELS = (np.stack([X[:, 0] + X[:, 1], X[:, 1] * 2, X[:, 2] + X[:, 3], X[:, 4]], axis=1) > [1, 0.8, 1.2, 0.5]).astype(
    int
)
Y = X[:, 0] - X[:, 1] + 0.3 * X[:, 2]


def network() -> MLPClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MLPClassifier((8,), max_iter=150, random_state=0, learning_rate_init=0.02).fit(X, LABELS)


def test_a_multilabel_network_tells_every_label() -> None:
    fitted = network()
    clear, shares = fitted.predict(X), fitted.predict_proba(X)
    compiled = cw.compile(fitted, X)
    found = compiled.predict(X)
    assert found.shape == clear.shape == (150, 4) and found.dtype.kind == "i"
    assert (found == clear).mean() > 0.97
    assert np.abs(compiled.predict(X, output="probabilities") - shares).mean() < 0.05
    fitted.compile(X)
    assert (fitted.predict(X) == clear).mean() > 0.97 and fitted.predict_proba(X).shape == (150, 4)


@pytest.mark.parametrize("contamination", ["auto", 0.2])
def test_an_isolation_forest_tells_outliers(contamination: Any) -> None:
    fitted = ensemble.IsolationForest(n_estimators=4, max_samples=12, contamination=contamination, random_state=0).fit(
        X
    )
    compiled = cw.compile(fitted, X, thresholds="client", accuracy=0.9)
    found = compiled.predict(X)
    assert set(found.tolist()) <= {-1, 1} and found.shape == (150,)
    assert (found == fitted.predict(X)).mean() > 0.95  # the offset lies between scores that are close
    assert np.abs(compiled.predict(X, output="probabilities")[:, 0] - fitted.score_samples(X)).max() < 0.02
    own = IsolationForest.from_sklearn(fitted)
    own.compile(X, thresholds="client", accuracy=0.9)
    assert (own.predict(X) == found).all()


def test_xgboost_with_two_targets() -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    targets = np.stack([Y, X[:, 3] - 2 * Y], axis=1)
    fitted = xgboost.XGBRegressor(n_estimators=4, max_depth=3).fit(X, targets)
    model: Any = import_estimator(fitted)
    np.testing.assert_allclose(model.evaluate(X), fitted.predict(X), atol=1e-5)
    compiled = cw.compile(fitted, X, thresholds="client")
    assert np.abs(compiled.predict(X) - fitted.predict(X)).max() < 0.05
    several = xgboost.XGBClassifier(n_estimators=4, max_depth=3).fit(X, LABELS)
    model = import_estimator(several)
    assert (model.evaluate(X) == several.predict(X)).all()
    joined = xgboost.XGBRegressor(n_estimators=2, multi_strategy="multi_output_tree").fit(X, targets)
    with pytest.raises(UnsupportedOperatorError, match="multi_strategy = 'multi_output_tree'"):
        import_estimator(joined)


def squared(true: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return predicted - true, np.ones_like(true)


def test_lightgbm_with_an_objective_of_ones_own() -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    fitted = lightgbm.LGBMRegressor(n_estimators=3, objective=squared, verbose=-1).fit(X, Y)
    with pytest.raises(UnsupportedOperatorError, match="LGBMRegressor: objective = .* an objective of LightGBM's own"):
        cw.compile(fitted, X)


def test_options_that_a_model_does_not_have() -> None:
    with pytest.raises(
        CompileError,
        match="precision: no option of a linear model \\(but of a network\\); expected accuracy, input_bits",
    ):
        cw.compile(linear_model.Ridge().fit(X, Y), X, precision="fast")
    trees = tree.DecisionTreeRegressor(max_depth=2).fit(X, Y)
    with pytest.raises(CompileError, match="weight_bits, input_bits: no option of trees .*; expected accuracy, "):
        cw.compile(trees, X, weight_bits=4, input_bits=3)
    with pytest.raises(CompileError, match="leaf_bits: no option of a network \\(but of trees\\)"):
        cw.compile(network(), X, leaf_bits=4)


@pytest.mark.parametrize("calibration", [X[:0], [], None], ids=["array", "list", "none"])
def test_no_samples_to_calibrate_with(calibration: Any) -> None:
    for fitted in (linear_model.Ridge().fit(X, Y), tree.DecisionTreeRegressor(max_depth=2).fit(X, Y), network()):
        with pytest.raises(CompileError, match="samples: expected typical samples, .* got none"):
            cw.compile(fitted, calibration)
    compiled = cw.compile(tree.DecisionTreeRegressor(max_depth=2).fit(X, Y), X)
    with pytest.raises(ShapeError, match="at least one sample"):
        compiled.predict(X[:0])


def test_long_lists_of_names_are_cut() -> None:
    names = tuple(f"column {i}" for i in range(40))

    class Table:
        columns = ("other",)

    with pytest.raises(
        ShapeError, match=r"missing \['column 0', .*'column 7', and 32 more\], unexpected \['other'\]"
    ) as error:
        check_column_names(Table(), names)
    assert len(str(error.value)) < 300
    with pytest.raises(UnsupportedOperatorError) as unknown:
        import_estimator(neural_network.BernoulliRBM(2, n_iter=1).fit(X))
    assert len(str(unknown.value)) < 200


def test_the_failure_of_a_linear_model_is_in_the_text() -> None:
    compiled = cw.compile(linear_model.Ridge().fit(X, Y), X)
    assert f"failure: 2^{compiled.report()['p_fail_log2']:.1f} for an output" in compiled.details


@pytest.mark.parametrize("label", [3, "only", True])
@pytest.mark.parametrize(
    "estimator",
    [
        tree.DecisionTreeClassifier(),
        ensemble.RandomForestClassifier(3),
        ensemble.AdaBoostClassifier(n_estimators=2),
        ensemble.HistGradientBoostingClassifier(max_iter=2),
        ensemble.VotingClassifier([("a", tree.DecisionTreeClassifier())], voting="soft"),
        naive_bayes.GaussianNB(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_one_class_alone_is_predicted(estimator: Any, label: Any) -> None:
    fitted = sklearn.base.clone(estimator).fit(X, np.full(len(X), label))
    compiled = cw.compile(fitted, X)
    found = compiled.predict(X)
    assert (found == fitted.predict(X)).all() and found.shape == (150,)
    np.testing.assert_allclose(compiled.predict(X, output="probabilities"), fitted.predict_proba(X), atol=1e-3)


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
@pytest.mark.parametrize("estimator", [linear_model.Ridge(), tree.DecisionTreeRegressor(max_depth=2), svm.LinearSVC()])
def test_probabilities_of_what_has_none_are_refused(estimator: Any) -> None:
    """Once values, or decision values, were returned as if they were probabilities."""
    compiled = cw.compile(estimator.fit(X, LABELS[:, 0]), X, accuracy=0.5)
    with pytest.raises(ParameterError, match="no probabilities; expected 'labels' or 'scores'"):
        compiled.predict_proba(X)


def test_labels_are_of_one_kind() -> None:
    for labels in (np.array(["a", "b"], dtype=object), np.array([3, -1], dtype=object)):
        fitted = ensemble.VotingClassifier([("a", tree.DecisionTreeClassifier(max_depth=2))], voting="soft")
        fitted.fit(X, labels[LABELS[:, 0]].tolist())
        found = cw.compile(fitted, X, thresholds="client").predict(X)
        assert (found == fitted.predict(X)).all()
    forest = tree.DecisionTreeClassifier(max_depth=2).fit(X, np.array(["no", "yes"], dtype=object)[LABELS])
    assert (cw.compile(forest, X, thresholds="client").predict(X) == forest.predict(X)).mean() > 0.98
    with pytest.raises(CompileError, match="expected texts, or numbers, got both"):
        label_array(np.array([1, "a"], dtype=object), 2)
    with pytest.raises(CompileError, match="got datetime64"):
        label_array(np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"), 2)


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        linear_model.LinearRegression(),
        linear_model.Ridge(),
        linear_model.MultiTaskLasso(alpha=0.01),
        multioutput.MultiOutputRegressor(linear_model.Ridge()),
        multioutput.MultiOutputRegressor(ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=3)),
        tree.DecisionTreeRegressor(max_depth=3),
        linear_model.Lasso(alpha=0.01),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_target_of_one_column(estimator: Any) -> None:
    fitted = estimator.fit(X, np.exp(Y)[:, None])
    found = cw.compile(fitted, X, accuracy=0.95).predict(X)
    expected = fitted.predict(X)
    assert found.shape == expected.shape
    assert np.abs(found - expected).mean() < 0.1


def test_an_isolation_forest_of_one_sample_each() -> None:
    fitted = ensemble.IsolationForest(n_estimators=3, max_samples=1, random_state=0).fit(X)
    compiled = cw.compile(fitted, X)
    assert (compiled.predict(X) == fitted.predict(X)).all()
    np.testing.assert_allclose(compiled.predict(X, output="probabilities")[:, 0], fitted.score_samples(X), atol=1e-6)


def test_a_network_of_counts() -> None:
    counts = np.random.default_rng(1).poisson(np.exp(Y + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = neural_network.MLPRegressor(hidden_layer_sizes=(6,), max_iter=150, random_state=0)
        if not hasattr(fitted, "loss") or "loss" not in fitted.get_params():
            pytest.skip("scikit-learn 1.7 and newer have other losses of MLPRegressor")
        fitted.set_params(loss="poisson").fit(X, counts)
    found, expected = cw.compile(fitted, X).predict(X), fitted.predict(X)
    assert np.abs(found - expected).mean() < 0.05 * expected.mean()
    fitted.out_activation_ = "softplus"
    with pytest.raises(UnsupportedOperatorError, match="out_activation_ = 'softplus'"):
        import_estimator(fitted)


@pytest.mark.parametrize("member", [linear_model.RidgeClassifier(), svm.LinearSVC(), linear_model.LogisticRegression()])
def test_outputs_that_are_decided_one_by_one(member: Any) -> None:
    fitted = multioutput.MultiOutputClassifier(member).fit(X, np.array(["no", "yes"])[LABELS])
    found = cw.compile(fitted, X).predict(X)
    assert found.shape == (150, 4) and (found == fitted.predict(X)).mean() > 0.98


@pytest.mark.parametrize("loss", ["log_loss", "modified_huber"])
def test_samples_that_belong_to_no_class(loss: str) -> None:
    """Logistic functions that are all zero, just not zero, or just not one: every class is as likely then."""
    fitted = linear_model.SGDClassifier(loss=loss).fit(np.eye(3), [0, 1, 2])
    fitted.coef_, fitted.intercept_ = np.eye(3), np.zeros(3)
    scores = (
        np.random.default_rng(5).uniform(-760, -690, (300, 3)) * np.array([[1], [0.05], [-0.05]])[np.arange(300) % 3]
    )
    model: Any = import_estimator(fitted)
    found = run_output_steps(model.output_steps, model.scores(scores), "probabilities")
    np.testing.assert_allclose(found, fitted.predict_proba(scores), atol=1e-12)


class OwnStep(sklearn.base.TransformerMixin, sklearn.base.BaseEstimator):
    def fit(self, x: Any, y: Any = None) -> OwnStep:
        return self

    def transform(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge()), "StandardScaler is not fitted"),
        (
            pipeline.make_pipeline(compose.ColumnTransformer([("a", "passthrough", [0])]), linear_model.Ridge()),
            "ColumnTransformer is not fitted",
        ),
        (
            model_selection.GridSearchCV(linear_model.Ridge(), {"alpha": [1]}),
            r"GridSearchCV: expected a search .* fit\(X, y\)",
        ),
        (
            pipeline.make_pipeline(OwnStep(), linear_model.Ridge()).fit(X, Y),
            "OwnStep has no counterpart .* before the pipeline",
        ),
        (linear_model.Ridge, r"got the class Ridge; make one, Ridge\(\.\.\)"),
        ({"weight": 1}, "got dict; load a state_dict into its module"),
        (type("Booster", (), {"predict": None})(), "got Booster; train XGBClassifier"),
    ],
    ids=["scaler", "columns", "search", "own step", "class", "state dict", "booster"],
)
def test_models_that_are_not_ready_are_refused_with_what_to_do(model: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        cw.compile(model, X)
