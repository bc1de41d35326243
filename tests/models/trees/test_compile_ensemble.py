"""Compiled trees: encrypted equals quantised clear, always; quantised clear equals the trees with rounded leaves."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, NoParameterSetError, ShapeError
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from tests.models.trees.tree_models import of_sklearn_forest, random_tree

TOY = "toy_two_limb"
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
FEATURES, LEVELS = 3, 5


DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@st.composite
def ensembles(draw):
    """Random trees on a coarse grid, so that thresholds repeat and values tie."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    outputs, missing = draw(st.integers(1, 3)), draw(st.booleans())
    depth, count = draw(st.integers(0, 5)), draw(st.integers(1, 5))
    values = draw(st.sampled_from([None, 2, 4]))
    trees = tuple(random_tree(random, FEATURES, depth, outputs, LEVELS, values, missing) for _ in range(count))
    return TreeEnsemble(
        trees,
        FEATURES,
        draw(st.sampled_from(["sum", "mean"])),
        base=random.normal(size=outputs),
        strict=draw(st.booleans()),
        single=draw(st.booleans()),
    )


def samples_of(ensemble, count=40, seed=0):
    """Ties, values between, and missing ones where the trees take them."""
    random = np.random.default_rng(seed)
    x = random.integers(-1, 2 * LEVELS + 1, (count, FEATURES)) / 2
    x[random.random(x.shape) < 0.1 * ensemble.takes_missing] = np.nan
    return x


@QUICK
@given(ensembles(), st.integers(0, 1000))
def test_quantised_scores_are_those_of_the_trees_with_rounded_leaves(ensemble, seed):
    """Tables without noise give the same."""
    model = compile_ensemble(ensemble, sets=[TOY], thresholds="client")
    x = samples_of(ensemble, 200, seed)
    error = model.report()["leaf_rounding_error"]
    difference = np.abs(model.predict(x, output="scores") - ensemble.scores(x))
    assert difference.max() <= error + 1e-9
    clear = simulate(model.program, model.client.phases(x), noisy=False)
    np.testing.assert_array_equal(model.client.output(clear, "scores"), model.predict(x, output="scores"))
    noisy = model.predict(x, "simulate", seed=seed, output="scores")
    np.testing.assert_array_equal(noisy, model.predict(x, output="scores"))


@DEVICES
@settings(QUICK, max_examples=20)
@given(ensembles(), st.integers(0, 1000))
def test_encrypted_equals_quantised(sessions, device, ensemble, seed):
    model, (key, session) = compile_ensemble(ensemble, sets=[TOY], thresholds="client"), sessions(TOY, device)
    x = samples_of(ensemble, 12, seed)
    encrypted = model.predict(x, "encrypted", key=key, session=session, output="scores")
    np.testing.assert_array_equal(encrypted, model.predict(x, output="scores"))


@DEVICES
def test_trees_that_cancel_leave_a_constant(sessions, device):
    """The score of every sample is the same, and no wire is read for it."""
    tree = random_tree(np.random.default_rng(3), 2, 3, 1, 4)
    ensemble = TreeEnsemble((tree, replace(tree, values=-tree.values)), 2)
    model, (key, session) = compile_ensemble(ensemble, sets=[TOY], thresholds="client"), sessions(TOY, device)
    x = np.array([[0.0, 1.0], [2.0, 0.0], [3.0, 3.0]])
    np.testing.assert_allclose(model.predict(x, output="scores"), 0, atol=1e-9)
    encrypted = model.predict(x, "encrypted", key=key, session=session, output="scores")
    np.testing.assert_array_equal(encrypted, model.predict(x, output="scores"))


def test_a_class_share_forest_agrees_with_scikit_learn():
    ensemble_module = pytest.importorskip("sklearn.ensemble")
    random = np.random.default_rng(1)
    x = random.normal(size=(300, 5))
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int) + (x[:, 3] > 1)
    model = ensemble_module.RandomForestClassifier(5, max_depth=4, random_state=1).fit(x, y)
    compiled = compile_ensemble(of_sklearn_forest(model), leaf_bits=8, thresholds="client")
    np.testing.assert_allclose(
        compiled.predict(x, output="probabilities"),
        model.predict_proba(x),
        atol=compiled.report()["leaf_rounding_error"] + 1e-9,
    )
    assert (compiled.predict(x) == model.predict(x)).mean() > 0.99


