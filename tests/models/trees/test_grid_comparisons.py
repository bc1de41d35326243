"""Trees whose thresholds stay on the server: exact on the grid, encrypted as in clear, and nothing that a client is told depends on thresholds."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cases import in_tiers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloakwork.models.client_steps import Thermometer
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import AccuracyError, AccuracyWarning, CompileError, ShapeError
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.repository import facts_of
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.models.trees.on_grid import on_grid
from cloakwork.models.trees.options import TreeOptions
from tests.models.trees.tree_models import of_sklearn_forest, random_tree

TOY = "toy_two_limb"
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
FEATURES = 3


DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@st.composite
def ensembles(draw):
    """Random trees with their thresholds on whole numbers, and what their features may be: multiples of a half."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    outputs, missing = draw(st.integers(1, 2)), draw(st.booleans())
    levels = draw(st.sampled_from([3, 20, 300]))
    trees = tuple(
        random_tree(random, FEATURES, draw(st.integers(0, 4)), outputs, levels, 4, missing)
        for _ in range(draw(st.integers(1, 5)))
    )
    ensemble = TreeEnsemble(trees, FEATURES, base=random.normal(size=outputs), strict=draw(st.booleans()),
                            single=draw(st.booleans()))  # fmt: skip
    return ensemble, levels


def samples_of(ensemble, levels, count, seed):
    random = np.random.default_rng(seed)
    x = random.integers(0, 2 * levels + 1, (count, FEATURES)) / 2
    x[:2] = [[0] * FEATURES, [levels] * FEATURES]
    x[random.random(x.shape) < 0.1 * ensemble.takes_missing] = np.nan
    return x


@QUICK
@given(ensembles(), st.integers(0, 1000))
def test_on_a_grid_as_fine_as_the_data_trees_are_those_with_rounded_leaves(made, seed):
    """Missing values, and 601 points in two digits, included."""
    ensemble, levels = made
    ranges = dict.fromkeys(range(FEATURES), (0, levels))
    x = samples_of(ensemble, levels, 60, seed)
    options = {"sets": [TOY], "leaf_bits": 4, "p_fail_log2": -40}
    model = compile_ensemble(ensemble, samples=x, ranges=ranges, grid_bits=10, **options)
    assert model.program.facts.grid.agreement == 1
    assert any(own.digit.any() for own in model.client.input_steps if isinstance(own, Thermometer)) == (levels == 300)
    seen = samples_of(ensemble, levels, 100, seed + 1)
    difference = np.abs(model.predict(seen, output="scores") - ensemble.scores(seen))
    assert difference.max() <= model.report()["leaf_rounding_error"] + 1e-9
    clear = simulate(model.program, model.client.phases(seen), noisy=False)
    np.testing.assert_array_equal(model.client.output(clear, "scores"), model.predict(seen, output="scores"))


@settings(QUICK, max_examples=10)
@given(ensembles(), st.integers(0, 1000))
def test_encrypted_equals_quantised(sessions, made, seed):
    ensemble, levels = made
    key, session = sessions(TOY)
    x = samples_of(ensemble, levels, 30, seed)
    model = compile_ensemble(ensemble, samples=x, grid_bits=10, sets=[TOY], leaf_bits=4)
    encrypted = model.predict(x[:5], "encrypted", key=key, session=session, output="scores")
    np.testing.assert_array_equal(encrypted, model.predict(x[:5], output="scores"))


@DEVICES
def test_few_of_many_points_are_extracted_alone(sessions, device):
    """1,530 bits of which three are read, several samples to a ciphertext and several ciphertexts to a sample."""
    key, session = sessions(TOY, device)
    tree = Tree.of_nodes([0, 2, 5, 0, 0, 0, 0], [9.5, 100.5, 250.5, 0, 0, 0, 0], [1, 3, 5, -1, -1, -1, -1], [2, 4, 6, -1, -1, -1, -1],
                         [[0], [0], [0], [1], [2], [3], [5]])  # fmt: skip
    ensemble = TreeEnsemble((tree,), 6)
    x = np.random.default_rng(0).integers(0, 256, (300, 6)).astype(float)
    x[:2] = [[0] * 6, [255] * 6]
    model = compile_ensemble(ensemble, samples=x, grid_bits=8, sets=[TOY])
    assert model.program.graph.input.size == 6 * 255
    assert len(model.program.schedule.steps[0].columns) == 3
    np.testing.assert_array_equal(model.predict(x), ensemble.evaluate(x))
    found = model.predict(x[:7], "encrypted", key=key, session=session)
    np.testing.assert_array_equal(found, ensemble.evaluate(x[:7]))


# --- what a client is told -------------------------------------------------------------------------------------------------------


