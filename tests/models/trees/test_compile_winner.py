"""The arg-max of several trees on encrypted scores of several classes: the label of the rounded model, ties included, and nothing else."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from tests.models.trees.tree_models import of_sklearn_forest, random_tree

TOY = "toy_large"  # the shape and output noise of large16, a small key of 16 bits
QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def compiled(ensemble, **options):
    options = {"sets": [TOY], "thresholds": "client", **options}
    return compile_ensemble(ensemble, tell="labels", **options)


def check(sessions, model, ensemble, x, executed=6):
    """In clear, on the quantised phases, and really encrypted."""
    expected, (key, session) = ensemble.evaluate(x), sessions(TOY)
    np.testing.assert_array_equal(model.predict(x), expected)
    np.testing.assert_array_equal(
        model.client.output(simulate(model.program, model.client.phases(x), noisy=False)), expected
    )
    np.testing.assert_array_equal(
        model.predict(x[:executed], "encrypted", key=key, session=session), expected[:executed]
    )
    numbers = np.unique(model.predict(x, output="scores"))
    assert set(numbers) <= set(range(len(ensemble.labels)))  # what the client decrypts


@QUICK
@given(st.integers(0, 1 << 32), st.integers(3, 6), st.integers(2, 6), st.sampled_from([2, 3, 40]))
def test_whole_leaf_values_of_several_classes(sessions, seed, classes, count, values):
    """Nothing is rounded, so that labels are the model's; few values make ties, which the first class wins."""
    random = np.random.default_rng(seed)
    trees = tuple(random_tree(random, 3, int(random.integers(1, 4)), classes, 5, values) for _ in range(count))
    base = random.integers(-2, 3, classes) / 2.0
    ensemble = TreeEnsemble(trees, 3, base=base, transform="softmax", labels=np.arange(10, 10 + classes))
    check(sessions, compiled(ensemble), ensemble, random.integers(-1, 11, (30, 3)) / 2)


@QUICK
@given(st.integers(0, 1 << 32))
def test_equal_trees_that_vote_for_several_classes(sessions, seed):
    """Equal look-ups of different classes are one, whose noise a difference of scores counts as often as it reads it."""
    random = np.random.default_rng(seed)
    one = random_tree(random, 3, 3, 3, 5, 4)
    other = random_tree(random, 3, 3, 3, 5, 4)
    ensemble = TreeEnsemble((one, one, other, one), 3, transform="softmax", labels=np.arange(3))
    model = compiled(ensemble)
    assert model.report()["lookup_p_fail_log2"] <= -128
    check(sessions, model, ensemble, random.integers(-1, 11, (20, 3)) / 2, executed=3)


@pytest.mark.parametrize(
    "base", [[0, 1e6, -1e12, 3.0], [1e300, 0, 1e299, -1e300], [0, 1e18, 2e18, 0.5], [1e-300, 0, 0, -1e-300]]
)
def test_constants_that_decide_alone(sessions, base):
    """Of any size: nothing overflows, and no bits are spent on them."""
    random = np.random.default_rng(3)
    trees = tuple(random_tree(random, 3, 3, 4, 5, 5) for _ in range(3))
    ensemble = TreeEnsemble(trees, 3, base=np.array(base, dtype=float), transform="softmax", labels=np.arange(4))
    model = compiled(ensemble)
    assert model.report()["bootstraps"] < 60
    x = random.integers(-1, 11, (40, 3)) / 2
    whole = np.where(np.abs(base) < 1e-9, 0.0, base)  # of a unit, less than the constants are rounded to
    check(sessions, model, TreeEnsemble(trees, 3, base=whole, transform="softmax", labels=np.arange(4)), x, executed=5)


def test_trees_without_a_difference(sessions):
    """Every class has the same score for every sample: the first wins."""
    leaf = Tree.of_nodes([0], [0.0], [-1], [-1], [[1.0, 1.0, 1.0]])
    ensemble = TreeEnsemble((leaf, leaf), 2, transform="softmax", labels=np.array(["a", "b", "c"]))
    check(sessions, compiled(ensemble), ensemble, np.zeros((3, 2)), executed=2)


@pytest.mark.tier("all")
def test_forty_classes(sessions):
    random = np.random.default_rng(5)
    trees = tuple(random_tree(random, 3, 3, 40, 5, 6) for _ in range(2))
    ensemble = TreeEnsemble(trees, 3, transform="softmax", labels=np.array([f"class {i}" for i in range(40)]))
    model = compiled(ensemble)
    assert model.report()["bootstraps_per_level"][-2:] == [780, 40]
    check(sessions, model, ensemble, random.integers(-1, 11, (40, 3)) / 2, executed=2)


def test_two_classes_whose_votes_are_more_than_one_look_up_tells_apart(sessions):
    random = np.random.default_rng(1)
    trees = tuple(random_tree(random, 3, 3, 1, 5, 60) for _ in range(12))
    ensemble = TreeEnsemble(trees, 3, base=np.array([-431.5]), transform="decision", labels=np.array(["no", "yes"]))
    x = random.integers(-1, 11, (200, 3)) / 2
    assert 20 < (ensemble.evaluate(x) == "yes").sum() < 180
    check(sessions, compiled(ensemble), ensemble, x, executed=20)


@pytest.mark.parametrize("options", [{"thresholds": "server"}, {"thresholds": "grid", "grid_bits": 10}])
def test_thresholds_that_the_server_compares(sessions, options):
    random = np.random.default_rng(2)
    trees = tuple(random_tree(random, 3, 3, 3, 5, 5) for _ in range(3))
    ensemble = TreeEnsemble(trees, 3, transform="softmax", labels=np.arange(3))
    x = random.integers(-1, 11, (60, 3)) / 2
    wide = np.linspace(-1, 5, 700)[:, None] * np.ones(3) if "grid_bits" in options else x
    model = compiled(ensemble, samples=np.concatenate([x, wide]), **options)
    assert "thresholds of the model" not in str(model.report()["discloses"])
    check(sessions, model, ensemble, x, executed=3)


@pytest.mark.tier("all")
def test_a_forest_of_three_classes_on_the_real_set(sessions, tmp_path):
    forests, datasets = pytest.importorskip("sklearn.ensemble"), pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_wine(return_X_y=True)
    fitted = forests.RandomForestClassifier(10, max_depth=3, random_state=0).fit(x[::2], y[::2])
    model = compile_ensemble(of_sklearn_forest(fitted), samples=x[::2], tell="labels")
    facts = model.report()
    assert facts["parameter_set"] == "large16"
    assert facts["outputs"] == 1
    assert max(facts["lookup_p_fail_log2"], facts["output_p_fail_log2"]) <= -128
    assert (model.predict(x[1::2]) == fitted.predict(x[1::2])).mean() >= 0.97
    assert {told["what"] for told in facts["discloses"]} == {
        "ends and steps of public grids",
        "labels",
        "scale of what is encrypted",
    }
    model.save(tmp_path / "labels.clkm")
    loaded = CompiledModel.load(tmp_path / "labels.clkm")
    np.testing.assert_array_equal(loaded.predict(x[1::2], "simulate", seed=1), model.predict(x[1::2]))
    key, session = sessions("large16")
    np.testing.assert_array_equal(
        loaded.predict(x[1:60:30], "encrypted", key=key, session=session), model.predict(x[1:60:30])
    )