def test_a_tree_of_one_feature_needs_no_bootstrap(sessions):
    tree = Tree.of_nodes(
        [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 3, -1, -1, -1], [2, 4, -1, -1, -1], [[0], [0], [5], [2], [9]]
    )
    model = compile_ensemble(TreeEnsemble((tree,), 1), sets=[TOY], thresholds="client")
    assert model.program.bootstraps == 0
    key, session = sessions(TOY)
    assert model.predict([[0.0], [0.5], [2.0]], "encrypted", key=key, session=session).tolist() == [2, 9, 5]


def test_a_constant_tree(sessions):
    tree = Tree.of_nodes([0], [0], [-1], [-1], [[3.5]])
    split = Tree.of_nodes([0, 0, 0], [0, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [1], [2]])
    model = compile_ensemble(TreeEnsemble((tree, split), 1), sets=[TOY], thresholds="client")
    assert model.predict([[0.0], [1.0]]).tolist() == [4.5, 5.5]
    alone, (key, session) = (
        compile_ensemble(TreeEnsemble((tree,), 1), sets=[TOY], thresholds="client"),
        sessions(TOY),
    )
    assert alone.predict([[0.0], [1.0]], "encrypted", key=key, session=session).tolist() == [3.5, 3.5]


def test_the_file_and_the_client_specification_keep_everything(tmp_path):
    ensemble = TreeEnsemble(
        tuple(random_tree(np.random.default_rng(5), 3, 3, 3, 5, 3, True) for _ in range(3)),
        3,
        labels=np.array(["a", "b", "c"]),
        transform="softmax",
        feature_names=("x", "y", "z"),
    )
    model = compile_ensemble(ensemble, sets=[TOY], thresholds="client")
    model.save(tmp_path / "trees.clkm")
    loaded, x = CompiledModel.load(tmp_path / "trees.clkm"), samples_of(ensemble)
    for stage in ("scores", "probabilities", "labels"):
        np.testing.assert_array_equal(loaded.predict(x, output=stage), model.predict(x, output=stage))
    assert loaded.report() == model.report()
    client = ClientSpecification.from_json(loaded.client.to_json())
    np.testing.assert_array_equal(client.phases(x), model.client.phases(x))
    with pytest.raises(ShapeError, match=r"\['samples', 3\]"):
        client.phases(x[:, :2])


@pytest.mark.parametrize(
    ("step", "field", "value"),
    [
        ("Compare", "feature", [7, 0]),
        ("Compare", "feature", [0]),
        ("Compare", "threshold", [0.5]),
        ("Columns", "count", 1),
        ("Digits", "radix", [[4], [4], [4]]),
        ("Combine", "matrix", [[1.0, 2.0]]),
        ("Labels", "labels", ["a"]),
    ],
)
def test_a_specification_whose_steps_do_not_fit_is_refused(step, field, value):
    trees = tuple(random_tree(np.random.default_rng(i), 3, 2, 3, 5, 3) for i in range(4))
    model = compile_ensemble(TreeEnsemble(trees, 3, labels=np.array(["a", "b", "c"])), sets=[TOY], thresholds="client")
    fields = json.loads(model.client.to_json())
    ClientSpecification.from_json(json.dumps(fields))
    for entry in (*fields["input_steps"], *fields["output_steps"]):
        if entry["step"] == step:
            entry[field] = value
    with pytest.raises(SerializationError, match="client specification"):
        ClientSpecification.from_json(json.dumps(fields))


def test_the_report_says_what_it_costs_and_risks():
    ensemble = TreeEnsemble(tuple(random_tree(np.random.default_rng(i), 4, 5, 1, 9) for i in range(6)), 4)
    facts = compile_ensemble(ensemble, thresholds="client").report()
    assert facts["bootstraps"] < facts["bootstraps_one_per_node"] / 3
    assert facts["lookup_p_fail_log2"] <= -128
    assert facts["output_p_fail_log2"] <= -128
    assert facts["p_fail_log2"] <= -120
    assert facts["parameter_set"] in ("lut3", "lut4")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresholds": "nobody"}, "thresholds: expected one of 'grid', 'client', 'server'"),
        ({"leaf_bits": 0}, "leaf_bits: expected 1 to 12"),
        ({"leaf_bits": 12, "sets": ["lut2"]}, "lut2: a tree's values do not fit"),
        ({"sets": ["toy"], "p_fail_log2": -100000.0}, "tell no two values apart"),
    ],
)
def test_impossible_wishes_are_refused(options, message):
    ensemble = TreeEnsemble((random_tree(np.random.default_rng(0), 5, 5, 1, 9),), 5)
    with pytest.raises((CompileError, NoParameterSetError), match=message):
        compile_ensemble(ensemble, **{"thresholds": "client", **options})


