"""Linear models and support vector machines for batches of encrypted samples: scikit-learn's decisions, one sample a slot."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import linear_model, svm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import cloakwork as cw
from cloakwork import estimators
from cloakwork.models.errors import AccuracyError, CompileError, ImportFaultError, UnsupportedOperatorError
from cloakwork.training.batch_compiler import generate_keys
from cloakwork.training.importers import kernels
from cloakwork.training.importers.kernels import dual_weights

SAMPLES = 5000


def same(model: Any, x: np.ndarray, y: np.ndarray, least: float = 0.99, **options: Any) -> Any:
    """Compiled, encrypted as the integers in clear, and nearly as scikit-learn decides."""
    model.fit(x, y)
    made = cw.compile(model, x, batch=SAMPLES, **options)
    theirs = model.predict(x)
    if theirs.dtype.kind == "f":
        off = np.sqrt(np.mean(np.square(made.predict(x) - theirs)))
        assert off <= (1 - least) * np.std(theirs) + 1e-9 * np.abs(theirs).max()
    else:
        assert (made.predict(x) == theirs).mean() >= least
    keys = generate_keys(made)
    np.testing.assert_array_equal(made.predict(x[:40], "encrypted", key=keys), made.predict(x[:40]))
    integers = made.client.integers(x)
    np.testing.assert_array_equal(made.encrypted_outputs(keys, integers), made.outputs(integers))
    return made


def raw(features: int = 6, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Features of very different units."""
    x, y = make_classification(
        300, features, n_informative=features, n_redundant=0, n_classes=classes, n_clusters_per_class=1, random_state=1
    )
    return x * 10.0 ** np.arange(-3, features - 3) + 1000.0 * np.arange(features), y


@pytest.mark.parametrize(
    "model",
    [
        linear_model.LogisticRegression(max_iter=60),
        make_pipeline(StandardScaler(), PCA(20), linear_model.LogisticRegression(max_iter=60)),
        svm.LinearSVC(random_state=0, max_iter=60),
        linear_model.RidgeClassifier(),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_digits(model: Any) -> None:
    x, y = load_digits(return_X_y=True)
    made = same(model, x, y)
    assert made.packing == "slots" and made.client.parameters[0].set.name == "bgv12"
    assert not made.client.products  # no evaluation keys, and no projection at the client
    assert [type(step).__name__ for step in made.client.input_steps] == ["Columns", "Rescale", "Round"]


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
@pytest.mark.parametrize("break_ties", [False, True])
def test_pairs_of_classes_vote_as_scikit_learns(kernel: str, break_ties: bool) -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = svm.SVC(kernel=kernel, degree=2, coef0=1, break_ties=break_ties)
    made = same(model, x, names)
    np.testing.assert_allclose(made.predict(x, output="scores"), model.decision_function(x), atol=0.02)
    model.set_params(decision_function_shape="ovo", break_ties=False)
    made = cw.compile(model.fit(x, names), x, batch=SAMPLES)
    np.testing.assert_allclose(made.predict(x, output="scores"), model.decision_function(x), atol=0.02)


def test_ties_of_votes() -> None:
    """Three classes in a circle, every one beaten once: of equal votes the first class, or with break_ties the one of largest sums."""
    x = np.random.default_rng(3).standard_normal((400, 2))
    y = np.random.default_rng(4).integers(0, 6, 400)
    for break_ties in (False, True):
        model = svm.SVC(C=10, break_ties=break_ties).fit(x, y)
        made = cw.compile(model, x, batch=SAMPLES)
        assert (made.predict(x) == model.predict(x)).mean() > 0.98


@pytest.mark.parametrize("degree", [2, 3])
def test_kernels_of_scaled_features(degree: int) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), PCA(5), svm.SVC(kernel="poly", degree=degree, coef0=1))
    made = same(model, x, y)
    np.testing.assert_allclose(made.scores(x)[:, 0], model.decision_function(x), atol=0.3)
    same(make_pipeline(StandardScaler(), svm.SVC()), x, y)