def without_digests(text):
    fields = json.loads(text)
    assert len(fields.pop("program_digest")) == 64
    return fields


def moved(ensemble, random, most=60, among=()):
    """The same trees, every feature's thresholds mapped to others below `most`, or from `among`, in the same order."""
    maps = []
    for feature in range(ensemble.features):
        own = np.unique(
            np.concatenate([tree.threshold[tree.inner][tree.feature[tree.inner] == feature] for tree in ensemble.trees])
        )
        maps.append(
            dict(
                zip(
                    own.tolist(),
                    np.sort(
                        random.choice(among if len(among) else np.arange(1, most), len(own), replace=False)
                    ).tolist(),
                    strict=True,
                )
            )
        )
    trees = []
    for tree in ensemble.trees:
        threshold = tree.threshold.copy()
        for node in tree.inner:
            threshold[node] = maps[int(tree.feature[node])][float(threshold[node])]
        trees.append(replace(tree, threshold=threshold))
    return replace(ensemble, trees=tuple(trees))


@pytest.mark.parametrize(
    ("bits", "most", "has_labels"),
    in_tiers(
        [(*each, labels) for each in ((6, 60), (8, 250), (12, 4000), (16, 60000)) for labels in (False, True)],
        quick=[(6, 60, True), (12, 4000, False)],
    ),
)
def test_nothing_that_a_client_is_told_depends_on_the_thresholds(bits, most, has_labels):
    """The specification and all metadata of the service, digests aside, which are salted; thresholds at ends of digits among them."""
    random, labels = np.random.default_rng(7), np.array(["a", "b"]) if has_labels else None
    trees = tuple(random_tree(random, 4, 4, 1, 8, 4, missing=True) for _ in range(6))
    ensemble = TreeEnsemble(trees, 4, labels=labels, transform="none" if labels is None else "sigmoid")
    x = random.integers(0, most, (200, 4)).astype(float)
    x[:2] = [[0] * 4, [most - 1] * 4]
    options = {"samples": x, "grid": "integers", "grid_bits": bits, "sets": ["lut3"]}
    first = compile_ensemble(ensemble, **options).client.input_steps[-1]
    digit = 1 << bits // 2
    ends = first.grid(0)[[0, digit - 2, digit - 1, digit, -2 * digit, -digit - 1, -2, -1]] if bits > 8 else ()
    models = [compile_ensemble(moved(ensemble, random, most, own), **options) for own in ((), (), ends)]
    answers = [model.predict(x, output="scores").tolist() for model in models]
    assert answers[0] != answers[1] != answers[2], "they are other models"
    specifications = [without_digests(model.client.to_json()) for model in models]
    assert specifications[0] == specifications[1] == specifications[2]
    known = [facts_of(model.program) for model in models]
    for facts in known:
        facts["client"] = without_digests(facts["client"])
        facts["report"].pop("program_digest")
        facts.pop("program_digest")
        assert "agreement" not in json.dumps(facts)
    assert known[0] == known[1] == known[2]