def test_keys_of_another_set_are_refused(sessions):
    ensemble = TreeEnsemble((random_tree(np.random.default_rng(2), 3, 3, 1, 5),), 3)
    model = compile_ensemble(ensemble, thresholds="client")
    assert model.program.parameters != parameter_set(TOY)
    key, session = sessions(TOY)
    with pytest.raises(ShapeError, match="expected keys of parameter set"):
        model.predict(samples_of(ensemble), "encrypted", key=key, session=session)


def deep_tree(random, features, depth):
    """A long path through all features with a small subtree beside every node of it."""
    rows = []

    def leaf():
        rows.append((0, 0.0, -1, -1, int(random.integers(3))))
        return len(rows) - 1

    def split(feature, left, right):
        rows.append((feature, float(random.integers(3)), left, right, 0))
        return len(rows) - 1

    node = leaf()
    for level in range(depth):
        beside = split((level + 1) % features, leaf(), leaf())
        node = split(level % features, *((node, beside) if random.integers(2) else (beside, node)))
    order = [node, *[i for i in range(len(rows)) if i != node]]
    number = {old: new for new, old in enumerate(order)} | {-1: -1}
    feature, threshold, left, right, values = zip(*[rows[i] for i in order], strict=True)
    sides = [[number[child] for child in side] for side in (left, right)]
    return Tree.of_nodes(feature, threshold, *sides, [[value] for value in values])


@DEVICES
@pytest.mark.parametrize("comparisons", ["client", "server"])
def test_paths_longer_than_a_look_up_counts_are_split(sessions, device, comparisons):
    random = np.random.default_rng(4)
    ensemble = TreeEnsemble(tuple(deep_tree(random, 20, 30) for _ in range(2)), 20, labels=None)
    calibration = None if comparisons == "client" else random.integers(-1, 4, (300, 20)).astype(float)
    model = compile_ensemble(ensemble, sets=[TOY], p_fail_log2=-600.0, thresholds=comparisons, samples=calibration)
    facts = model.report()
    assert facts["depth"] >= 30
    assert facts["bootstraps_of_flags"] > 0
    assert facts["lookup_p_fail_log2"] <= -600
    x = random.integers(-1, 4, (200, 20)).astype(float)
    x[1:150] = np.where(random.random((149, 20)) < 0.9, x[0], x[1:150])  # far along one path
    np.testing.assert_allclose(model.predict(x), ensemble.evaluate(x), atol=1e-9)
    key, session = sessions(TOY, device)
    np.testing.assert_array_equal(model.predict(x[:4], "encrypted", key=key, session=session), model.predict(x[:4]))


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", ["many columns", "digits", "wine"])
def test_forests_with_their_defaults(name):
    """Fully grown, from scikit-learn as they are: exact on its own thresholds, in no more look-ups than half of the leaves."""
    datasets, ensembles = pytest.importorskip("sklearn.datasets"), pytest.importorskip("sklearn.ensemble")
    make = {
        "many columns": lambda: datasets.make_classification(1500, 57, n_informative=12, flip_y=0.1, random_state=0),
        "digits": lambda: datasets.load_digits(return_X_y=True),
        "wine": lambda: datasets.load_wine(return_X_y=True),
    }
    x, y = make[name]()
    forest = ensembles.RandomForestClassifier(4, random_state=0).fit(x, y)
    model = compile_ensemble(of_sklearn_forest(forest), thresholds="client")
    facts = model.report()
    leaves = sum(tree.get_n_leaves() for tree in forest.estimators_)
    classes = facts["bootstraps"] / leaves
    assert classes < 0.55 * (1 if y.max() == 1 else y.max())
    assert facts["lookup_p_fail_log2"] <= -128
    shares = model.predict(x[:300], output="probabilities")
    np.testing.assert_allclose(shares, forest.predict_proba(x[:300]), atol=facts["leaf_rounding_error"] + 1e-9)
    clear = simulate(model.program, model.client.phases(x[:20]), noisy=False)
    np.testing.assert_array_equal(model.client.output(clear, "scores"), model.predict(x[:20], output="scores"))


