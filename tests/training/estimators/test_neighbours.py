"""KNeighborsClassifier and -Regressor: scikit-learn's until compiled, and then the encrypted table's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import neighbors
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cloakwork import estimators
from cloakwork.models.errors import AccuracyError, CompileError


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_a_classifier(weights: str) -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    ours = estimators.KNeighborsClassifier(7, weights=weights).fit(x[::2], names[::2])
    theirs = neighbors.KNeighborsClassifier(7, weights=weights).fit(x[::2], names[::2])
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    ours.compile()
    assert (ours.predict(x[1::2]) == theirs.predict(x[1::2])).mean() > 0.95
    np.testing.assert_array_equal(ours.predict(x[1::10], how="encrypted"), ours.predict(x[1::10]))


def test_cells() -> None:
    x, y = load_iris(return_X_y=True)
    ours = estimators.KNeighborsClassifier(3).fit(x, y)
    clear = ours.predict(x)
    index = ours.compile(cells=8, probes=4)
    assert index.client.cells is not None and index.report()["answer_bytes"] <= 100_000
    assert (ours.predict(x) == clear).mean() > 0.95
    np.testing.assert_array_equal(ours.predict(x[::50], how="encrypted"), ours.predict(x[::50]))


def test_a_regressor() -> None:
    x, y = load_diabetes(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    ours = estimators.KNeighborsRegressor().fit(x, y)
    clear = ours.predict(x)
    with pytest.raises(
        AccuracyError, match=r"KNeighborsRegressor: the encrypted model keeps its values .* to 9[0-9.]+ % of 300"
    ):
        ours.compile()
    index = ours.compile(accuracy=0.9)
    assert index.original is not None and index.original.value > 0.9
    assert index.report()["original"]["value"] == index.original.value
    assert np.corrcoef(ours.predict(x), clear)[0, 1] > 0.98
    np.testing.assert_array_equal(ours.predict(x[:5], how="encrypted"), ours.predict(x[:5]))


def test_it_is_an_estimator() -> None:
    x, y = load_iris(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), estimators.KNeighborsClassifier()),
        {"kneighborsclassifier__n_neighbors": [1, 5]},
        cv=3,
    )
    scale, last = search.fit(x, y).best_estimator_
    last.compile()
    assert last.predict(scale.transform(x[:1]), how="encrypted") == y[:1]
    assert not hasattr(clone(last), "index_")
    again = pickle.loads(pickle.dumps(last))  # noqa: S301 (our own)
    assert not hasattr(again, "index_") and not hasattr(again, "_key")
    assert not hasattr(last.fit(x, y), "index_")


def test_what_cannot_be_compiled() -> None:
    x, y = load_iris(return_X_y=True)
    with pytest.raises(CompileError, match="call fit first"):
        estimators.KNeighborsClassifier().compile()
    with pytest.raises(CompileError, match=r"call compile\(\)"):
        estimators.KNeighborsClassifier().fit(x, y).predict(x, how="encrypted")
    for other in (
        estimators.KNeighborsClassifier(metric="manhattan"),
        estimators.KNeighborsClassifier(weights=lambda d: 1 / (1 + d)),
    ):
        with pytest.raises(CompileError, match="metric euclidean or cosine"):
            other.fit(x, y).compile()
    with pytest.raises(CompileError, match="one output"):
        estimators.KNeighborsRegressor().fit(x, np.stack([y, y], axis=1)).compile()
