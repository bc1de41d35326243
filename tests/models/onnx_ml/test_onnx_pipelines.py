"""Linear models, support vector machines and whole pipelines as skl2onnx writes them: columns by the client, the rest as LinearModel or trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

import pandas as pd  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType  # noqa: E402
from sklearn import compose, impute, linear_model, pipeline, preprocessing, svm, tree  # noqa: E402

import cloakwork as cw  # noqa: E402
from cloakwork.models.client_steps import run_input_steps  # noqa: E402
from cloakwork.models.errors import ShapeError, UnsupportedOperatorError  # noqa: E402
from cloakwork.models.linear.linear_model import LinearModel  # noqa: E402
from cloakwork.models.onnx_ml.importer import import_onnx_ml  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # skl2onnx reads what scikit-learn deprecates

RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(240, 4)).astype(np.float32) * [1, 10, 0.1, 3] + [0, 5, 0, -20]
X = X.astype(np.float32)
SCORE = X[:, 0] + X[:, 1] / 10 - 0.5
CLASSES = {2: (SCORE > 0).astype(int), 3: (SCORE > 0).astype(int) + (X[:, 3] > -20)}


def exported(estimator: Any, **options: Any) -> Any:
    return skl2onnx.to_onnx(estimator, options.pop("x", X[:1]), **options)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "estimator",
    [linear_model.LogisticRegression(max_iter=2000), svm.LinearSVC(), svm.SVC(kernel="linear")],
    ids=lambda estimator: type(estimator).__name__,
)
def test_classifiers(estimator: Any, classes: int) -> None:
    fitted = estimator.fit(X, CLASSES[classes])
    model = exported(fitted)
    if isinstance(estimator, svm.SVC) and classes == 3:
        with pytest.raises(UnsupportedOperatorError, match="votes for pairs of them; use LinearSVC"):
            import_onnx_ml(model)
        return
    _, found = import_onnx_ml(model)
    assert isinstance(found, LinearModel)
    np.testing.assert_array_equal(found.evaluate(X), fitted.predict(X))
    if hasattr(fitted, "predict_proba"):
        np.testing.assert_allclose(found.probabilities(X), fitted.predict_proba(X), atol=1e-4)
    else:
        scores = found.scores(X)
        expected = fitted.decision_function(X)
        np.testing.assert_allclose(scores[:, 0] if classes == 2 else scores, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "estimator",
    [linear_model.Ridge(), linear_model.LinearRegression(), svm.LinearSVR(max_iter=100000), svm.SVR(kernel="linear")],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_regressors(estimator: Any) -> None:
    fitted = estimator.fit(X, SCORE)
    _, found = import_onnx_ml(exported(fitted))
    np.testing.assert_allclose(found.evaluate(X), fitted.predict(X), rtol=1e-3, atol=1e-3)
    compiled = cw.compile(exported(fitted), X)
    np.testing.assert_allclose(compiled.predict(X), fitted.predict(X), atol=2e-3 * np.ptp(fitted.predict(X)) + 1e-3)


def test_scalers_and_their_kin() -> None:
    x = X.copy()
    x[::7, 0] = np.nan
    steps = (
        impute.SimpleImputer(),
        preprocessing.StandardScaler(),
        preprocessing.MinMaxScaler(),
        preprocessing.Normalizer(),
    )
    fitted = pipeline.make_pipeline(*steps, linear_model.LogisticRegression()).fit(x, CLASSES[3])
    before, found = import_onnx_ml(exported(fitted))
    assert isinstance(found, LinearModel)
    np.testing.assert_allclose(run_input_steps(before, x), fitted[:-1].transform(x), atol=1e-5)
    np.testing.assert_allclose(found.probabilities(run_input_steps(before, x)), fitted.predict_proba(x), atol=1e-4)


def test_a_column_transformer_of_numbers() -> None:
    parts = [("a", preprocessing.StandardScaler(), [3, 0]), ("b", preprocessing.MinMaxScaler(), [1])]
    columns = compose.ColumnTransformer(parts)
    fitted = pipeline.make_pipeline(columns, preprocessing.MaxAbsScaler(), tree.DecisionTreeClassifier(max_depth=3))
    fitted.fit(X, CLASSES[3])
    compiled = cw.compile(exported(fitted), thresholds="client")
    assert (compiled.predict(X) == fitted.predict(X)).mean() >= 0.99  # float32 scaling next to thresholds
    with pytest.raises(ShapeError, match="expected an array of shape"):
        compiled.predict(X[:, :3])


def table() -> pd.DataFrame:
    frame = pd.DataFrame(
        {"size": X[:, 0], "kind": np.array(["x", "y", "z"])[CLASSES[3]], "level": CLASSES[2] * 2, "age": X[:, 1]}
    )
    frame.loc[::9, "size"] = np.nan
    return frame


def test_a_table_with_texts_and_numbers() -> None:
    frame = table()
    numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    parts = [
        ("numbers", numbers, ["age", "size"]),
        ("kinds", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["kind"]),
        ("levels", preprocessing.OneHotEncoder(drop="first"), ["level"]),
    ]
    fitted = pipeline.make_pipeline(compose.ColumnTransformer(parts), linear_model.LogisticRegression())
    fitted.fit(frame, CLASSES[2])
    types = [
        ("size", FloatTensorType([None, 1])),
        ("kind", StringTensorType([None, 1])),
        ("level", Int64TensorType([None, 1])),
        ("age", FloatTensorType([None, 1])),
    ]
    compiled = cw.compile(exported(fitted, x=None, initial_types=types), frame)
    assert (compiled.predict(frame) == fitted.predict(frame)).all()
    with pytest.raises(ShapeError, match="column 'level' has a category that the training data had not"):
        compiled.predict(frame.assign(level=7))
    parts[2] = ("levels", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["level"])
    fitted = pipeline.make_pipeline(compose.ColumnTransformer(parts), linear_model.LogisticRegression())
    fitted.fit(frame, CLASSES[2])
    compiled = cw.compile(exported(fitted, x=None, initial_types=types), frame)
    assert (compiled.predict(frame) == fitted.predict(frame)).all()
    np.testing.assert_allclose(compiled.predict(frame, output="probabilities"), fitted.predict_proba(frame), atol=1e-3)
    unseen = frame.head(3).assign(kind="w")
    np.testing.assert_array_equal(compiled.predict(unseen), fitted.predict(unseen))
    with pytest.raises(ShapeError, match="missing \\['age'\\]"):
        compiled.predict(frame.drop(columns="age"))


def test_other_nodes_are_named() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="bent"),
        helper.make_node(
            "LinearRegressor", ["a"], ["y"], domain="ai.onnx.ml", coefficients=[1.0, 2.0], intercepts=[0.0]
        ),
        helper.make_node("Exp", ["y"], ["z"], name="grown"),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_onnx_ml(helper.make_model(graph))
    assert "Relu 'bent': the client has no such step" in str(caught.value)
    assert "Exp 'grown': not one of" in str(caught.value)
    kernel = svm.SVR(kernel="rbf").fit(X, SCORE)
    with pytest.raises(UnsupportedOperatorError, match="kernel RBF; only the linear one"):
        import_onnx_ml(exported(kernel))
