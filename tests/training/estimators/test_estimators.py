"""Every estimator: fitted, compiled, quantised close to clear, encrypted equal to quantised; and its life in scikit-learn."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("xgboost", reason="XGBoost is not installed")

import pandas as pd  # noqa: E402
from sessions import Sessions  # noqa: E402
from sklearn import datasets, dummy, linear_model, neighbors, svm, tree  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

import cloakwork as cw  # noqa: E402
from cloakwork import estimators  # noqa: E402
from cloakwork.fhe_core.errors import DeviceError  # noqa: E402
from cloakwork.models.compiled import CompiledModel  # noqa: E402
from cloakwork.models.errors import CompileError, ShapeError  # noqa: E402
from cloakwork.models.program.client_specification import ClientSpecification  # noqa: E402
from cloakwork.models.runtime import Runtime  # noqa: E402

TOY = "toy_two_limb"
TREES: dict[str, Any] = {"sets": [TOY]}
LINEAR: dict[str, Any] = {"sets": [TOY]}
NETWORK: dict[str, Any] = {"precision": 2.0}
SIZES: dict[str, dict[str, Any]] = {
    "AdaBoostClassifier": {"n_estimators": 4},
    "BaggingClassifier": {"estimator": tree.DecisionTreeClassifier(max_depth=3), "n_estimators": 3},
    "BaggingRegressor": {"estimator": tree.DecisionTreeRegressor(max_depth=3), "n_estimators": 3},
    "DecisionTreeClassifier": {"max_depth": 4},
    "DecisionTreeRegressor": {"max_depth": 3},
    "RandomForestClassifier": {"n_estimators": 4, "max_depth": 4},
    "RandomForestRegressor": {"n_estimators": 3, "max_depth": 3},
    "ExtraTreesClassifier": {"n_estimators": 4, "max_depth": 4},
    "ExtraTreesRegressor": {"n_estimators": 3, "max_depth": 3},
    "GradientBoostingClassifier": {"n_estimators": 2},
    "GradientBoostingRegressor": {"n_estimators": 4},
    "HistGradientBoostingClassifier": {"max_iter": 2, "max_depth": 3},
    "HistGradientBoostingRegressor": {"max_iter": 3, "max_depth": 3},
    "IsolationForest": {"n_estimators": 4, "max_samples": 16},
    "XGBClassifier": {"n_estimators": 2, "max_depth": 3},
    "XGBRegressor": {"n_estimators": 3, "max_depth": 3},
    "LGBMClassifier": {"n_estimators": 2, "num_leaves": 6, "verbose": -1},
    "LGBMRegressor": {"n_estimators": 3, "num_leaves": 6, "verbose": -1},
    "MLPClassifier": {"hidden_layer_sizes": (4,), "max_iter": 400},
    "MLPRegressor": {"hidden_layer_sizes": (4,), "max_iter": 400, "solver": "lbfgs"},
    "KMeans": {"n_clusters": 3, "n_init": 1},
}
NAMES = [  # the others have no program: test_neighbours.py, test_batches.py
    name
    for name in estimators.__all__
    if not name.startswith("KNeighbors") and name not in ("SVC", "NuSVC", "SVR", "NuSVR")
]
LINEAR_NAMES = [name for name in NAMES if name not in SIZES]
TREE_NAMES = [name for name in SIZES if not name.startswith(("MLP", "KMeans"))]


def options(name: str) -> dict[str, Any]:
    if name in TREE_NAMES:
        return TREES
    return NETWORK if name.startswith("MLP") else LINEAR


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = datasets.load_iris(return_X_y=True)
    if name == "MultinomialNB":
        return x, y
    if name.endswith(("Classifier", "SVC", "NB")) or name in ("LogisticRegression", "LinearDiscriminantAnalysis"):
        return StandardScaler().fit_transform(x), y
    return x[:, :3], x[:, 3]


def fitted(name: str) -> tuple[Any, np.ndarray]:
    x, y = data(name)
    estimator = getattr(estimators, name)(**SIZES.get(name, {}))
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (ConvergenceWarning, FutureWarning))
        return estimator.fit(x, y), x


@pytest.fixture(scope="module")
def keys(sessions: Sessions) -> Any:
    def of(model: CompiledModel) -> dict[str, Any]:
        return dict(zip(("key", "session"), sessions(model.program.parameters.name), strict=True))

    return of


@pytest.mark.parametrize("name", NAMES)
def test_compiled_is_close_to_clear_and_encrypted_equals_compiled(name: str, keys: Any) -> None:
    estimator, x = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # LightGBM: names of columns
        clear = estimator.predict(x)
    model = estimator.compile(x, **options(name))
    quantised = estimator.predict(x)
    if hasattr(estimator, "classes_") or name in ("KMeans", "IsolationForest"):
        assert (quantised == clear).mean() >= 0.97
    else:
        assert np.abs(quantised - clear).max() <= 0.05 * np.ptp(clear)
    chosen = x[::60]
    encrypted = estimator.predict(chosen, how="encrypted", **keys(model))
    assert encrypted.dtype == quantised.dtype
    if name.startswith("MLP"):  # approximate look-ups
        assert np.abs(encrypted - quantised[::60]).max() <= (0 if name == "MLPClassifier" else 0.2 * np.ptp(clear))
    else:
        assert (encrypted == quantised[::60]).all()
        assert (estimator.predict(x, how="simulate", seed=1) == quantised).all()


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("Classifier") or n == "LogisticRegression"])
def test_probabilities_and_decisions(name: str, keys: Any) -> None:
    estimator, x = fitted(name)
    methods = [method for method in ("predict_proba", "decision_function") if hasattr(estimator, method)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        clear = {method: getattr(estimator, method)(x) for method in methods}
    model = estimator.compile(x, **options(name))
    for method in methods:
        quantised = getattr(estimator, method)(x)
        assert quantised.shape == clear[method].shape
        loss = 0.1 if name == "MLPClassifier" else 0.05  # approximate
        assert np.abs(quantised - clear[method]).max() <= loss * np.ptp(clear[method])
        if name != "MLPClassifier":
            assert (getattr(estimator, method)(x[:2], how="encrypted", **keys(model)) == quantised[:2]).all()
    assert hasattr(estimator, "predict_proba") == (
        name not in ("SGDClassifier", "RidgeClassifier")
    )  # hinge and squares have none


def test_isolation_scores(keys: Any) -> None:
    estimator, x = fitted("IsolationForest")
    clear = estimator.score_samples(x), estimator.decision_function(x)
    model = estimator.compile(x, leaf_bits=8, **TREES)
    assert np.abs(estimator.score_samples(x) - clear[0]).max() < 0.01
    assert np.abs(estimator.decision_function(x) - clear[1]).max() < 0.01
    encrypted = estimator.decision_function(x[:2], how="encrypted", **keys(model))
    assert (encrypted == estimator.decision_function(x[:2])).all()


@pytest.mark.parametrize(
    "name", ["DecisionTreeClassifier", "Ridge", "IsolationForest", "XGBClassifier", "LGBMRegressor", "KMeans"]
)
def test_a_saved_program_predicts(name: str, tmp_path: Path, keys: Any) -> None:
    estimator, x = fitted(name)
    model = estimator.compile(x, **options(name))
    estimator.save(tmp_path / "model.clkm")
    loaded = type(estimator).load(tmp_path / "model.clkm")
    assert (loaded.predict(x) == estimator.predict(x)).all()
    assert (loaded.predict(x[:2], how="encrypted", **keys(model)) == estimator.predict(x[:2])).all()
    with pytest.raises(CompileError, match=f"SVC.load: expected a program of a LinearSVC, got one of {name}"):
        estimators.LinearSVC.load(tmp_path / "model.clkm")


def test_labels_are_all_that_is_told(tmp_path: Path, keys: Any) -> None:
    estimator, x = fitted("DecisionTreeClassifier")
    clear = estimator.predict(x)
    model = estimator.compile(x, tell="labels", **TREES)
    assert (estimator.predict(x) == clear).all()
    assert (estimator.predict(x[:2], how="encrypted", **keys(model)) == clear[:2]).all()
    with pytest.raises(
        CompileError, match="tell='labels', so the client decrypts labels only; compile with tell='scores'"
    ):
        estimator.predict_proba(x)
    estimator.save(tmp_path / "model.clkm")
    assert list(estimators.DecisionTreeClassifier.load(tmp_path / "model.clkm").classes_) == [0, 1, 2]


def test_client_and_server_apart(keys: Any) -> None:
    estimator, x = fitted("RandomForestClassifier")
    model = estimator.compile(x, **TREES)
    made = keys(model)
    client = ClientSpecification.from_json(estimator.client.to_json())
    result = Runtime(model.program, made["session"]).run(client.encrypt(made["key"], x[:3]))
    assert (client.decrypt(made["key"], result) == estimator.predict(x[:3])).all()


def test_keys_are_made_on_the_first_encrypted_call() -> None:
    estimator, x = fitted("Ridge")
    estimator.compile(x, **LINEAR)
    first = estimator.predict(x[:2], how="encrypted")
    kept = estimator._encrypted_session
    assert (estimator.predict(x[:2], how="encrypted") == first).all()
    assert estimator._encrypted_session is kept
    assert estimator.compile(x, **LINEAR) is not None and not hasattr(estimator, "_encrypted_session")


@pytest.mark.parametrize("name", estimators.__all__)
def test_from_sklearn_of_every_class(name: str) -> None:
    cls = getattr(estimators, name)
    original = next(base for base in cls.__mro__[1:] if base.__name__ == name)
    options = {"verbose": -1} if name.startswith("LGBM") else {}
    fitted = original(**options)
    fitted.marked_ = 3
    made = cls.from_sklearn(fitted)
    assert type(made) is cls and made.marked_ == 3 and type(fitted) is original
    with pytest.raises(CompileError, match=f"{name}.from_sklearn: expected a {name}, got a DummyRegressor"):
        cls.from_sklearn(dummy.DummyRegressor())


def test_machines_and_neighbours_from_sklearn() -> None:
    x, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 2
    x[:, 0] += 2 * y
    for original in (svm.SVC(kernel="linear"), neighbors.KNeighborsClassifier()):
        fitted = original.fit(x, y)
        made = getattr(estimators, type(original).__name__).from_sklearn(fitted)
        assert (made.predict(x) == fitted.predict(x)).all()
        made.compile(x)
        assert (made.predict(x) == fitted.predict(x)).mean() > 0.95
    with pytest.raises(CompileError, match="expected a ElasticNet, got a Lasso"):
        estimators.ElasticNet.from_sklearn(linear_model.Lasso())


def test_from_sklearn() -> None:
    x, y = data("LogisticRegression")
    original = linear_model.LogisticRegression(C=0.3).fit(x, y)
    estimator = estimators.LogisticRegression.from_sklearn(original)
    assert type(original) is linear_model.LogisticRegression
    assert estimator.get_params()["C"] == 0.3
    estimator.compile(x, **LINEAR)
    assert (estimator.predict(x) == original.predict(x)).all()
    with pytest.raises(CompileError, match="Ridge.from_sklearn: expected a Ridge, got a LogisticRegression"):
        estimators.Ridge.from_sklearn(original)


def test_fitting_cloning_and_pickling_drop_the_program() -> None:
    estimator, x = fitted("Ridge")
    y = data("Ridge")[1]
    estimator.compile(x, **LINEAR)
    for copied in (clone(estimator), pickle.loads(pickle.dumps(estimator))):  # noqa: S301 (our own bytes)
        assert not hasattr(copied, "compiled_")
    assert hasattr(estimator, "compiled_")
    assert not hasattr(estimator.fit(x, y), "compiled_")


def test_pipelines_and_grid_search(keys: Any) -> None:
    x, y = data("DecisionTreeClassifier")
    search = GridSearchCV(estimators.DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}, cv=3).fit(x, y)
    best = search.best_estimator_
    assert isinstance(best, estimators.DecisionTreeClassifier) and best.max_depth == 3
    model = best.compile(x, **TREES)
    assert (search.predict(x) == best.predict(x)).all()
    pipeline = make_pipeline(StandardScaler(), estimators.LogisticRegression())
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=3).fit(x, y)
    last = search.best_estimator_[-1]
    model = last.compile(search.best_estimator_[:-1].transform(x), **LINEAR)
    encrypted = search.best_estimator_.predict(x[:3], how="encrypted", **keys(model))
    assert (encrypted == search.predict(x[:3])).all()


def test_bad_input() -> None:
    x, y = data("Ridge")
    frame = pd.DataFrame(x, columns=["length", "width", "petal"])
    estimator = estimators.Ridge()
    with pytest.raises(CompileError, match="Ridge: expected a fitted estimator; call fit"):
        estimator.compile(x)
    estimator.fit(frame, y)
    with pytest.raises(CompileError, match="how='encrypted' needs a compiled model; call compile\\(X\\)"):
        estimator.predict(frame, how="encrypted")
    with pytest.raises(CompileError, match="how: expected 'clear', 'simulate' or 'encrypted', got 'yes'"):
        estimator.predict(frame, how="yes")
    estimator.compile(frame, **LINEAR)
    with pytest.raises(ShapeError, match="in their order; missing \\['petal'\\], unexpected \\['size'\\]"):
        estimator.predict(frame.rename(columns={"petal": "size"}), how="simulate")
    with pytest.raises(ShapeError, match="column 'width' has missing values"):
        estimator.predict(frame.assign(width=np.nan))
    with pytest.raises(ShapeError, match=r"expected an array of shape \['samples', 3\], got \[150, 2\]"):
        estimator.predict(x[:, :2])
    with pytest.warns(UserWarning, match="1 of 1 samples have values beyond the calibrated range"):
        estimator.predict(x[:1] + 100)
    with pytest.raises(CompileError, match="a compiled model takes no options of the original's method, got raw_score"):
        tree, z = fitted("LGBMRegressor")
        tree.compile(z, **TREES)
        tree.predict(z, raw_score=True)
    with pytest.raises(CompileError, match="SGDClassifier: client needs a compiled model"):
        _ = estimators.SGDClassifier().client
    with pytest.raises(AttributeError, match="has no attribute 'GaussianProcessClassifier'"):
        _ = estimators.GaussianProcessClassifier  # type: ignore[attr-defined]


def test_a_network_on_raw_columns_decides_as_in_clear() -> None:
    """Columns from 0.001 to 4,000, hidden units that are always active and cancel each other: no standardisation, default options."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network = estimators.MLPClassifier((16,), max_iter=400, random_state=0).fit(x[::2], y[::2])
    clear = network.predict(x[1::2])
    network.compile(x[::2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # values beyond the calibrated range
        simulated = network.predict(x[1::2], how="simulate")
    assert (simulated == clear).mean() >= 0.97
    assert (simulated == y[1::2]).mean() >= (clear == y[1::2]).mean() - 0.01


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cloakwork.training.estimators.boosting", raising=False)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(CompileError, match=r"lightgbm is not installed; install .* pip install '\.\[boosting\]'"):
        _ = estimators.LGBMRegressor


def test_the_device_of_the_options_computes_encrypted_predictions() -> None:
    """Of every kind; a GPU that is not there is said, and files do not keep it."""
    x, y = datasets.load_iris(return_X_y=True)
    nowhere: dict[str, Any] = {"device": "cuda:999"}
    originals = [tree.DecisionTreeClassifier(max_depth=2), neighbors.KNeighborsClassifier(), svm.LinearSVC()]
    compiled = [cw.compile(each.fit(x, y), x, **nowhere) for each in originals]
    compiled.append(cw.compile(originals[2], x, batch=64, **nowhere))
    own = estimators.DecisionTreeClassifier(max_depth=2).fit(x, y)
    own.compile(x, **nowhere)
    for model in (*compiled, own):
        assert model.predict(x[:2]).tolist() == [0, 0]
        with pytest.raises(DeviceError):
            model.predict(x[:2], how="encrypted")
    assert compiled[0].predict(x[:2], how="encrypted", device="cpu").tolist() == [0, 0]
    with pytest.raises(CompileError, match="device: expected 'cpu', 'cuda' or 'cuda:N', got 'gpu'"):
        cw.compile(originals[0], x, device="gpu")
