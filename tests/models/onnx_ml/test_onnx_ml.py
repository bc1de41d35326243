"""ONNX-ML files: the imported model in clear is ONNX Runtime's, ties and missing values included."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import cloakwork as cw
from cloakwork.models.calibration import Calibration
from cloakwork.models.client_steps import run_input_steps
from cloakwork.models.errors import CompileError, UnsupportedOperatorError
from cloakwork.models.onnx_ml.compile_onnx_ml import compile_onnx_ml
from cloakwork.models.onnx_ml.importer import import_onnx_ml
from cloakwork.models.trees.compile_ensemble import compile_ensemble

runtime = pytest.importorskip("onnxruntime")
RANDOM = np.random.default_rng(0)


def outputs_of(model, x):
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


def tree_node(operator, modes, missing=None, **options):
    """Two trees of two splits each over features 0 and 1 with the given modes."""
    nodes = {
        "nodes_treeids": [0] * 5 + [1] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4] * 2,
        "nodes_featureids": [0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
        "nodes_values": [0.5, 1.0, 0, 0, 0, 1.5, 1.0, 0, 0, 0],
        "nodes_modes": [modes[0], modes[1], "LEAF", "LEAF", "LEAF", modes[1], modes[0], "LEAF", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0] * 2,
        "nodes_falsenodeids": [2, 4, 0, 0, 0] * 2,
    }
    if missing is not None:
        nodes["nodes_missing_value_tracks_true"] = missing
    return helper.make_node(operator, ["x"], options.pop("outputs"), domain="ai.onnx.ml", **nodes, **options)


def leaves(prefix, ids, weights):
    count = len(ids)
    return {
        f"{prefix}_treeids": [0] * (count // 2) + [1] * (count // 2),
        f"{prefix}_nodeids": [2, 3, 4] * (count // 3),
        f"{prefix}_ids": ids,
        f"{prefix}_weights": weights,
    }


def model_of(nodes, outputs, version=3, features=2):
    graph = helper.make_graph(
        nodes,
        "tables",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, features])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


GRID = np.stack(np.meshgrid(np.arange(-1, 5) / 2, np.arange(-1, 5) / 2), axis=-1).reshape(-1, 2).astype(np.float32)


@pytest.mark.parametrize(
    "modes", [("BRANCH_LEQ", "BRANCH_LEQ"), ("BRANCH_LT", "BRANCH_GT"), ("BRANCH_GTE", "BRANCH_LEQ")]
)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
def test_regressors_in_every_mode(modes, aggregate):
    node = tree_node(
        "TreeEnsembleRegressor",
        modes,
        outputs=["y"],
        n_targets=1,
        base_values=[0.25],
        aggregate_function=aggregate,
        **leaves("target", [0] * 6, [1.0, 2.5, -4.0, 8.0, 0.5, 3.0]),
    )
    model = model_of([node], [("y", TensorProto.FLOAT)])
    steps, ensemble = import_onnx_ml(model)
    np.testing.assert_allclose(
        ensemble.evaluate(run_input_steps(steps, GRID)), outputs_of(model, GRID)[0][:, 0], rtol=1e-6
    )


def test_missing_values_follow_their_flags():
    missing = [1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    node = tree_node(
        "TreeEnsembleRegressor",
        ("BRANCH_LEQ", "BRANCH_GT"),
        missing,
        outputs=["y"],
        n_targets=1,
        **leaves("target", [0] * 6, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
    )
    model = model_of([node], [("y", TensorProto.FLOAT)])
    x = GRID.copy()
    x[::3, 0], x[::5, 1] = np.nan, np.nan
    steps, ensemble = import_onnx_ml(model)
    np.testing.assert_allclose(ensemble.evaluate(run_input_steps(steps, x)), outputs_of(model, x)[0][:, 0])
    compiled = compile_ensemble(ensemble, preprocessing=steps, sets=["toy_two_limb"], leaf_bits=6, thresholds="client")
    np.testing.assert_allclose(
        compiled.predict(x), ensemble.evaluate(x), atol=compiled.report()["leaf_rounding_error"] + 1e-9
    )


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_classifiers_of_several_classes(transform):
    ids, weights = [0, 1, 2, 2, 1, 0], [1.0, 0.5, 0.75, 0.25, 2.0, 1.5]
    node = tree_node(
        "TreeEnsembleClassifier",
        ("BRANCH_LEQ", "BRANCH_LEQ"),
        outputs=["label", "scores"],
        classlabels_strings=["a", "b", "c"],
        post_transform=transform,
        **leaves("class", ids, weights),
    )
    model = model_of([node], [("label", TensorProto.STRING), ("scores", TensorProto.FLOAT)])
    steps, ensemble = import_onnx_ml(model)
    labels, scores = outputs_of(model, GRID)
    np.testing.assert_allclose(ensemble.probabilities(run_input_steps(steps, GRID)), scores, rtol=1e-5)
    assert ensemble.evaluate(GRID).tolist() == list(labels)


@pytest.mark.parametrize(
    ("transform", "weights"), [("LOGISTIC", [1, -2, 0.5, -1, 2, -0.25]), ("NONE", [0.125, 0.5, 0.25, 0.25, 0.5, 0.0])]
)
def test_two_classes_with_one_score(transform, weights):
    node = tree_node(
        "TreeEnsembleClassifier",
        ("BRANCH_LT", "BRANCH_LT"),
        outputs=["label", "scores"],
        classlabels_int64s=[3, 7],
        post_transform=transform,
        **leaves("class", [0] * 6, [float(w) for w in weights]),
    )
    model = model_of([node], [("label", TensorProto.INT64), ("scores", TensorProto.FLOAT)])
    _, ensemble = import_onnx_ml(model)
    labels, scores = outputs_of(model, GRID)
    np.testing.assert_allclose(ensemble.probabilities(GRID), scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ensemble.evaluate(GRID), labels)


def version_5_model():
    def tensor(values, kind):
        return numpy_helper.from_array(np.array(values, dtype=kind))

    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=2,
        aggregate_function=1,
        post_transform=0,
        tree_roots=[0, 2],
        nodes_featureids=[0, 1, 1],
        nodes_splits=tensor([0.5, 1.0, 1.5], np.float32),
        nodes_modes=tensor([0, 1, 3], np.uint8),
        nodes_truenodeids=[1, 1, 3],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[0, 2, 4],
        nodes_falseleafs=[1, 1, 1],
        leaf_targetids=[0, 1, 0, 1, 0],
        leaf_weights=tensor([1.0, 2.0, 4.0, 8.0, 16.0], np.float32),
    )
    return model_of([node], [("y", TensorProto.FLOAT)], version=5)


def test_version_5_against_the_reference_of_onnx():
    from onnx.reference import ReferenceEvaluator

    model = version_5_model()
    _, ensemble = import_onnx_ml(model)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": GRID})
    np.testing.assert_allclose(ensemble.evaluate(GRID), expected)


def test_a_chain_of_preprocessing_becomes_the_clients_steps():
    before = [
        helper.make_node(
            "Imputer",
            ["x"],
            ["a"],
            domain="ai.onnx.ml",
            imputed_value_floats=[0.5, 1.0],
            replaced_value_float=float("nan"),
        ),
        helper.make_node("Scaler", ["a"], ["b"], domain="ai.onnx.ml", offset=[0.5, 0.0], scale=[2.0, 1.0]),
        helper.make_node("Normalizer", ["b"], ["c"], domain="ai.onnx.ml", norm="L2"),
    ]
    node = helper.make_node(
        "LinearRegressor", ["c"], ["y"], domain="ai.onnx.ml", coefficients=[1.0, -2.0], intercepts=[0.5], targets=1
    )
    model = model_of([*before, node], [("y", TensorProto.FLOAT)])
    x = GRID.copy()
    x[::4, 0] = np.nan
    steps, linear = import_onnx_ml(model)
    np.testing.assert_allclose(linear.evaluate(run_input_steps(steps, x)), outputs_of(model, x)[0][:, 0], atol=1e-6)
    compiled = compile_onnx_ml(model, x)
    np.testing.assert_allclose(compiled.predict(x), outputs_of(model, x)[0][:, 0], atol=0.01)
    with pytest.raises(CompileError, match="expected samples"):
        compile_onnx_ml(model)


def test_every_foreign_node_is_named_at_once():
    node = tree_node(
        "TreeEnsembleRegressor", ("BRANCH_EQ", "BRANCH_LEQ"), outputs=["y"], **leaves("target", [0] * 6, [1.0] * 6)
    )
    clip = helper.make_node("Clip", ["x"], ["z"], name="odd")
    node.input[0] = "z"
    after = helper.make_node("Relu", ["y"], ["w"], name="after")
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_onnx_ml(model_of([clip, node, after], [("w", TensorProto.FLOAT)]))
    for part in ("Clip 'odd'", "Relu 'after'", "BRANCH_EQ"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "name", ["RandomForestClassifier", "GradientBoostingClassifier", "RandomForestRegressor", "DecisionTreeClassifier"]
)
def test_what_skl2onnx_writes(name):
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn import ensemble as forests
    from sklearn import tree as trees

    kind = getattr(forests, name, None) or getattr(trees, name)
    x = RANDOM.normal(size=(200, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int) + (x[:, 3] > 1)
    options = {} if name.startswith("Decision") else {"n_estimators": 5}
    fitted = kind(max_depth=3, random_state=0, **options).fit(x, y)
    model = skl2onnx.to_onnx(fitted, x[:1], target_opset={"": 17, "ai.onnx.ml": 3})
    compiled = cw.compile(model, thresholds="client")
    assert compiled.report()["kind"] == "trees"
    error = compiled.report()["leaf_rounding_error"]
    scores = import_onnx_ml(model)[1].scores(x)
    np.testing.assert_allclose(compiled.predict(x, output="scores"), scores, atol=error + 1e-9)
    _, ensemble = import_onnx_ml(model)
    np.testing.assert_allclose(ensemble.evaluate(x), fitted.predict(x), rtol=1e-5)


def small_forest():
    node = tree_node(
        "TreeEnsembleRegressor",
        ("BRANCH_LEQ", "BRANCH_LEQ"),
        outputs=["y"],
        n_targets=1,
        **leaves("target", [0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    )
    return model_of([node], [("y", TensorProto.FLOAT)])


def test_thresholds_of_a_file_stay_on_the_server():
    x = RANDOM.integers(0, 9, (60, 2)) / 4
    model = small_forest()
    compiled = cw.compile(model, x)
    np.testing.assert_allclose(compiled.predict(x), outputs_of(model, x.astype(np.float32))[0][:, 0], atol=1e-6)
    assert compiled.report()["grid"]["agreement"] == 1
    assert not any("threshold" in each["what"] for each in compiled.report()["discloses"])
    fine = cw.compile(model, x, grid="uniform", grid_bits=8)
    assert fine.report()["grid"]["points"] == 2 * 255
    placed = cw.compile(model, x, thresholds="server")
    np.testing.assert_array_equal(placed.predict(x), compiled.predict(x))
    assert placed.report()["discloses"] == compiled.report()["discloses"]
    assert placed.report()["grid"]["sent"] < compiled.report()["grid"]["sent"]
    only_ranges = cw.compile(model, ranges={0: (0, 2), 1: (0, 2)})
    assert only_ranges.report()["grid"]["kinds"] == {"uniform": 2} and "agreement" not in only_ranges.report()["grid"]


@pytest.mark.parametrize("kind", ["forest", "logistic regression"])
def test_labels_alone(kind):
    skl2onnx = pytest.importorskip("skl2onnx")
    ensembles, linear = pytest.importorskip("sklearn.ensemble"), pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(5).normal(size=(300, 4)).astype(np.float32)
    y = np.digitize(x[:, 0] + x[:, 1] / 2, [-0.6, 0.5])
    forest = ensembles.RandomForestClassifier(6, max_depth=3, random_state=0)
    fitted = (forest if kind == "forest" else linear.LogisticRegression()).fit(x, y)
    model = skl2onnx.to_onnx(
        fitted, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}, options={id(fitted): {"zipmap": False}}
    )
    compiled = cw.compile(model, x, tell="labels")
    facts = compiled.report()
    assert facts["tell"] == "labels" and facts["parameter_set"] == "large16"
    assert (compiled.predict(x) == fitted.predict(x)).mean() >= 0.97
    assert not {"units of scores", "constants of scores"} & {each["what"] for each in facts["discloses"]}


@pytest.mark.tier("release")
@pytest.mark.parametrize("classes", [2, 3])
def test_labels_of_a_network(classes):
    """Two classes by one logit, three by three."""
    neurons, skl2onnx = pytest.importorskip("sklearn.neural_network"), pytest.importorskip("skl2onnx")
    x = np.random.default_rng(5).normal(size=(200, 4)).astype(np.float32)
    wanted = np.array(["low", "middle", "high"])[
        np.digitize(x @ [1, -1, 0.5, 0], [-0.5, 0.7] if classes == 3 else [0.2])
    ]
    fitted = neurons.MLPClassifier((4,), max_iter=3000, random_state=0).fit(x, wanted)
    model = skl2onnx.to_onnx(fitted, x[:1], target_opset={"": 17, "ai.onnx.ml": 3})
    compiled = cw.compile(model, x, tell="labels", accuracy=0.95)
    found = compiled.predict(x)
    assert compiled.report()["tell"] == "labels" and set(found) == set(wanted)
    assert (found == fitted.predict(x)).mean() >= 0.95


def test_what_a_grid_needs_of_a_file_is_said():
    with pytest.raises(CompileError, match="samples: expected samples, or ranges"):
        cw.compile(small_forest())
    with pytest.raises(CompileError, match="trees take samples of a table"):
        cw.compile(small_forest(), Calibration((0.0, 1.0), ()))
    network = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
    )
    made = helper.make_model(network, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(CompileError, match="thresholds: no option of a network"):
        cw.compile(
            made,
            RANDOM.normal(size=(50, 2)),
            thresholds="client",
        )


def test_what_onnxmltools_writes_of_xgboost():
    onnxmltools = pytest.importorskip("onnxmltools")
    xgboost = pytest.importorskip("xgboost")
    from onnxmltools.convert.common.data_types import FloatTensorType

    x = RANDOM.normal(size=(200, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)
    fitted = xgboost.XGBClassifier(n_estimators=4, max_depth=3).fit(x, y)
    model = onnxmltools.convert_xgboost(fitted, initial_types=[("x", FloatTensorType([None, 4]))], target_opset=15)
    assert isinstance(model, onnx.ModelProto)
    _, ensemble = import_onnx_ml(model)
    np.testing.assert_allclose(ensemble.probabilities(x), fitted.predict_proba(x), atol=1e-5)
    np.testing.assert_array_equal(ensemble.evaluate(x), fitted.predict(x))