@pytest.mark.tier("all")
def test_a_quadratic_form_is_squares_on_the_server() -> None:
    """Thirty features: squares along eigenvectors cost less than 495 products that the client would send."""
    x, y = load_breast_cancer(return_X_y=True)
    made = same(make_pipeline(StandardScaler(), svm.SVC(kernel="poly", degree=2, coef0=1)), x, y, 0.98)
    assert made.client.products and len(made.formula.inner) <= 31
    assert "squares along the eigenvectors" in made.report()["kind"]


@pytest.mark.parametrize(
    "model",
    [
        linear_model.Ridge(),
        linear_model.LinearRegression(),
        make_pipeline(StandardScaler(), PCA(5), linear_model.LinearRegression()),
        make_pipeline(StandardScaler(), svm.SVR(C=100)),
        pytest.param(
            make_pipeline(StandardScaler(), svm.SVR(kernel="poly", degree=2, C=10)), marks=pytest.mark.tier("all")
        ),
        svm.SVR(kernel="linear"),
        make_pipeline(PolynomialFeatures(2), linear_model.Ridge()),
    ],
    ids=str,
)
def test_values(model: Any) -> None:
    x, y = load_diabetes(return_X_y=True)
    same(model, x, y, 0.995)


def test_raw_units_and_odd_shapes() -> None:
    x, y = raw()
    same(LinearDiscriminantAnalysis(), x, y, 0.98)
    same(make_pipeline(StandardScaler(), svm.SVC(kernel="poly", degree=2)), x, y, 0.98)
    same(linear_model.LinearRegression(), x[:, :1], y.astype(float))
    same(svm.SVC(kernel="linear"), np.array([[0.0], [1.0]]), np.array([0, 1]), accuracy=0)
    constant = np.concatenate([x[:, :3] * [1000, 100, 10], np.full((300, 1), 7.0), np.zeros((300, 1))], axis=1)
    same(make_pipeline(StandardScaler(), svm.SVC()), constant, y)
    same(linear_model.Ridge(), constant, np.full(300, 3.5))
    targets = np.stack([y, 2 * y - 1], axis=1).astype(float)
    same(linear_model.Ridge(), x, targets)


@pytest.mark.tier("all")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_classes() -> None:
    rng = np.random.default_rng(5)
    y = np.arange(800) % 40
    x = rng.standard_normal((40, 6))[y] * 4 + 0.3 * rng.standard_normal((800, 6))
    same(linear_model.LogisticRegression(max_iter=50), x, y)
    made = same(svm.SVC(kernel="linear"), x, y)
    assert made.formula.outputs == 780  # pairs


# --- the estimators of this package ---


def test_linear_estimators() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    ours = make_pipeline(StandardScaler(), estimators.LogisticRegression()).fit(x, y)
    last, scaled = ours[-1], ours[:-1].transform(x)
    theirs = linear_model.LogisticRegression().fit(scaled, y)
    made = last.compile(scaled, batch=SAMPLES)
    assert made.packing == "slots" and last.batch_ is made
    np.testing.assert_array_equal(last.predict(scaled[:50], how="encrypted", threads=2), theirs.predict(scaled[:50]))
    np.testing.assert_allclose(last.predict_proba(scaled, how="encrypted"), theirs.predict_proba(scaled), atol=0.01)
    np.testing.assert_allclose(last.decision_function(scaled), theirs.decision_function(scaled), atol=0.05)
    assert not hasattr(clone(last), "batch_") and not hasattr(pickle.loads(pickle.dumps(last)), "batch_")  # noqa: S301 (our own)
    last.compile(scaled)  # a program of look-ups takes its place
    assert not hasattr(last, "batch_") and last.predict(scaled[:2], how="encrypted").tolist() == y[:2].tolist()
    with pytest.raises(CompileError, match="threads and device for a compiled batch, got return_std"):
        ridge = estimators.Ridge().fit(x, y)
        ridge.compile(x, batch=SAMPLES)
        ridge.predict(x, return_std=True)


