"""What is imported evaluates to what the estimator predicts, on random data with ties and values next to thresholds."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import cluster, cross_decomposition, datasets, ensemble, linear_model, neural_network, svm, tree  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402

from cloakwork.models.errors import CompileError, ShapeError, UnsupportedOperatorError  # noqa: E402
from cloakwork.models.linear.linear_model import LinearModel  # noqa: E402
from cloakwork.models.trees.ensemble import TreeEnsemble  # noqa: E402
from cloakwork.training.importers import import_estimator  # noqa: E402

lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")

LGBM: dict[str, Any] = {"n_estimators": 8, "min_child_samples": 5, "verbose": -1}
RANDOM = {"random_state": 0}
CLASSIFIERS = [
    tree.DecisionTreeClassifier(max_depth=5, **RANDOM),
    tree.DecisionTreeClassifier(splitter="random", max_leaf_nodes=9, **RANDOM),
    tree.ExtraTreeClassifier(**RANDOM),
    ensemble.RandomForestClassifier(8, max_depth=5, **RANDOM),
    ensemble.ExtraTreesClassifier(8, max_depth=5, **RANDOM),
    ensemble.GradientBoostingClassifier(n_estimators=8, **RANDOM),
    ensemble.GradientBoostingClassifier(n_estimators=3, init="zero", subsample=0.7, **RANDOM),
    ensemble.HistGradientBoostingClassifier(max_iter=8, **RANDOM),
    ensemble.GradientBoostingClassifier(n_estimators=8, n_iter_no_change=2, **RANDOM),
    ensemble.HistGradientBoostingClassifier(max_iter=30, early_stopping=True, n_iter_no_change=1, **RANDOM),
    xgboost.XGBClassifier(n_estimators=8, max_depth=4),
    xgboost.XGBClassifier(n_estimators=4, booster="dart", rate_drop=0.5, base_score=0.3),
    xgboost.XGBClassifier(n_estimators=4, num_parallel_tree=2, subsample=0.6, gamma=2.0),
    lightgbm.LGBMClassifier(**LGBM),
    lightgbm.LGBMClassifier(boosting_type="rf", subsample=0.5, subsample_freq=1, **LGBM),
    lightgbm.LGBMClassifier(boosting_type="dart", class_weight="balanced", **LGBM),
    linear_model.LogisticRegression(),
    linear_model.SGDClassifier(loss="hinge", **RANDOM),
    linear_model.SGDClassifier(loss="log_loss", **RANDOM),
    linear_model.SGDClassifier(loss="modified_huber", **RANDOM),
    svm.LinearSVC(),
]
REGRESSORS = [
    tree.DecisionTreeRegressor(max_depth=5, **RANDOM),
    ensemble.RandomForestRegressor(8, max_depth=5, **RANDOM),
    ensemble.ExtraTreesRegressor(8, max_depth=5, **RANDOM),
    ensemble.GradientBoostingRegressor(n_estimators=8, **RANDOM),
    *(ensemble.HistGradientBoostingRegressor(loss=loss, max_iter=8) for loss in ("squared_error", "poisson", "gamma")),
    *(
        xgboost.XGBRegressor(n_estimators=8, objective=objective)
        for objective in ("reg:squarederror", "count:poisson", "reg:gamma", "reg:tweedie", "reg:absoluteerror")
    ),
    *(lightgbm.LGBMRegressor(objective=objective, **LGBM) for objective in ("regression", "poisson", "gamma", "huber")),
    *(
        kind()
        for kind in (linear_model.LinearRegression, linear_model.Lasso, linear_model.Ridge, linear_model.ElasticNet)
    ),
    linear_model.SGDRegressor(**RANDOM),
    svm.LinearSVR(**RANDOM),
    linear_model.PoissonRegressor(),
    linear_model.GammaRegressor(),
    *(linear_model.TweedieRegressor(power=power) for power in (0, 1.5)),
    linear_model.TweedieRegressor(link="identity"),
]


def identifier(estimator: Any) -> str:
    words = [str(value) for value in estimator.get_params().values() if isinstance(value, str) and value.isascii()]
    return "-".join([type(estimator).__name__, *words[:3]])


def classification(classes: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Rounded, so that values repeat and thresholds lie on them."""
    x, y = datasets.make_classification(
        240, 6, n_informative=4, n_redundant=0, n_classes=classes, class_sep=1.2, random_state=1
    )
    return np.round(x, 1).astype(dtype), np.array(["red", "green", "blue"])[y]


