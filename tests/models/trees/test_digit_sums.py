"""Comparisons of two digits in the indices that read them: the same trees, in fewer look-ups."""

import itertools

import numpy as np
import pytest
from cases import in_tiers
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.cover import cover_trees
from cloakwork.models.trees.cover_costs import Budget
from cloakwork.models.trees.digit_sums import Rules, compared_alone, widened, with_digit_sums
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble, edges_of
from cloakwork.models.trees.flat_trees import Skeleton
from cloakwork.models.trees.index_weights import FlagWeights
from cloakwork.models.trees.tree_program import largest_norm
from tests.models.trees.test_cover import comparison_bits, evaluated
from tests.models.trees.tree_models import random_tree

TOY = "toy_two_limb"


def sums_of(covers, bits, random):
    """What indices read: 0 or 1 for comparisons that fail, 2 or 3 for those that hold, in place of those that are summed."""
    bits = bits.copy()
    for edge in covers.digit_sums:
        bits[:, edge] = 2 * bits[:, edge] + random.integers(0, 2, len(bits))
    return bits


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([2, 3, 200]),
    st.sampled_from([4, 8, 10, 16]),
    st.sampled_from([None, FlagWeights(1, 4), FlagWeights(2, 4)]),
    st.tuples(st.booleans(), st.booleans()),
)
def test_covers_are_the_trees(seed, features, depth, values, slots, flag, switches):
    missing, all_wide = switches
    random = np.random.default_rng(seed)
    trees = tuple(random_tree(random, features, depth, 1, 4, values, missing) for _ in range(3))
    ensemble = TreeEnsemble(trees, features)
    edges, numbers = edges_of(ensemble)
    skeleton = Skeleton(trees, numbers, edges)
    flat = skeleton.trees([(i, tree.values[:, 0].astype(int)) for i, tree in enumerate(trees)])
    wide = np.array([all_wide or feature % 2 == 0 for feature in edges.feature.tolist()])
    rules = Rules(edges, wide, slots, 0.1, lambda norm: norm**2 <= 1000)
    try:
        ways = [cover_trees(flat, edges, Budget(slots, flag), free_linear=False)]
    except NoParameterSetError:
        assume(False)
    try:
        half = None if flag is None else FlagWeights(-(-flag.step // 2), flag.most)
        ways.append(widened(cover_trees(flat, edges, Budget(slots // 2, half), free_linear=False), 2))
    except NoParameterSetError:
        pass
    x = random.integers(-1, 10, (60, features)) / 2
    x[random.random(x.shape) < 0.15 * missing] = np.nan
    bits = comparison_bits(ensemble, edges, x)
    found = with_digit_sums(ways, rules)
    assert found
    for covers in found:
        assert all(wide[edge] for edge in covers.digit_sums)
        assert largest_norm(covers, edges.feature, 0.1) ** 2 <= 1000
        np.testing.assert_array_equal(
            evaluated(covers, sums_of(covers, bits, random), slots), ensemble.tree_values(x)[:, :, 0]
        )


def test_a_stump_takes_one_look_up_and_a_full_index_keeps_its_comparisons():
    """Two splits of one path have no room beside each other in eight slots."""
    random = np.random.default_rng(0)
    stump = Tree.of_nodes([0, 0, 0], [1234.5, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [3]])
    chain = Tree.of_nodes([0, 1, 0, 0, 0], [777.5, 2500.5, 0, 0, 0], [1, 3, -1, -1, -1], [2, 4, -1, -1, -1],
                          [[0], [0], [0], [1], [0]])  # fmt: skip
    x = random.integers(0, 4000, (300, 2)).astype(float)
    counts = {}
    for name, tree in (("stump", stump), ("chain", chain)):
        ensemble = TreeEnsemble((tree,), 2)
        model = compile_ensemble(ensemble, samples=x, grid_bits=12, sets=["lut3"])
        np.testing.assert_array_equal(model.predict(x), ensemble.evaluate(x))
        counts[name] = model.report()["bootstraps_per_level"]
    assert counts == {"stump": [1], "chain": [1, 1]}


def test_noise_that_does_not_fit_is_not_brought():
    """Sums double the other weights of an index."""
    random = np.random.default_rng(3)
    trees = tuple(random_tree(random, 5, 3, 1, 4, 3) for _ in range(8))
    ensemble = TreeEnsemble(trees, 5)
    edges, numbers = edges_of(ensemble)
    flat = Skeleton(trees, numbers, edges).trees([(i, t.values[:, 0].astype(int)) for i, t in enumerate(trees)])
    wide = np.ones(len(edges), dtype=bool)
    covers = cover_trees(flat, edges, Budget(8, None), free_linear=False)
    quiet = largest_norm(covers, edges.feature)

    def found(most):
        rules = Rules(edges, wide, 8, 0.0, lambda norm: norm <= most)
        (made,) = with_digit_sums([covers], rules)
        return largest_norm(made, edges.feature), len(compared_alone(made, rules))

    loud, fewest = found(np.inf)
    norm, alone = found(quiet)
    assert norm <= quiet < loud and fewest < alone <= len(edges)


@pytest.mark.parametrize(
    ("bits", "missing"), in_tiers(itertools.product((9, 12, 16), (False, True)), quick=[(9, True), (16, False)])
)
def test_every_threshold_of_a_grid_is_exact(bits, missing):
    """Those at the ends of a digit too, alone and beside others, with missing values sent either way."""
    random = np.random.default_rng(bits)
    most = (1 << bits) - 10
    ends = [0, 1, (1 << (bits + 1) // 2) - 1, 1 << (bits + 1) // 2, most - 1]
    for threshold in (*ends, *random.integers(0, most, 3).tolist()):
        trees = [
            Tree.of_nodes([0, 0, 0], [threshold + 0.5, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [5]], [missing] * 3 if missing else None),
            Tree.of_nodes([1, 0, 0, 0, 0], [2.5, threshold + 0.5, 0, 0, 0], [1, 3, -1, -1, -1], [2, 4, -1, -1, -1],
                          [[0], [0], [1], [2], [7]], [False] * 5 if missing else None),
        ]  # fmt: skip
        ensemble = TreeEnsemble(tuple(trees), 2)
        x = np.stack([np.clip(threshold + np.arange(-3, 5), 0, most), random.integers(0, 6, 8)], axis=1).astype(float)
        calibration = np.concatenate([x, [[0, 0], [most, 5]], np.stack([np.arange(300.0), np.arange(300) % 6], axis=1)])
        if missing:
            x[::3, 0] = np.nan
        model = compile_ensemble(ensemble, samples=calibration, grid="integers", grid_bits=bits, sets=["lut3"])
        np.testing.assert_array_equal(model.predict(x), ensemble.evaluate(x))
        clear = simulate(model.program, model.client.phases(x), noisy=False)
        np.testing.assert_array_equal(
            model.client.output(clear, "scores")[:, None], model.predict(x, output="scores")[:, None]
        )


def test_encrypted_equals_clear():
    """A forest of which some comparisons are in indices, and some are not."""
    random = np.random.default_rng(4)
    ensemble = TreeEnsemble(tuple(random_tree(random, 3, 3, 1, 300, 4, missing=True) for _ in range(4)), 3)
    x = random.integers(0, 301, (100, 3)).astype(float)
    x[:2] = [[0] * 3, [300] * 3]
    x[random.random(x.shape) < 0.1] = np.nan
    model = compile_ensemble(ensemble, samples=x, grid_bits=10, sets=[TOY], leaf_bits=4)
    report = model.report()
    compared = next(node.bootstraps for node in model.program.graph.lookups if node.origin == "comparisons")
    assert 0 < compared < report["comparison_bits"]
    key = ClientKey.generate(TOY)
    encrypted = model.predict(x[:8], "encrypted", key=key, session=Session(key.evaluation_keys()), output="scores")
    np.testing.assert_array_equal(encrypted, model.predict(x[:8], output="scores"))
    np.testing.assert_allclose(encrypted, ensemble.scores(x[:8]), atol=report["leaf_rounding_error"] + 1e-9)


def test_labels_alone_read_sums_too():
    """Of several classes: pairs of scores are compared after them."""
    random = np.random.default_rng(6)
    stumps = tuple(
        Tree.of_nodes([i % 3, 0, 0], [random.integers(300) + 0.5, 0, 0], [1, -1, -1], [2, -1, -1],
                      [[0] * 3, *random.integers(4, size=(2, 3)).tolist()])
        for i in range(6)
    )  # fmt: skip
    ensemble = TreeEnsemble(stumps, 3, labels=np.array(["a", "b", "c"]), transform="softmax")
    x = random.integers(0, 301, (200, 3)).astype(float)
    x[:2] = [[0] * 3, [300] * 3]
    model = compile_ensemble(ensemble, samples=x, grid_bits=10, tell="labels")
    np.testing.assert_array_equal(model.predict(x), ensemble.evaluate(x))
    clear = simulate(model.program, model.client.phases(x), noisy=False)
    np.testing.assert_array_equal(model.client.output(clear), model.predict(x))
    assert "comparisons" not in {node.origin for node in model.program.graph.lookups}
