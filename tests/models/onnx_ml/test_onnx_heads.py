"""What skl2onnx, onnxmltools and CatBoost write with a label and probabilities: the label of the estimator, with or without ZipMap."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import datasets, decomposition, linear_model, naive_bayes, neural_network, pipeline, preprocessing

import cloakwork as cw
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.onnx_ml.compile_onnx_ml import compile_onnx_ml
from cloakwork.models.onnx_ml.importer import Network, import_onnx_ml
from cloakwork.models.options import Options
from cloakwork.models.trees.ensemble import TreeEnsemble

EXACT = {"thresholds": "client"}
X, Y = datasets.load_iris(return_X_y=True)
X = X.astype(np.float32)
NAMES = np.array(["setosa", "versicolor", "virginica"])
make, logistic = pipeline.make_pipeline, linear_model.LogisticRegression(max_iter=2000)
LINEAR: dict[str, Any] = {
    "sgd": linear_model.SGDClassifier(random_state=0),
    "sgd logistic": linear_model.SGDClassifier(loss="log_loss", random_state=0),
    "perceptron": linear_model.Perceptron(),
    "gaussian": naive_bayes.GaussianNB(),
    "multinomial": naive_bayes.MultinomialNB(),
    "bernoulli": naive_bayes.BernoulliNB(binarize=1.5),
    "scaled": make(preprocessing.StandardScaler(), linear_model.SGDClassifier(random_state=0)),
    "components": make(decomposition.PCA(2), logistic),
    "whitened": make(preprocessing.MinMaxScaler(), decomposition.PCA(3, whiten=True), logistic),
    "svd": make(decomposition.TruncatedSVD(2), logistic),
    "polynomials": make(preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(3), logistic),
    "binarizer": make(preprocessing.Binarizer(threshold=2.0), logistic),
    "union": make(pipeline.FeatureUnion([("p", decomposition.PCA(2)), ("s", preprocessing.StandardScaler())]), logistic),
}  # fmt: skip


def written(estimator: Any, x: np.ndarray, zipmap: bool) -> onnx.ModelProto:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return skl2onnx.to_onnx(
            estimator, x[:1], options={id(estimator): {"zipmap": zipmap}}, target_opset={"": 17, "ai.onnx.ml": 3}
        )


def samples(classes: int, text: bool = False) -> tuple[np.ndarray, np.ndarray]:
    x, y = X[Y < classes], Y[Y < classes]
    return x, NAMES[y] if text else y


def fitted(estimator: Any, x: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(x, y)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_scores(name: str, classes: int) -> None:
    """With ZipMap and numbers as labels, and without and texts."""
    for zipmap in (True, False):
        x, y = samples(classes, text=not zipmap)
        member = fitted(LINEAR[name], x, y)
        model = written(member, x, zipmap)
        _, found = import_onnx_ml(model)
        assert isinstance(found, LinearModel)
        compiled = cw.compile(model, x)
        assert compiled.program.bootstraps == 0
        assert (compiled.predict(x) == member.predict(x)).mean() >= 0.97
        if hasattr(member, "predict_proba") and name not in ("sgd logistic",):
            assert np.abs(compiled.predict(x, output="probabilities") - member.predict_proba(x)).mean() < 0.02


@pytest.mark.parametrize("classes", [2, 3])
def test_a_network_of_scikit_learn(classes: int) -> None:
    x, y = samples(classes, text=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    net = neural_network.MLPClassifier(hidden_layer_sizes=(6,), max_iter=300, random_state=0, learning_rate_init=0.02)
    member = fitted(make(preprocessing.StandardScaler(), net), x, y)
    for zipmap in (True, False):
        model = written(member, x, zipmap)
        steps, found = import_onnx_ml(model)
        assert isinstance(found, Network) and len(steps) == 2
        compiled = cw.compile(model, x)
        assert 0 < compiled.program.bootstraps <= 6
        assert (compiled.predict(x) == member.predict(x)).mean() >= 0.95
        assert compile_onnx_ml(model, x, Options(precision=1.0)).report()["noise_limit_percent"] == 1.0
        shares = compiled.predict(x, output="probabilities")
        assert shares.shape == (len(x), classes) and np.abs(shares.sum(axis=1) - 1).max() < 1e-9


def test_one_hot_codes_of_numbers() -> None:
    """skl2onnx writes a cast to whole numbers before the encoder: 2.7 counts as 2 there."""
    x, y = samples(3)
    x = np.round(x)
    member = make(preprocessing.OneHotEncoder(handle_unknown="ignore"), logistic).fit(x, y)
    model = written(member, x, False)
    compiled = cw.compile(model, x)
    assert (compiled.predict(x) == member.predict(x)).all()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    strange = np.concatenate([x[:20] + 0.7, x[:20] - 50, -x[:20]]).astype(np.float32)
    expected = session.run(None, {model.graph.input[0].name: strange})[0]
    assert (compiled.predict(strange) == expected).all()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("zipmap", [True, False])
def test_lightgbm(classes: int, zipmap: bool) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    onnxmltools = pytest.importorskip("onnxmltools", reason="onnxmltools is not installed")
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = samples(classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        member = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=5, verbose=-1).fit(x, y)
        model = onnxmltools.convert_lightgbm(member, initial_types=[("x", FloatTensorType([None, 4]))], zipmap=zipmap)
        expected = member.predict(x)
    _, found = import_onnx_ml(model)
    assert isinstance(found, TreeEnsemble)
    assert (found.evaluate(x) == expected).all()


def catboost_graph(classes: int) -> onnx.ModelProto:
    """Two symmetric trees as CatBoost writes them: `>` at every node, a weight for each class in every leaf, an input of an unnamed batch."""
    rng = np.random.default_rng(classes)
    nodes: dict[str, list[Any]] = {
        key: [] for key in ("treeids", "nodeids", "featureids", "values", "modes", "true", "false")
    }
    leaves: dict[str, list[Any]] = {key: [] for key in ("treeids", "nodeids", "ids", "weights")}
    for number in range(2):
        for node in range(7):
            inner = node < 3
            nodes["treeids"].append(number)
            nodes["nodeids"].append(node)
            nodes["featureids"].append([2, 0, 0][node] + number if inner else 0)
            nodes["values"].append([2.45, 5.5, 5.5][node] - number if inner else 0.0)
            nodes["modes"].append("BRANCH_GT" if inner else "LEAF")
            nodes["true"].append(2 * node + 2 if inner else 0)
            nodes["false"].append(2 * node + 1 if inner else 0)
            if inner:
                continue
            weights = rng.normal(size=classes)
            weights = np.array([-weights[1], weights[1]]) if classes == 2 else weights
            for label, weight in enumerate(weights):
                leaves["treeids"].append(number)
                leaves["nodeids"].append(node)
                leaves["ids"].append(label)
                leaves["weights"].append(float(weight))
    attributes = {f"nodes_{key}": nodes[key] for key in ("treeids", "nodeids", "featureids", "values", "modes")}
    attributes |= {"nodes_truenodeids": nodes["true"], "nodes_falsenodeids": nodes["false"]}
    attributes |= {f"class_{key}": value for key, value in leaves.items()}
    made = [
        helper.make_node(
            "TreeEnsembleClassifier", ["features"], ["label", "probability_tensor"], domain="ai.onnx.ml",
            classlabels_strings=NAMES[:classes].tolist(), post_transform="LOGISTIC" if classes == 2 else "SOFTMAX", **attributes,
        ),
        helper.make_node(
            "ZipMap", ["probability_tensor"], ["probabilities"], domain="ai.onnx.ml", classlabels_strings=NAMES[:classes].tolist()
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        made,
        "CatBoostModel",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", 4])],
        [
            helper.make_tensor_value_info("label", TensorProto.STRING, ["N"]),
            helper.make_empty_tensor_value_info("probabilities"),
        ],
    )
    map_type = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    graph.output[1].type.CopyFrom(helper.make_sequence_type_proto(map_type))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 2)], ir_version=3)


@pytest.mark.parametrize("classes", [2, 3])
def test_graphs_of_catboost(classes: int) -> None:
    model = catboost_graph(classes)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    labels, maps = session.run(None, {"features": X})
    _, found = import_onnx_ml(model)
    assert isinstance(found, TreeEnsemble)
    assert (found.evaluate(X) == labels).all()
    shares = np.array([[row[name] for name in NAMES[:classes]] for row in maps])
    assert np.abs(found.probabilities(X) - shares).max() < 1e-6
    assert (cw.compile(model, X, **EXACT).predict(X) == labels).mean() > 0.97


@pytest.mark.tier("all")  # no dependency of this package: it writes what the tests above have made by hand
def test_catboost_itself() -> None:
    catboost = pytest.importorskip("catboost", reason="`pip install catboost` runs this")

    options = {"iterations": 4, "depth": 2, "verbose": 0, "allow_writing_files": False}
    regressor = catboost.CatBoostRegressor(**options).fit(X[:, 1:], X[:, 0])
    values = cw.compile(regressor, X[:, 1:]).predict(X[:, 1:])
    assert np.abs(values - regressor.predict(X[:, 1:])).max() < 0.05
    for classes in (2, 3):
        x, y = samples(classes, text=True)
        member = catboost.CatBoostClassifier(**options).fit(x, y)
        assert (np.ravel(cw.compile(member, x).predict(x)) == np.ravel(member.predict(x))).mean() > 0.97, classes


def test_two_results_without_a_label_are_refused() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.0], scale=[2.0]),
            helper.make_node("Relu", ["s"], ["y"]),
            helper.make_node("Neg", ["s"], ["z"]),
        ],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "yz"],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(UnsupportedOperatorError, match="has the outputs y, z and no label"):
        cw.compile(model, X)
