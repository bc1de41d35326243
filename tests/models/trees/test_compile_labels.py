"""The arg-max on encrypted scores: the client gets the label of the rounded model, and nothing else."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import AccuracyError, AccuracyWarning, CompileError, NoParameterSetError
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.tree_models import random_tree

TOY = "toy_two_limb"
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def voters(draw):
    """Forests of two classes whose leaves are votes, so that nothing is rounded; an odd vote more or less as a base."""
    random, count = np.random.default_rng(draw(st.integers(0, 1 << 32))), draw(st.integers(2, 7))
    trees = [random_tree(random, 3, draw(st.integers(1, 4)), 1, 5, 2) for _ in range(count)]
    base = draw(st.integers(-count, 1)) + 0.25
    return TreeEnsemble(tuple(trees), 3, base=np.array([base]), transform="decision", labels=np.array(["no", "yes"]))


@QUICK
@given(voters(), st.integers(0, 1000))
def test_votes_of_two_classes(sessions, ensemble, seed):
    model, (key, session) = (
        compile_ensemble(ensemble, tell="labels", sets=[TOY], thresholds="client"),
        sessions(TOY),
    )
    x = np.random.default_rng(seed).integers(-1, 11, (20, 3)) / 2
    expected = ensemble.evaluate(x)
    np.testing.assert_array_equal(model.predict(x), expected)
    clear = simulate(model.program, model.client.phases(x), noisy=False)
    np.testing.assert_array_equal(model.client.output(clear), expected)
    np.testing.assert_array_equal(model.predict(x[:6], "encrypted", key=key, session=session), expected[:6])
    assert set(np.unique(model.predict(x, output="scores"))) <= {0.0, 1.0}


@QUICK
@given(st.integers(0, 1 << 32), st.integers(1, 5), st.sampled_from(["none", "softmax", "decision"]))
def test_a_single_tree_of_any_classes(sessions, seed, classes, transform):
    random = np.random.default_rng(seed)
    tree, labels = random_tree(random, 3, 4, classes, 5), np.arange(10, 10 + max(classes, 2))
    ensemble = TreeEnsemble((tree,), 3, transform=transform, labels=labels, base=random.normal(size=classes))
    model, (key, session) = (
        compile_ensemble(ensemble, tell="labels", sets=[TOY], thresholds="client"),
        sessions(TOY),
    )
    x = random.integers(-1, 11, (20, 3)) / 2
    np.testing.assert_array_equal(model.predict(x), ensemble.evaluate(x))
    np.testing.assert_array_equal(model.predict(x[:4], "encrypted", key=key, session=session), ensemble.evaluate(x[:4]))


@pytest.mark.tier("all")
def test_a_forest_of_class_shares_on_a_real_set(tmp_path):
    forests = pytest.importorskip("sklearn.ensemble")
    from tests.models.trees.tree_models import of_sklearn_forest

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4))
    fitted = forests.RandomForestClassifier(15, max_depth=5, random_state=0).fit(x, x[:, 0] + x[:, 1] > 0)
    model = compile_ensemble(of_sklearn_forest(fitted), tell="labels", thresholds="client", samples=x)
    facts = model.report()
    assert facts["tell"] == "labels"
    assert facts["outputs"] == 1
    assert facts["output_p_fail_log2"] <= -128
    assert facts["parameter_set"] == "large16"  # shares are no votes: nothing is rounded to fit one look-up
    assert (model.predict(x) == fitted.predict(x)).mean() > 0.97
    model.save(tmp_path / "labels.clkm")
    loaded = CompiledModel.load(tmp_path / "labels.clkm")
    np.testing.assert_array_equal(loaded.predict(x, "simulate", seed=1), model.predict(x))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": None}, CompileError, "expected a classifier"),
        ({"labels": np.arange(65)}, CompileError, "expected at most 64 classes, got 65"),
        ({"labels": np.arange(3), "set": "gate_64"}, NoParameterSetError, "scores of 2 trees are too many for the noise of gate_64"),
        ({"count": 40, "labels": np.arange(2), "set": "lut2"}, NoParameterSetError, "scores of 40 trees are too many"),
    ],
)  # fmt: skip
def test_what_has_no_encrypted_arg_max(change, error, message):
    random, labels = np.random.default_rng(0), change["labels"]
    outputs = 1 if labels is None else len(labels)
    trees = tuple(random_tree(random, 3, 3, outputs, 5) for _ in range(change.get("count", 2)))
    with pytest.raises(error, match=message):
        compile_ensemble(
            TreeEnsemble(trees, 3, labels=labels),
            tell="labels",
            sets=[change.get("set", TOY)],
            thresholds="client",
        )


def test_votes_take_one_look_up():
    random = np.random.default_rng(2)
    trees = tuple(random_tree(random, 3, 3, 1, 5, 2) for _ in range(9))
    ensemble = TreeEnsemble(trees, 3, base=np.array([-4.5]), transform="decision", labels=np.arange(2))
    model = compile_ensemble(ensemble, tell="labels", thresholds="client")
    assert model.report()["bootstraps_per_level"][-1] == 1
    assert model.report()["parameter_set"] != "large16"
    x = random.integers(-1, 11, (200, 3)) / 2
    np.testing.assert_array_equal(model.predict(x), ensemble.evaluate(x))


@pytest.mark.parametrize("p_fail_log2", [0, 1.0, -0.5, float("nan"), float("-inf")])
@pytest.mark.parametrize("tell", ["scores", "labels"])
def test_what_is_no_probability_is_refused(p_fail_log2, tell):
    """It was searched for without end."""
    tree = random_tree(np.random.default_rng(0), 3, 3, 2, 5)
    ensemble = TreeEnsemble((tree, tree), 3, labels=np.arange(2))
    with pytest.raises(CompileError, match="p_fail_log2: expected log2 of a probability, at most -1"):
        compile_ensemble(ensemble, thresholds="client", p_fail_log2=p_fail_log2, tell=tell)


def boosted(rounds):
    """A boosting model whose leaf values are of very different size, where one look-up on votes says nothing."""
    ensembles, datasets = pytest.importorskip("sklearn.ensemble"), pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return ensembles.GradientBoostingClassifier(n_estimators=rounds, random_state=0).fit(x[::2], y[::2]), x


@pytest.mark.tier("all")
def test_leaf_values_too_fine_for_one_look_up_are_not_rounded_away():

    fitted, x = boosted(100)
    model = cw.compile(fitted, x[::2], tell="labels")
    assert model.report()["parameter_set"] == "large16"
    assert (model.predict(x[1::2]) == fitted.predict(x[1::2])).mean() >= 0.97


def test_a_named_set_that_has_to_round_them_says_so():

    fitted, x = boosted(100)
    told = r"one look-up of lut4 tells their sums apart, by .* of a score at most"
    with pytest.warns(AccuracyWarning, match=told), pytest.raises(AccuracyError, match="decides as it on 35.8 %"):
        cw.compile(fitted, x[::2], tell="labels", sets=["lut4"])
    with pytest.warns(AccuracyWarning, match=told):
        cw.compile(fitted, x[::2], tell="labels", sets=["lut4"], accuracy=0)