def test_few_samples_are_a_program() -> None:
    x, y = load_iris(return_X_y=True)
    ours = estimators.LogisticRegression(max_iter=500).fit(x, y)
    made = ours.compile(x, batch=1)
    assert made.packing == "ciphertexts" and made.single is not None
    np.testing.assert_array_equal(ours.predict(x[::30], how="encrypted"), ours.predict(x[::30]))
    np.testing.assert_allclose(
        ours.predict_proba(x), linear_model.LogisticRegression(max_iter=500).fit(x, y).predict_proba(x), atol=0.01
    )
    with pytest.raises(CompileError, match="ClientKey of the set 'lut3'"):
        ours.predict(x, how="encrypted", key=[3])


def test_machines() -> None:
    x, y = load_iris(return_X_y=True)
    for kind, theirs in ((estimators.SVC, svm.SVC), (estimators.NuSVC, svm.NuSVC)):
        ours, plain = kind().fit(x, y), theirs().fit(x, y)
        np.testing.assert_array_equal(ours.predict(x), plain.predict(x))
        ours.compile(x, batch=SAMPLES)
        np.testing.assert_array_equal(ours.predict(x[::3], how="encrypted"), ours.predict(x[::3]))
        np.testing.assert_allclose(ours.decision_function(x, how="encrypted"), plain.decision_function(x), atol=0.05)
        assert not hasattr(clone(ours), "batch_") and not hasattr(ours.fit(x, y), "batch_")
    for kind, theirs in ((estimators.SVR, svm.SVR), (estimators.NuSVR, svm.NuSVR)):
        ours, plain = kind().fit(x, y), theirs().fit(x, y)
        ours.compile(x, batch=2)
        np.testing.assert_allclose(ours.predict(x[:3], how="encrypted"), plain.predict(x[:3]), atol=0.05)


def test_what_cannot_be_compiled() -> None:
    x, y = load_iris(return_X_y=True)
    with pytest.raises(CompileError, match="fitted"):
        estimators.SVC().compile(x, batch=5)
    with pytest.raises(CompileError, match="call compile"):
        estimators.SVC().fit(x, y).predict(x, how="encrypted")
    with pytest.raises(UnsupportedOperatorError, match="linear, poly or rbf"):
        estimators.SVC(kernel="sigmoid").fit(x, y).compile(x)
    with pytest.raises(UnsupportedOperatorError, match="kernel"):
        estimators.SVC(kernel=lambda a, b: a @ b.T).fit(x, y).compile(x)
    with pytest.raises(UnsupportedOperatorError, match="batches are of linear models"):
        cw.compile(DecisionTreeClassifier().fit(x, y), x, batch=5)
    with pytest.raises(CompileError, match="got none"):
        estimators.SVC().fit(x, y).compile(x[:0])
    with pytest.raises(UnsupportedOperatorError, match="constant kernel"):
        estimators.SVC(kernel="poly", degree=0).fit(x, y).compile(x)


def test_a_batch_is_judged_by_the_machine_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = load_iris(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), svm.SVC()).fit(x, y)
    made = cw.compile(fitted, x, batch=SAMPLES)
    assert made.original is not None and made.original.at_least > 0.97
    assert str(made).startswith("as your model: ") and made.report()["original"]["samples"] == 150
    with pytest.raises(
        AccuracyError, match="SVC|Pipeline.*the encrypted model decides as it on .* 97 % were asked for"
    ):
        cw.compile(fitted, x, batch=SAMPLES, ranges={2: (1.0, 2.0), 3: (0.1, 0.5)})
    monkeypatch.setattr(kernels, "dual_weights", lambda machine: (-dual_weights(machine)[0], dual_weights(machine)[1]))
    with pytest.raises(ImportFaultError, match="as imported it gives .* where the model says .* by its own predict"):
        cw.compile(fitted, x, batch=SAMPLES)
