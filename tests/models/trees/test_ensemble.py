"""The neutral ensemble: its clear evaluation is the libraries', and damaged ones are refused."""

import numpy as np
import pytest

from cloakwork.models.errors import CompileError, ShapeError
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from tests.models.trees.tree_models import of_sklearn_forest, random_tree


def stump(threshold=0.5, feature=0, values=((0.0,), (1.0,), (2.0,)), missing=None):
    return Tree.of_nodes([feature, 0, 0], [threshold, 0, 0], [1, -1, -1], [2, -1, -1], values, missing)


@pytest.mark.parametrize("classes", [2, 4])
def test_evaluates_as_a_scikit_learn_forest_does(classes):
    ensemble_module = pytest.importorskip("sklearn.ensemble")
    random = np.random.default_rng(1)
    x, y = random.normal(size=(300, 5)), random.integers(0, classes, 300)
    model = ensemble_module.RandomForestClassifier(7, max_depth=6, random_state=1).fit(x, y)
    ensemble = of_sklearn_forest(model)
    probes = np.concatenate([x, model.estimators_[0].tree_.threshold[:5, None] * np.ones((5, 5))])
    np.testing.assert_array_equal(ensemble.evaluate(probes), model.predict(probes))
    np.testing.assert_allclose(ensemble.probabilities(probes), model.predict_proba(probes), atol=1e-12)


def test_a_tie_goes_left_unless_strict():
    tree = stump(0.5)
    assert TreeEnsemble((tree,), 1).evaluate([[0.5]]) == 1
    assert TreeEnsemble((tree,), 1, strict=True).evaluate([[0.5]]) == 2


def test_rounds_features_to_float32_where_the_library_does():
    tree, x = stump(float(np.float32(0.1))), [[0.1]]  # float32(0.1) is above 0.1
    assert TreeEnsemble((tree,), 1, strict=True).evaluate(x) == 1
    assert TreeEnsemble((tree,), 1, strict=True, single=True).evaluate(x) == 2


def test_a_missing_value_goes_where_the_node_says():
    for direction, value in ((True, 1), (False, 2)):
        tree = stump(missing=[direction, False, False])
        assert TreeEnsemble((tree,), 1).evaluate([[np.nan]]) == value


def test_sums_and_means_with_a_base():
    trees = (stump(), stump(values=((0.0,), (10.0,), (20.0,))))
    assert TreeEnsemble(trees, 1, base=np.array([100.0])).evaluate([[0.0]]) == 111
    assert TreeEnsemble(trees, 1, "mean").evaluate([[1.0]]) == 11


def test_depth_of_a_random_tree():
    assert random_tree(np.random.default_rng(0), 3, 0, 1, 4).depth == 0
    assert stump().depth == 1


def test_children_may_come_in_any_order_and_unreached_nodes_are_left_out():
    values = [[0.0], [7.0], [1.0], [2.0]]
    tree = Tree.of_nodes([0, 0, 0, 0], [0.5, 0, 0, 0], [3, -1, -1, -1], [2, -1, -1, -1], values)
    assert len(tree.left) == 3
    assert TreeEnsemble((tree,), 1).evaluate([[0.0]]) == 2


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"trees": ()}, "at least one tree"),
        ({"features": 0}, "at least one feature"),
        ({"features": 1, "trees": (stump(feature=1),)}, "compares features 0 .. 0"),
        ({"trees": (stump(threshold=np.nan),)}, "thresholds that are numbers"),
        ({"trees": (stump(values=((0,), (np.inf,), (1,))),)}, "finite leaf values"),
        ({"trees": (stump(), stump(values=np.zeros((3, 2))))}, "as many outputs"),
        ({"transform": "tanh"}, "one of the transforms"),
        ({"aggregation": "max"}, "'sum' or 'mean'"),
        ({"base": np.zeros(2)}, "finite base"),
        ({"feature_names": ("a", "b")}, "1 feature names"),
        ({"labels": ["a", "b", "c"]}, "expected 2 for 1 output"),
        ({"trees": (Tree.of_nodes([0] * 3, [0] * 3, [1, 0, -1], [2, 2, -1], np.zeros((3, 1))),)}, "every node once"),
    ],
)
def test_damaged_ensembles_are_refused(change, rule):
    with pytest.raises(CompileError, match=rule):
        TreeEnsemble(**{"trees": (stump(),), "features": 1, **change})


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 3)), r"\['samples', 2\], got \[2, 3\]"),
        (np.zeros(2), "samples come first"),
        ([[0.0, np.inf]], "column 'b' has infinite"),
        ([[np.nan, 0.0]], "column 'a' has missing values"),
        ([["x", 0.0]], "expected numbers"),
    ],
)
def test_bad_tables_are_refused(x, message):
    with pytest.raises(ShapeError, match=message):
        TreeEnsemble((stump(),), 2, feature_names=("a", "b")).evaluate(x)


def test_column_names_are_checked():
    pandas = pytest.importorskip("pandas")
    ensemble = TreeEnsemble((stump(),), 2, feature_names=("a", "b"))
    assert ensemble.evaluate(pandas.DataFrame({"a": [0.0], "b": [1.0]})) == 1
    with pytest.raises(ShapeError, match="order differs"):
        ensemble.evaluate(pandas.DataFrame({"b": [0.0], "a": [1.0]}))
    with pytest.raises(ShapeError, match=r"missing \['b'\], unexpected \['c'\]"):
        ensemble.evaluate(pandas.DataFrame({"a": [0.0], "c": [1.0]}))
