"""Secret thresholds found by the server from positions on the public grid: exact, encrypted as in clear, and nothing told depends on thresholds."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from cases import case, in_tiers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.client_steps import Bins, Positions, Thermometer, input_steps_from_fields
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, NoParameterSetError, ShapeError
from cloakwork.models.program.answers import weight_norms
from cloakwork.models.repository import facts_of
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees import compile_scores
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.models.trees.position_bits import DigitCode, digit_code
from tests.models.trees.test_grid_comparisons import ensembles, moved, samples_of, without_digests
from tests.models.trees.tree_models import of_sklearn_forest, random_tree

TOY = "toy_two_limb"  # digits of 3 bits, 4 of them in one sign
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
RNG = np.random.default_rng(11)
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def stump(threshold, **options):
    """0 up to the threshold, 1 above it."""
    tree = Tree.of_nodes([0, 0, 0], [threshold, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
    return TreeEnsemble((tree,), 1, **options)


def steps_of(model, kind):
    return [step for step in model.client.input_steps if isinstance(step, kind)]


# --- the client's step -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 8, 255, 256, 65535])
def test_positions_count_failing_comparisons(count):
    for strict, bits in itertools.product((False, True), (1, 3, 4, 16)):
        with case(strict, bits):
            count_failing_comparisons(strict, bits, count)


def count_failing_comparisons(strict, bits, count):
    number = np.array
    step = Positions(number([1, 0]), number([count, 3]), number([0.5, 0.0]), number([1.0, 0.0]), number([-1.0, 0, 2]), bits, True,
                     strict)  # fmt: skip
    x = np.stack([RNG.integers(-2, 3, 60), RNG.integers(-3, 2 * count + 3, 60) / 2], axis=1).astype(float)
    x[:4, 0], x[2:6, 1], x[6, 1], x[7, 1] = np.nan, np.nan, 1e300, -1e300
    sent = step(x)
    assert sent.shape == (60, step.widths.sum()) and sent.min() >= 0 and sent.max() < 1 << bits
    for feature, column, points in ((0, x[:, 1], 0.5 + np.arange(count)), (1, x[:, 0], number([-1.0, 0, 2]))):
        assert step.digits[feature] == -(-len(points).bit_length() // bits)
        own = sent[:, step.starts[feature] : step.starts[feature] + step.widths[feature]]
        np.testing.assert_array_equal(own[:, -1], np.isnan(column))
        holds = column[:, None] < points if strict else column[:, None] <= points
        expected = np.where(np.isnan(column), 0, (~holds).sum(axis=1))
        np.testing.assert_array_equal(own[:, :-1] @ (2.0 ** (bits * np.arange(step.digits[feature]))), expected)


def test_millions_of_digits_are_refused():
    """A line of text asks for no more numbers than a sample may have."""
    columns = {"step": "Columns", "count": 1, "names": None, "missing": False}
    step = {"step": "Positions", "missing": False, "strict": False, "single": False}
    many = 200_000
    fields = {
        "feature": [0] * many, "count": [65535] * many, "low": [0.0] * many, "spacing": [1.0] * many, "points": [], "bits": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match="digits"):
        input_steps_from_fields([columns, {**step, **fields}])


# --- comparisons -----------------------------------------------------------------------------------------------------------------


@QUICK
@given(ensembles(), st.integers(0, 1000), st.sampled_from([TOY, "toy"]))
def test_positions_decide_as_bits_of_the_same_grid(made, seed, params):
    """One digit, several, and several signs; missing values and ties included. The clear program as the model, too."""
    ensemble, levels = made
    ranges = dict.fromkeys(range(3), (0, levels))
    x = samples_of(ensemble, levels, 100, seed)
    options = {"samples": x, "ranges": ranges, "grid_bits": 10, "leaf_bits": 4, "p_fail_log2": -40}
    bits = compile_ensemble(ensemble, sets=[TOY], **options)
    model = compile_ensemble(ensemble, thresholds="server", sets=[params], **options)
    assert model.program.facts.grid.agreement == 1 and not steps_of(model, Thermometer | Bins)
    np.testing.assert_array_equal(model.predict(x, output="scores"), bits.predict(x, output="scores"))
    clear = simulate(model.program, model.client.phases(x), noisy=False)
    np.testing.assert_array_equal(model.client.output(clear, "scores"), bits.predict(x, output="scores"))


@DEVICES
@settings(QUICK, max_examples=10)
@given(ensembles(), st.integers(0, 1000))
def test_encrypted_equals_quantised(sessions, device, made, seed):
    ensemble, levels = made
    key, session = sessions(TOY, device)
    x = samples_of(ensemble, levels, 30, seed)
    model = compile_ensemble(ensemble, thresholds="server", samples=x, grid_bits=10, sets=[TOY], leaf_bits=4)
    encrypted = model.predict(x[:5], "encrypted", key=key, session=session, output="scores")
    np.testing.assert_array_equal(encrypted, model.predict(x[:5], output="scores"))


@pytest.mark.parametrize("bits", in_tiers((1, 3, 6, 9, 12, 16), quick=(1, 6, 12)))
def test_every_threshold_of_a_grid_is_exact(sessions, bits):
    """A single feature, positions at either side of thresholds that lie at ends of the grid and of digits, really encrypted."""
    count = (1 << bits) - 1
    points = {0, count - 1, count // 2, *(min(count - 1, each) for each in (1, 6, 7, 8, 63, 64, 511, 512, 4095, 4096))}
    key, session = sessions(TOY)
    ends = (0.5, count - 0.5) if count > 1 else (0.0, 1.0)
    trees = tuple(stump(point + 0.5).trees[0] for point in sorted(points))
    ensemble = TreeEnsemble(trees, 1, single=bits % 2 == 1)
    model = compile_ensemble(
        ensemble, thresholds="server", grid={0: np.arange(count) + 0.5}, grid_bits=bits, sets=[TOY],
        samples=np.array([[ends[0]], [ends[1]]]),
    )  # fmt: skip
    facts = model.report()
    digits = -(-bits // 3)
    stages = 0 if digits == 1 else 1 + max(0, -(-(digits - 4) // 3))
    assert facts["bootstraps_per_level"][0] == digits and len(facts["bootstraps_per_level"]) == 1 + stages + 1
    assert facts["bootstraps_per_level"][stages] == (len(points) if stages else digits)
    assert facts["grid"]["sent"] == digits and facts["grid"]["digit_bits"] == 3
    x = np.array(sorted({each for point in points for each in (point, point + 0.25, point + 1)}))[:, None].astype(float)
    expected = np.array([sum(value > point + 0.5 for point in points) for value in x[:, 0]])
    np.testing.assert_array_equal(model.predict(x), expected)
    few = np.concatenate([x[:3], x[-3:], x[len(x) // 2 :][:2]])
    np.testing.assert_array_equal(model.predict(few, "encrypted", key=key, session=session), model.predict(few))


def test_equal_trees_cost_as_one():
    tree = random_tree(np.random.default_rng(5), 3, 4, 1, 300, 4)
    x = np.random.default_rng(0).integers(0, 601, (200, 3)) / 2
    options = {"thresholds": "server", "samples": x, "grid_bits": 10, "sets": [TOY], "leaf_bits": 4}
    one, many = (compile_ensemble(TreeEnsemble((tree,) * count, 3), **options) for count in (1, 7))
    assert one.report()["bootstraps"] == many.report()["bootstraps"]
    np.testing.assert_allclose(many.predict(x), 7 * one.predict(x))


@pytest.mark.parametrize("constant", [3.0, 0.1234567891, -1e-9, 1e12])
@pytest.mark.parametrize("bits", [2, 6])
def test_a_constant_feature_keeps_the_side_that_it_is_on(constant, bits):
    x = np.full((50, 1), constant)
    for side, expected in ((-1, 1), (1, 0)):
        ensemble = stump(constant + side * (1e-3 * abs(constant) + 1e-12))
        model = compile_ensemble(ensemble, thresholds="server", samples=x, grid_bits=bits, sets=[TOY])
        assert model.predict(x).tolist() == [expected] * 50


def test_a_constant_tree_and_infinite_and_missing_inputs(sessions):
    x = np.arange(6.0)[:, None]
    leaf = TreeEnsemble((Tree.of_nodes([0], [0], [-1], [-1], [[3.5]]),), 1)
    alone, (key, session) = compile_ensemble(leaf, thresholds="server", samples=x, sets=[TOY]), sessions(TOY)
    assert alone.program.bootstraps == 0
    assert alone.predict([[0.0], [1.0]], "encrypted", key=key, session=session).tolist() == [3.5, 3.5]
    model = compile_ensemble(stump(2.5), thresholds="server", samples=x, sets=[TOY])
    assert model.predict([[-1e300], [1e300], [2.0], [3.0]]).tolist() == [0, 1, 0, 1]
    for hostile, message in (
        ([[np.inf]], "infinite"),
        ([[np.nan]], "missing values"),
        ([[1.0, 2.0]], "expected an array of shape"),
    ):
        with pytest.raises(ShapeError, match=message):
            model.predict(hostile)


@pytest.mark.parametrize("bits", [2, 6, 13])
def test_missing_values_go_where_training_sent_them(sessions, bits):
    """Either direction on one threshold, of one digit, several and several signs; encrypted."""
    either = [replace(stump(1.5).trees[0], missing_left=np.array([left, False, False])) for left in (True, False)]
    weighted = replace(either[1], values=either[1].values * 2)
    ensemble = TreeEnsemble((either[0], weighted), 1)
    points = np.arange((1 << bits) - 1) + 0.5
    x, (key, session) = np.array([[np.nan], [1.0], [2.0]]), sessions(TOY)
    model = compile_ensemble(ensemble, thresholds="server", grid={0: points}, grid_bits=bits, samples=x, sets=[TOY])
    assert model.predict(x).tolist() == [2, 0, 3]
    assert model.predict(x, "encrypted", key=key, session=session).tolist() == [2, 0, 3]


@pytest.mark.parametrize("comparisons", ["grid", "server"])
def test_a_service_of_labels_of_one_tree(sessions, comparisons):
    tree = random_tree(np.random.default_rng(3), 3, 4, 2, 300)
    ensemble = TreeEnsemble((tree,), 3, labels=np.array(["no", "yes"]))
    x = np.random.default_rng(0).integers(0, 601, (200, 3)) / 2
    model = compile_ensemble(ensemble, thresholds=comparisons, samples=x, grid_bits=10, sets=[TOY], tell="labels")
    key, session = sessions(TOY)
    np.testing.assert_array_equal(model.predict(x), ensemble.evaluate(x))
    np.testing.assert_array_equal(model.predict(x[:4], "encrypted", key=key, session=session), ensemble.evaluate(x[:4]))


# --- noise -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lut2", "lut3", "lut4", "lut5", "lut3_block"])
def test_digits_and_signs_are_as_large_as_the_noise_allows(name):
    """The variance of the longest sum, built here from its parts, is within the probability; that of one digit more is not."""
    params = parameter_set(name)
    code = digit_code(params, -128.0)

    def log2_wrong(digits):
        sums = (2 * digits - 1) + 2 * (digits - 1) * noise.rotation_correlation_bound(params)
        variance = sums * noise.blind_rotation_variance(params) + noise.keyswitch_variance(params)
        variance += noise.modulus_switch_variance(params) + (2 * code.radix) ** 2 * noise.fresh_variance(params)
        return noise.p_fail_log2(1 / 2 ** (digits + 1), variance, noise.lookup_offset(params))

    assert log2_wrong(code.together) <= -128 < log2_wrong(code.together + 1)
    of_digit = [noise.p_fail_log2(1 / (4 * radix), noise.lookup_variance(params, 0.0), noise.lookup_offset(params))
                for radix in (code.radix, 2 * code.radix)]  # fmt: skip
    assert of_digit[0] <= -128 < of_digit[1]
    assert {"lut3": DigitCode(3, 4), "lut4": DigitCode(4, 5)}.get(name, code) == code


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
@pytest.mark.parametrize(("name", "bits"), [("lut3", 8), ("lut3", 16), ("lut4", 16)])
def test_the_report_counts_every_level(name, bits):
    random = np.random.default_rng(2)
    ensemble = TreeEnsemble(tuple(random_tree(random, 4, 5, 1, 1000) for _ in range(6)), 4)
    x = random.normal(500, 200, (300, 4))
    model = compile_ensemble(ensemble, thresholds="server", samples=x, grid_bits=bits, sets=[name], accuracy=0.0)
    facts, graph = model.report(), model.program.graph
    by_layer = {layer["name"]: layer for layer in facts["layers"]}
    signs = [own for own in by_layer if own.startswith("comparisons")]
    assert len(signs) == (2 if (name, bits) == ("lut3", 16) else 1)
    assert all(by_layer[own]["failure_log2"] <= -128 for own in ("digits", *signs, "conditions"))
    assert facts["lookup_p_fail_log2"] == pytest.approx(
        max(by_layer[own]["failure_log2"] for own in ("digits", *signs, "conditions"))
    )
    assert (
        facts["failure_log2_program"]
        <= facts["p_fail_log2"] + 1e-6
        <= -128 + np.log2(facts["bootstraps"] + facts["outputs"]) + 1e-6
    )
    for norms in weight_norms(graph):
        if norms.origin in signs:
            assert norms.on_lookups**2 <= 2 * digit_code(model.program.parameters, -128.0).together - 1 + 1e-9
            assert norms.within_rotations <= norms.on_lookups**2
    assert set(model.program.layer_noise) <= {"digits", *signs}
    np.testing.assert_allclose(model.predict(x[:100], "simulate", seed=1), model.predict(x[:100]), atol=1e-9)


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", ["toy", TOY])
def test_signs_of_too_many_digits_fail_as_often_as_the_report_says(monkeypatch, name):
    """Seven digits of one bit, more than the set allows, at the two sums that are next to the edge, really encrypted.

    The report counts both edges and the rounding of an index at its worst, so that its half is the most; without that rounding the half is
    the least. Five standard deviations of a binomial count either way (false alarm below 10^-6)."""
    monkeypatch.setattr(compile_scores, "digit_code", lambda params, p_fail_log2: DigitCode(1, 7))
    threshold, count, params = 84, 1500, parameter_set(name)  # even, so that the lowest digit decides
    key = ClientKey._from_entropy(params, bytes(range(32)))
    model = compile_ensemble(
        stump(threshold + 0.5), thresholds="server", grid={0: np.arange(127) + 0.5}, grid_bits=7, sets=[name],
        samples=np.array([[0.0], [127.0]]),
    )  # fmt: skip
    assert model.report()["bootstraps_per_level"] == [7, 1, 1]
    (layer,) = (each for each in model.report()["layers"] if each["name"] == "comparisons")
    x = np.random.default_rng(0).integers(threshold, threshold + 2, (count, 1)).astype(float)
    encrypted = model.predict(x, "encrypted", key=key, session=Session(key.evaluation_keys(), "cpu"))
    wrong = float((encrypted != (x[:, 0] > threshold)).mean())
    most = 2 ** layer["failure_log2"] / 2
    least = 2 ** noise.p_fail_log2(2.0**-8, (layer["noise_percent"] / 200) ** 2, 0.0) / 2
    assert 0.01 < least < most < 0.2
    assert least - 5 * np.sqrt(least / count) < wrong < most + 5 * np.sqrt(most / count)


def test_sets_that_do_not_compare_are_refused():
    x = np.arange(20.0)[:, None]
    with pytest.raises(NoParameterSetError, match="no two values apart|compare no positions"):
        compile_ensemble(stump(2.5), thresholds="server", samples=x, sets=["lut2"], p_fail_log2=-3000.0)


# --- what a client is told -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "most"), [(6, 60), (8, 250), (12, 4000)])
def test_nothing_that_a_client_is_told_depends_on_the_thresholds(bits, most):
    """The specification and all metadata of the service, digests aside, which are salted; thresholds at ends of digits among them."""
    random = np.random.default_rng(7)
    ensemble = TreeEnsemble(tuple(random_tree(random, 4, 4, 1, 8, 4, missing=True) for _ in range(6)), 4)
    x = random.integers(0, most, (300, 4)).astype(float)
    x[:2] = [[0] * 4, [most - 1] * 4]
    options = {"thresholds": "server", "grid_bits": bits, "sets": ["lut3"], "samples": x}
    models = [compile_ensemble(moved(ensemble, random, most), **options) for _ in range(4)]
    assert len({model.predict(x, output="scores").tobytes() for model in models}) == 4, "they are other models"
    known = [facts_of(model.program) for model in models]
    for facts in known:
        facts["client"] = without_digests(facts["client"])
        facts["report"].pop("program_digest")
        facts.pop("program_digest")
    assert all(facts == known[0] for facts in known)


def test_two_forests_on_the_same_data_have_one_specification():
    """All that is sent up; with labels alone (of one tree) the whole specification."""
    ensembles_module = pytest.importorskip("sklearn.ensemble")
    random = np.random.default_rng(3)
    x = np.stack(
        [random.normal(size=400), random.integers(0, 30, 400), random.random(400) < 0.3, np.full(400, 2.0)], axis=1
    )
    y = (x[:, 0] + x[:, 1] / 20 + x[:, 2] > 1).astype(int)
    fitted = [ensembles_module.RandomForestClassifier(8, max_depth=4, random_state=seed).fit(x, y) for seed in range(2)]
    neutral = [of_sklearn_forest(forest) for forest in fitted]
    thresholds = [{float(t) for tree in each.trees for t in tree.threshold[tree.inner]} for each in neutral]
    specifications = []
    for each, forest in zip(neutral, fitted, strict=True):
        model = compile_ensemble(each, thresholds="server", samples=x, sets=["lut3"], grid_bits=8)
        assert (model.predict(x) == forest.predict(x)).mean() > 0.98
        told = without_digests(model.client.to_json())
        numbers = {number for field in ("low", "spacing", "points") for number in told["input_steps"][-1][field]}
        assert not numbers & (thresholds[0] ^ thresholds[1])
        assert {entry["what"] for entry in model.report()["discloses"]}.isdisjoint({"thresholds of the model"})
        specifications.append([told[name] for name in ("input_steps", "input_shape", "input_range", "parameter_set")])
    assert specifications[0] == specifications[1]
    labels = [
        compile_ensemble(
            replace(each, trees=each.trees[:1]),
            thresholds="server",
            samples=x,
            sets=["lut3"],
            grid_bits=8,
            tell="labels",
        )
        for each in neutral
    ]
    assert without_digests(labels[0].client.to_json()) == without_digests(labels[1].client.to_json())


def test_the_report_and_the_file(tmp_path):
    random = np.random.default_rng(0)
    ensemble = TreeEnsemble(tuple(random_tree(random, 4, 4, 1, 20) for _ in range(6)), 4, feature_names=tuple("abcd"))
    x = random.integers(0, 40, (300, 4)) / 2
    options = {"samples": x, "sets": ["lut3"]}
    model, bits = compile_ensemble(ensemble, thresholds="server", **options), compile_ensemble(ensemble, **options)
    facts, grid = model.report(), model.report()["grid"]
    assert {each["what"]: each["count"] for each in facts["discloses"]}["ends and steps of public grids"] == 8
    assert facts["discloses"] == bits.report()["discloses"]
    assert (grid["points"], grid["sent"], grid["digit_bits"], grid["agreement"]) == (4 * 41, 8, 3, 1.0)
    assert facts["bootstraps_per_level"][:2] == [8, facts["comparison_bits"]]
    assert "164 points (4 integers), 8 numbers of 3 bits sent for a sample" in model.details
    assert f"{facts['comparison_bits']} comparisons on 4 features by the server" in model.details
    assert model.program.salt
    model.save(tmp_path / "trees.clkm")
    loaded = CompiledModel.load(tmp_path / "trees.clkm")
    assert loaded.report() == facts and loaded.program.digest == model.program.digest
    np.testing.assert_array_equal(loaded.client.phases(x), model.client.phases(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected samples, or ranges"),
        ({"samples": np.ones((4, 3))}, r"\['samples', 1\]"),
        ({"samples": np.ones((4, 1)), "grid_bits": 17}, "grid_bits: expected 1 to 16, got 17"),
        ({"samples": np.ones((4, 1)), "grid": "nearest"}, "grid: expected"),
    ],
)
def test_wishes_that_do_not_fit_are_refused(options, message):
    with pytest.raises((CompileError, ShapeError), match=message):
        compile_ensemble(stump(0.5), thresholds="server", **options)
