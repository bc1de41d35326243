"""What boosters of XGBoost and LightGBM answer: absent numbers of sparse matrices, the best round, one class, names; as their own `predict`."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")

import pandas as pd  # noqa: E402
from sklearn import compose, ensemble, feature_extraction, model_selection, pipeline, preprocessing, tree  # noqa: E402

import cloakwork as cw  # noqa: E402
from cloakwork.models.errors import CompileError, ShapeError, UnsupportedOperatorError  # noqa: E402
from cloakwork.training.importers import import_estimator  # noqa: E402

RNG = np.random.default_rng(5)
ROWS = 240
TABLE = pd.DataFrame(
    {
        "a": RNG.integers(0, 6, ROWS).astype(float),
        "city": RNG.choice(["p", "q", "r", "s"], ROWS),
        "plan": RNG.choice(list("xyz"), ROWS),
    }
)
LABELS = ((TABLE.a > 2) ^ (TABLE.plan == "x") ^ (RNG.random(ROWS) < 0.1)).astype(int).to_numpy()
X = RNG.normal(size=(ROWS, 4))
Y = (X[:, 0] + 0.5 * RNG.normal(size=ROWS) > 0).astype(int)
make = pipeline.make_pipeline
CLIENT: dict[str, Any] = {"thresholds": "client", "leaf_bits": 8}


def trees(**options: Any) -> Any:
    return xgboost.XGBClassifier(n_estimators=5, max_depth=3, **options)


def hot(**options: Any) -> Any:
    return compose.ColumnTransformer(
        [("c", preprocessing.OneHotEncoder(**options), ["city", "plan"])], remainder="passthrough"
    )


# --- zeros that a sparse matrix leaves out --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        make(hot(), trees()),
        make(hot(sparse_output=False), trees()),
        make(hot(), preprocessing.MaxAbsScaler(), trees()),
        make(hot(), model_selection.GridSearchCV(trees(), {"max_depth": [2]}, cv=2)),
        make(hot(), ensemble.VotingClassifier([("x", trees()), ("y", trees(max_bin=4))], voting="soft")),
        make(hot(), ensemble.BaggingClassifier(trees(), n_estimators=2, max_features=0.7, random_state=0)),
    ],
    ids=["sparse", "dense", "scaled", "searched", "voting", "bagging"],
)
@pytest.mark.parametrize("options", [CLIENT, {"thresholds": "server"}, {}], ids=["client", "server", "grid"])
def test_zeros_of_sparse_features_are_missing(estimator: Any, options: dict[str, Any]) -> None:
    fitted = estimator.fit(TABLE, LABELS)
    compiled = cw.compile(fitted, TABLE, **options)
    assert (compiled.predict(TABLE) == fitted.predict(TABLE)).mean() > 0.98
    if options == CLIENT:
        assert np.abs(compiled.predict(TABLE, output="probabilities") - fitted.predict_proba(TABLE)).max() < 0.03
        with pytest.raises(ShapeError, match=r"missing values \(NaN\)"):  # the user's own are none
            compiled.predict(TABLE.assign(a=np.nan))


def test_texts_and_bins_are_sparse() -> None:
    words = np.array(["red", "green", "blue", "old", "new"])
    texts = [" ".join(RNG.choice(words, 4)) for _ in range(ROWS)]
    labels = np.array([int(text.count("red") > text.count("old")) for text in texts])
    fitted = make(feature_extraction.text.TfidfVectorizer(), trees()).fit(texts, labels)
    assert (cw.compile(fitted, texts, **CLIENT).predict(texts) == fitted.predict(texts)).all()
    binned = make(preprocessing.KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf"), trees()).fit(X, Y)
    assert (cw.compile(binned, X, **CLIENT).predict(X) == binned.predict(X)).all()
    members = [("b", binned), ("t", make(preprocessing.StandardScaler(), trees()))]
    voting = ensemble.VotingClassifier(members, voting="soft").fit(X, Y)  # the zeros of one member only are missing
    found = cw.compile(voting, X, **CLIENT).predict(X, output="probabilities")
    assert np.abs(found - voting.predict_proba(X)).max() < 0.03


def test_zeros_that_a_sparse_matrix_holds_are_refused() -> None:
    """Splines without and with a value of 0: those that are stored are numbers to XGBoost."""
    fitted = make(preprocessing.SplineTransformer(3, sparse_output=True), trees()).fit(np.round(X, 1), Y)
    with pytest.raises(UnsupportedOperatorError, match="a sparse matrix that holds zeros"):
        cw.compile(fitted, np.round(X, 1), **CLIENT)
    dense = make(preprocessing.SplineTransformer(3), trees()).fit(np.round(X, 1), Y)
    assert (cw.compile(dense, np.round(X, 1), **CLIENT).predict(np.round(X, 1)) == dense.predict(np.round(X, 1))).all()


def test_zero_marks_missing_values() -> None:
    x = np.where(RNG.random(X.shape) < 0.3, 0.0, X)
    fitted = trees(missing=0).fit(x, Y)
    assert (cw.compile(fitted, x, **CLIENT).predict(x) == fitted.predict(x)).all()
    x[::9, 1] = np.nan  # missing all the same
    fitted = trees(missing=0.0).fit(x, Y)
    assert (cw.compile(fitted, x, **CLIENT).predict(x) == fitted.predict(x)).all()
    with pytest.raises(UnsupportedOperatorError, match="missing = -1"):
        import_estimator(trees(missing=-1.0).fit(X, Y))


# --- rounds ---------------------------------------------------------------------------------------------------------------------


def stopped(**options: Any) -> Any:
    fitted = xgboost.XGBClassifier(n_estimators=60, learning_rate=0.6, **options)
    return fitted.fit(X[:120], Y[:120], eval_set=[(X[120:], Y[120:])], verbose=False)


def saved(fitted: Any, folder: Path) -> Any:
    fitted.save_model(folder / "model.ubj")
    loaded = type(fitted)()
    loaded.load_model(folder / "model.ubj")
    return loaded


def test_xgboost_stops_at_its_best_round(tmp_path: Path) -> None:
    by_callback = stopped(callbacks=[xgboost.callback.EarlyStopping(rounds=3)])
    by_option = stopped(early_stopping_rounds=3)
    kept = stopped(callbacks=[xgboost.callback.EarlyStopping(rounds=3, save_best=True)])
    dart = stopped(early_stopping_rounds=3, booster="dart", rate_drop=0.2)
    forests = stopped(early_stopping_rounds=3, num_parallel_tree=2, subsample=0.7)
    for fitted in (by_callback, by_option, kept, dart, forests, saved(by_option, tmp_path), saved(forests, tmp_path)):
        model: Any = import_estimator(fitted)
        assert np.abs(model.probabilities(X) - fitted.predict_proba(X)).max() < 1e-5
        assert (model.evaluate(X) == fitted.predict(X)).all()


def test_lightgbm_stops_at_its_best_round() -> None:
    fitted = lightgbm.LGBMClassifier(n_estimators=60, learning_rate=0.6, verbose=-1, min_child_samples=5)
    stop = [lightgbm.early_stopping(3, verbose=False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions call eval_set otherwise
        fitted.fit(X[:120], Y[:120], eval_set=[(X[120:], Y[120:])], callbacks=stop)
    assert fitted.best_iteration_ < 60
    copied = copy.deepcopy(fitted)  # forgets the best round
    for each in (fitted, copied):
        model: Any = import_estimator(each)
        np.testing.assert_allclose(model.probabilities(X), each.predict_proba(X), atol=1e-9)


def test_leaves_that_are_no_numbers() -> None:
    fitted = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1, min_child_samples=5).fit(X, X[:, 0])
    fitted.booster_.set_leaf_output(0, 0, float("nan"))
    with pytest.raises((UnsupportedOperatorError, CompileError), match="no numbers|finite leaf values"):
        import_estimator(fitted)


# --- classes and names --------------------------------------------------------------------------------------------------------------


def test_one_class_alone() -> None:
    for estimator in (trees(), lightgbm.LGBMClassifier(n_estimators=2, verbose=-1)):
        fitted = estimator.fit(X, np.zeros(ROWS, dtype=int))
        compiled = cw.compile(fitted, X, **CLIENT)
        assert (compiled.predict(X) == fitted.predict(X)).all()
        found = compiled.predict(X, output="probabilities")
        np.testing.assert_allclose(found, fitted.predict_proba(X), atol=1e-3)


def test_lightgbm_takes_names_with_blanks() -> None:
    table = pd.DataFrame(X[:, :3], columns=["my age", "income in EUR", "c"])
    fitted = lightgbm.LGBMClassifier(n_estimators=4, verbose=-1).fit(table, Y)
    compiled = cw.compile(fitted, table, **CLIENT)
    assert (compiled.predict(table) == fitted.predict(table)).mean() > 0.98
    with pytest.raises(ShapeError, match="the order differs"):
        compiled.predict(table[["c", "my age", "income in EUR"]])
    unnamed = lightgbm.LGBMClassifier(n_estimators=4, verbose=-1).fit(X[:, :3], Y)
    assert (cw.compile(unnamed, X[:, :3], **CLIENT).predict(table) == unnamed.predict(X[:, :3])).all()


def test_trees_beside_members_of_sparse_features() -> None:
    """scikit-learn's trees take absent numbers as zeros, XGBoost's as missing: they compare in different ways and are refused."""
    members = [("x", trees()), ("t", tree.DecisionTreeClassifier(max_depth=3))]
    fitted = make(hot(), ensemble.VotingClassifier(members, voting="soft")).fit(TABLE, LABELS)
    with pytest.raises(UnsupportedOperatorError, match="compare features in different ways"):
        cw.compile(fitted, TABLE, **CLIENT)