def regression() -> tuple[np.ndarray, np.ndarray]:
    x, y = datasets.make_regression(240, 5, noise=5.0, random_state=1)
    return np.round(x, 1), np.abs(y) / 50 + 0.1


def fitted(estimator: Any, x: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (ConvergenceWarning, FutureWarning))
        return sklearn.base.clone(estimator).fit(x, y)


def probes(x: np.ndarray) -> np.ndarray:
    """The samples, and their neighbours in float32 and float64, where comparisons of the other precision would differ."""
    near = [x, np.nextafter(x, np.inf), np.nextafter(x.astype(np.float32), np.float32(np.inf)).astype(np.float64)]
    return np.concatenate(near)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=identifier)
def test_classifiers(estimator: Any, classes: int) -> None:
    x, y = classification(classes, np.float64)
    codes = np.unique(y, return_inverse=True)[1]
    member = fitted(estimator, x, codes if isinstance(estimator, xgboost.XGBClassifier) else y)
    model = import_estimator(member)
    assert isinstance(model, TreeEnsemble | LinearModel)
    z = probes(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # LightGBM: names of columns
        assert (model.evaluate(z) == member.predict(z)).all()
        if hasattr(member, "predict_proba"):
            assert np.abs(model.probabilities(z) - member.predict_proba(z)).max() < 1e-6


@pytest.mark.parametrize("estimator", REGRESSORS, ids=identifier)
def test_regressors(estimator: Any) -> None:
    x, y = regression()
    member = fitted(estimator, x, y)
    model = import_estimator(member)
    assert isinstance(model, TreeEnsemble | LinearModel)
    z = probes(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = member.predict(z)
    tolerance = 1e-5 if isinstance(member, xgboost.XGBRegressor) else 1e-12  # XGBoost adds in float32
    assert np.abs(model.evaluate(z) / expected - 1).max() < tolerance


@pytest.mark.parametrize("options", [{}, {"max_features": 0.5, "bootstrap": True}], ids=["all", "subsampled"])
def test_isolation_forest(options: dict[str, Any]) -> None:
    x, _ = regression()
    member = ensemble.IsolationForest(n_estimators=9, random_state=3, **options).fit(x)
    model = import_estimator(member)
    assert isinstance(model, TreeEnsemble)
    assert np.abs(model.probabilities(x)[:, 0] - member.score_samples(x)).max() < 1e-12
    assert (model.evaluate(x) == member.predict(x)).all()


def test_nearest_centre() -> None:
    x, _ = regression()
    member = cluster.KMeans(5, n_init=1, random_state=0).fit(x)
    model = import_estimator(member)
    assert isinstance(model, LinearModel)
    assert (model.evaluate(x) == member.predict(x)).all()


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_networks(activation: str) -> None:
    x, y = classification(3, np.float32)
    options: dict[str, Any] = {"activation": activation, "hidden_layer_sizes": (7, 5), "max_iter": 20, **RANDOM}
    member = fitted(neural_network.MLPClassifier(**options), x, y)
    proto: Any = import_estimator(member)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    logits = session.run(None, {"x": x})[0]
    assert (member.classes_[logits.argmax(axis=1)] == member.predict(x)).all()
    values = fitted(neural_network.MLPRegressor(**options), x, x[:, 0])
    proto = import_estimator(values)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.abs(session.run(None, {"x": x})[0][:, 0] - values.predict(x)).max() < 1e-5


@pytest.mark.parametrize(
    "estimator",
    [
        tree.DecisionTreeClassifier(max_depth=4, **RANDOM),
        ensemble.RandomForestClassifier(5, max_depth=4, **RANDOM),
        ensemble.HistGradientBoostingClassifier(max_iter=5),
        xgboost.XGBClassifier(n_estimators=5),
        lightgbm.LGBMClassifier(**LGBM),
    ],
    ids=identifier,
)
def test_missing_values_go_where_training_sent_them(estimator: Any) -> None:
    x, y = classification(3, np.float64)
    codes = np.unique(y, return_inverse=True)[1]
    x[np.random.default_rng(5).random(x.shape) < 0.1] = np.nan
    member = fitted(estimator, x, codes)
    model = import_estimator(member, missing=True)
    assert isinstance(model, TreeEnsemble)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert (model.evaluate(x) == member.predict(x)).all()


def test_objectives_of_two_classes_or_of_several() -> None:
    x, y = classification(2, np.float64)
    several, labels = classification(3, np.float64)
    codes = np.unique(y, return_inverse=True)[1]
    for member in (
        ensemble.GradientBoostingClassifier(n_estimators=5, loss="exponential", **RANDOM).fit(x, y),
        lightgbm.LGBMClassifier(objective="cross_entropy", **LGBM).fit(x, y),
        lightgbm.LGBMRegressor(objective="cross_entropy", **LGBM).fit(x, codes),
        lightgbm.LGBMClassifier(objective="multiclassova", **LGBM).fit(several, labels),
    ):
        table = several if len(getattr(member, "classes_", ())) == 3 else x
        model: Any = import_estimator(member)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if not hasattr(member, "classes_"):
                np.testing.assert_allclose(model.evaluate(table), member.predict(table), atol=1e-9)
                continue
            assert (model.evaluate(table) == member.predict(table)).all()
            np.testing.assert_allclose(model.probabilities(table), member.predict_proba(table), atol=1e-9)


def test_what_refuses_missing_values_still_does() -> None:
    x, y = classification(2, np.float64)
    gaps = np.where(np.random.default_rng(0).random(x.shape) < 0.1, np.nan, x)
    for member in (ensemble.GradientBoostingClassifier(n_estimators=2), ensemble.AdaBoostClassifier(n_estimators=2)):
        with pytest.raises(ShapeError, match="which this model does not take"):
            import_estimator(member.fit(x, y), missing=True).scores(gaps)  # type: ignore[union-attr]


def test_early_stopping_counts_the_best_rounds() -> None:
    x, y = regression()
    member = xgboost.XGBRegressor(n_estimators=200, early_stopping_rounds=2, learning_rate=0.5)
    member.fit(x[:160], y[:160], eval_set=[(x[160:], y[160:])], verbose=False)
    model = import_estimator(member)
    assert isinstance(model, TreeEnsemble)
    assert len(model.trees) == member.best_iteration + 1
    assert np.abs(model.evaluate(x) / member.predict(x) - 1).max() < 1e-5


def test_what_cannot_be_imported_says_so() -> None:
    x, y = regression()
    with pytest.raises(CompileError, match=r"Ridge: expected a fitted estimator; call fit\(X, y\)"):
        import_estimator(linear_model.Ridge())
    with pytest.raises(UnsupportedOperatorError, match="SVR cannot run on encrypted data; nearest: LinearSVR.*; docs"):
        import_estimator(svm.SVR().fit(x, y))
    with pytest.raises(
        UnsupportedOperatorError, match="PLSRegression cannot run .*; nothing of a name like it can run"
    ):
        import_estimator(cross_decomposition.PLSRegression().fit(x, y))
    with pytest.raises(UnsupportedOperatorError, match="init = Ridge.* cannot be imported; use init=None or 'zero'"):
        import_estimator(ensemble.GradientBoostingRegressor(init=linear_model.Ridge(), n_estimators=2).fit(x, y))
    with pytest.raises(UnsupportedOperatorError, match="objective = 'survival:cox'"):
        import_estimator(xgboost.XGBRegressor(objective="survival:cox", n_estimators=2).fit(x, y))
    with pytest.raises(UnsupportedOperatorError, match="booster = 'gblinear'"):
        import_estimator(xgboost.XGBRegressor(booster="gblinear", n_estimators=2).fit(x, y))
    with pytest.raises(UnsupportedOperatorError, match="linear_tree = True"):
        import_estimator(lightgbm.LGBMRegressor(linear_tree=True, **LGBM).fit(x, y))
    grouped = np.column_stack([np.arange(len(x)) % 4, x])
    with pytest.raises(UnsupportedOperatorError, match="categorical_features = .* encode categories"):
        import_estimator(ensemble.HistGradientBoostingRegressor(categorical_features=[0], max_iter=2).fit(grouped, y))