def test_a_digest_confirms_no_guess():
    """The same trees on the same grid: every program has a salt of its own, which its file keeps."""
    tree = Tree.of_nodes([0, 0, 0], [2.5, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
    ensemble, x = TreeEnsemble((tree,), 1), np.arange(6.0)[:, None]
    programs = [compile_ensemble(ensemble, samples=x, sets=[TOY]).program for _ in range(2)]
    assert programs[0].digest != programs[1].digest and programs[0].salt != programs[1].salt
    assert replace(programs[0], salt=programs[1].salt).digest == programs[1].digest
    exact = [compile_ensemble(ensemble, thresholds="client", sets=[TOY]).program for _ in range(2)]
    assert exact[0].digest == exact[1].digest


def test_two_forests_on_the_same_data_have_one_specification():
    """Labels alone: the whole specification; with scores all that is sent up, and beside it what the leaf values make."""
    ensembles_module = pytest.importorskip("sklearn.ensemble")
    random = np.random.default_rng(3)
    x = np.stack(
        [random.normal(size=400), random.integers(0, 30, 400), random.random(400) < 0.3, np.full(400, 2.0)], axis=1
    )
    y = (x[:, 0] + x[:, 1] / 20 + x[:, 2] > 1).astype(int)
    fitted = [ensembles_module.RandomForestClassifier(8, max_depth=4, random_state=seed).fit(x, y) for seed in range(2)]
    neutral = [of_sklearn_forest(forest) for forest in fitted]
    assert {tree.threshold.tobytes() for tree in neutral[0].trees}.isdisjoint(
        tree.threshold.tobytes() for tree in neutral[1].trees
    )
    options = {"samples": x, "sets": ["lut4"], "grid_bits": 6}  # bits that are found by need may differ
    labels = [compile_ensemble(each, tell="labels", **options) for each in neutral]
    assert without_digests(labels[0].client.to_json()) == without_digests(labels[1].client.to_json())
    for model, forest in zip(labels, fitted, strict=True):
        assert (model.predict(x) == forest.predict(x)).mean() > 0.9
    scores = [without_digests(compile_ensemble(each, **options).client.to_json()) for each in neutral]
    up = ("input_steps", "input_shape", "input_range", "parameter_set")
    assert [[fields[name] for name in up] for fields in scores[:1]] == [
        [fields[name] for name in up] for fields in scores[1:]
    ]
    assert [step["step"] for step in scores[0]["output_steps"]] == ["Wrap", "Combine", "Transform", "Labels"]
    assert set(scores[0]["output_steps"][0]["lowest"]) == {0} and set(scores[0]["output_offset"]) == {0.0}


# --- the report, and inputs unlike the obvious ones ------------------------------------------------------------------------------


def test_the_report_says_what_the_client_is_told(tmp_path):
    random = np.random.default_rng(0)
    ensemble = TreeEnsemble(tuple(random_tree(random, 4, 4, 1, 20) for _ in range(6)), 4, feature_names=tuple("abcd"))
    x = random.integers(0, 40, (300, 4)) / 2
    on_grid = compile_ensemble(ensemble, samples=x, sets=["lut3"])
    exact = compile_ensemble(ensemble, thresholds="client", sets=["lut3"])
    told = [{each["what"]: each["count"] for each in model.report()["discloses"]} for model in (on_grid, exact)]
    assert told[0]["ends and steps of public grids"] == 8 and "thresholds of the model" not in told[0]
    assert told[1]["thresholds of the model"] == exact.report()["comparison_bits"]
    grid = on_grid.report()["grid"]
    assert (grid["bits"], grid["points"], grid["kinds"]) == (6, 4 * 41, {"integers": 4})
    assert (grid["measure"], grid["agreement"], grid["samples"]) == ("closeness", 1.0, 300)
    assert on_grid.report()["bootstraps"] == exact.report()["bootstraps"]
    text = on_grid.details
    assert "public grid: 6 bits, 164 points (4 integers), 164 bits sent for a sample" in text
    assert (
        "the client specification tells: 8 ends and steps of public grids, 1 unit of scores, 1 constant of scores"
        in text
    )
    assert f"{told[1]['thresholds of the model']} thresholds of the model" in str(exact).splitlines()[3]
    on_grid.save(tmp_path / "trees.clkm")
    loaded = CompiledModel.load(tmp_path / "trees.clkm")
    assert loaded.report() == on_grid.report() and loaded.program.digest == on_grid.program.digest
    client = ClientSpecification.from_json(loaded.client.to_json())
    np.testing.assert_array_equal(client.phases(x), on_grid.client.phases(x))


def heavy_tails(count=500):
    """Incomes: two millionaires, and a model that looks at the others."""
    random = np.random.default_rng(5)
    x = np.exp(random.normal(size=(count, 2)))
    x[:2, 0] = 1e6
    return x, (np.minimum(x[:, 0], 5) + x[:, 1] > 2.5).astype(int)


def test_a_grid_that_is_too_coarse_warns_and_says_what_helps():
    tree_module = pytest.importorskip("sklearn.tree")
    x, y = heavy_tails()
    fitted = tree_module.DecisionTreeClassifier(max_depth=5, random_state=0).fit(x, y)
    ensemble = of_sklearn_forest(fitted, feature_names=("income", "age"))
    with pytest.warns(
        AccuracyWarning,
        match=r"decide as before on [0-9.]+ % \([^)]*\), most by the grid of income, age; .*grid='quantiles'",
    ) as warned:
        coarse = compile_ensemble(ensemble, samples=x, sets=["lut3"], accuracy=0)
    assert warned[0].filename == __file__
    assert coarse.program.facts.grid.agreement < 0.95
    with pytest.raises(AccuracyError, match=r"decide as before on [0-9.]+ %.*97 % were asked for"):
        compile_ensemble(ensemble, samples=x, sets=["lut3"])
    for options in (
        {"grid": "quantiles"},
        {"grid": {"income": "quantiles"}, "grid_bits": 8},
        {"grid": {"income": np.geomspace(0.01, 100, 250)}, "grid_bits": 8},
        {"ranges": {"income": (0, 8)}, "grid_bits": 8},
    ):
        model = compile_ensemble(ensemble, samples=x, sets=["lut3"], **options)
        assert model.program.facts.grid.agreement >= 0.98
        assert (model.predict(x) == fitted.predict(x)).mean() >= 0.98


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
@pytest.mark.parametrize("seed", range(4))
def test_trees_lose_on_new_samples_what_is_stated(seed):
    """Thresholds lie midway between the samples, which therefore say little of thresholds that move."""
    tree_module = pytest.importorskip("sklearn.tree")
    x, new = (np.random.default_rng([seed, i]).gamma(1.5, 20, (count, 5)) for i, count in enumerate((600, 20_000)))
    y = np.stack([x[:, 0] * 1e-4, 1000 * np.log(x[:, 1] + 1)], axis=1)
    ensemble = of_sklearn_forest(tree_module.DecisionTreeRegressor(max_depth=6, random_state=0).fit(x, y))
    options = TreeOptions(samples=x, accuracy=0.0)
    for bits in (8, 12):
        chosen = on_grid(ensemble, replace(options, grid_bits=bits))
        clear = ensemble.scores(new)
        lost = np.square((chosen.ensemble.scores(new) - clear) / clear.std(axis=0)).mean(axis=0).max() ** 0.5
        assert 1 / 1.6 < lost / (1 - chosen.verdict.value) < 1.6
    assert on_grid(ensemble, replace(options, accuracy=0.9)).facts.bits > 12


def test_infinite_and_missing_inputs():
    tree = Tree.of_nodes([0, 0, 0], [2.5, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
    x = np.arange(6.0)[:, None]
    model = compile_ensemble(TreeEnsemble((tree,), 1), samples=x, sets=[TOY])
    assert model.predict([[-1e300], [1e300], [2.0], [3.0]]).tolist() == [0, 1, 0, 1]
    with pytest.raises(ShapeError, match="infinite"):
        model.predict([[np.inf]])
    with pytest.raises(ShapeError, match="missing values"):
        model.predict([[np.nan]])
    with pytest.raises(ShapeError, match="missing values"):
        compile_ensemble(TreeEnsemble((tree,), 1), samples=[[np.nan]], sets=[TOY])
    directed = TreeEnsemble((replace(tree, missing_left=np.array([False, False, False])),), 1)
    either = compile_ensemble(directed, samples=np.append(x, [[np.nan]], axis=0), sets=[TOY])
    assert either.predict([[np.nan], [0.0]]).tolist() == [1, 0]
    nothing_seen = compile_ensemble(directed, samples=[[np.nan]] * 3, sets=[TOY])
    assert nothing_seen.predict([[np.nan]]).tolist() == [1]


@pytest.mark.parametrize("constant", [3.0, 0.1234567891, -1e-9, 1e12])
def test_a_constant_feature_keeps_the_side_that_it_is_on(constant):
    x = np.full((50, 1), constant)
    for threshold, expected in (
        (constant - 1e-3 * abs(constant) - 1e-12, 1),
        (constant + 1e-3 * abs(constant) + 1e-12, 0),
    ):
        tree = Tree.of_nodes([0, 0, 0], [threshold, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
        model = compile_ensemble(TreeEnsemble((tree,), 1), samples=x, sets=[TOY])
        assert model.predict(x).tolist() == [expected] * 50


def test_thousands_of_features_have_a_limit():
    tree = Tree.of_nodes([0, 0, 0], [0.5, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
    x = np.random.default_rng(0).normal(size=(20, 3000))
    ensemble = TreeEnsemble((tree,), 3000)
    with pytest.raises(
        CompileError, match=r"public grid of 3000 features at 6 bits has 189000 bits for a sample, at most 131072"
    ):
        compile_ensemble(ensemble, samples=x)
    ones = compile_ensemble(ensemble, samples=(x > 0).astype(float), sets=[TOY])
    assert ones.program.graph.input.size == 3 * 3000  # of 0 and 1: the point between them, and one on either side
    assert ones.predict((x[:5] > 0).astype(float)).tolist() == (x[:5, 0] > 0).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "samples: expected samples, or ranges"),
        ({"samples": np.ones((4, 3))}, r"\['samples', 1\]"),
        ({"samples": np.ones((0, 1))}, "expected samples of 1 features"),
        (
            {"thresholds": "client", "grid": "uniform"},
            "expected thresholds='grid' or 'server', got thresholds='client'",
        ),
        ({"thresholds": "client", "ranges": {0: (0, 1)}}, "expected thresholds='grid' or 'server'"),
    ],
)
def test_wishes_that_do_not_fit_are_refused(options, message):
    tree = Tree.of_nodes([0, 0, 0], [0.5, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
    with pytest.raises((CompileError, ShapeError), match=message):
        compile_ensemble(TreeEnsemble((tree,), 1), **options)