@pytest.mark.tier("all")
def test_many_trees_compile_in_seconds():
    """300 trees of depth 5: minutes, when every tree was covered by itself and every sum tried term by term."""
    random = np.random.default_rng(0)
    ensemble = TreeEnsemble(tuple(random_tree(random, 12, 5, 1, 400) for _ in range(300)), 12)
    model = compile_ensemble(ensemble, thresholds="client")
    assert model.report()["output_ciphertext_bytes"] <= 1e6
    x = random.integers(-1, 801, (100, 12)) / 2
    error = model.report()["leaf_rounding_error"]
    assert np.abs(model.predict(x, output="scores") - ensemble.scores(x)).max() <= error + 1e-9


@pytest.mark.tier("all")
def test_leaf_values_get_fewer_bits_where_answers_would_be_too_large(monkeypatch):
    random = np.random.default_rng(1)
    ensemble = TreeEnsemble(tuple(random_tree(random, 8, 5, 1, 50) for _ in range(40)), 8)
    whole, fine = (
        compile_ensemble(ensemble, thresholds="client").report(),
        compile_ensemble(ensemble, leaf_bits=8, thresholds="client").report(),
    )
    assert whole["leaf_bits"] == fine["leaf_bits"] == 8
    limit = whole["output_ciphertext_bytes"] // 2
    monkeypatch.setattr("cloakwork.models.trees.plans.MOST_ANSWER_BYTES", limit)
    model = compile_ensemble(ensemble, thresholds="client")
    facts, x = model.report(), random.integers(-1, 101, (100, 8)) / 2
    assert 5 <= facts["leaf_bits"] < 8
    assert facts["output_ciphertext_bytes"] <= limit
    error = np.abs(model.predict(x, output="scores") - ensemble.scores(x)).max()
    assert error <= facts["leaf_rounding_error"] + 1e-9
    assert compile_ensemble(ensemble, leaf_bits=8, thresholds="client").report()["leaf_bits"] == 8  # as asked for


@pytest.mark.tier("all")
def test_averages_of_many_trees_keep_few_bits_and_add_up_class_by_class(monkeypatch):
    """Numbers of several digits take fewer look-ups, but an output for each tree; rounding errors of 200 trees average out."""
    random = np.random.default_rng(3)
    trees = tuple(random_tree(random, 8, 3, 3, 50) for _ in range(200))
    ensemble = TreeEnsemble(trees, 8, aggregation="mean")
    whole = compile_ensemble(ensemble, leaf_bits=6, thresholds="client").report()
    monkeypatch.setattr("cloakwork.models.trees.plans.MOST_ANSWER_BYTES", whole["output_ciphertext_bytes"] // 2)
    model = compile_ensemble(ensemble, thresholds="client")
    facts, x = model.report(), random.integers(-1, 101, (300, 8)) / 2
    assert facts["output_ciphertext_bytes"] <= whole["output_ciphertext_bytes"] // 2
    assert 3 <= facts["leaf_bits"] <= 6
    spread = max(float(np.ptp(tree.values[tree.leaves], axis=0).max()) for tree in trees)
    assert np.abs(model.predict(x, output="scores") - ensemble.scores(x)).std() <= 0.004 * spread


@pytest.mark.tier("all")
def test_averages_of_very_many_trees_may_keep_two_bits(monkeypatch):
    """As from 2,315 trees on; here fewer, and a larger error of the average."""
    random = np.random.default_rng(4)
    ensemble = TreeEnsemble(tuple(random_tree(random, 6, 7, 1, 30) for _ in range(100)), 6, aggregation="mean")
    monkeypatch.setattr("cloakwork.models.trees.plans.MOST_ANSWER_BYTES", 1)
    monkeypatch.setattr("cloakwork.models.trees.plans._ROUNDING_OF_MEAN", 0.02)
    model = compile_ensemble(ensemble, thresholds="client")
    x = random.integers(-1, 61, (50, 6)) / 2
    assert model.report()["leaf_bits"] == 2
    error = model.report()["leaf_rounding_error"]
    assert np.abs(model.predict(x, output="scores") - ensemble.scores(x)).max() <= error + 1e-9
