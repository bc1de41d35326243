"""Covers of trees by look-ups: the sum of table entries and weighted bits is the tree, for every number of slots, with flags and without."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.trees.cover import cover_trees
from cloakwork.models.trees.cover_costs import Budget
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble, edges_of
from cloakwork.models.trees.flat_trees import Skeleton
from cloakwork.models.trees.index_weights import FlagWeights
from tests.models.trees.tree_models import random_tree

SAMPLES = 60


def covered(ensemble, slots, flag, free_linear=True):
    edges, numbers = edges_of(ensemble)
    skeleton = Skeleton(ensemble.trees, numbers, edges)
    trees = skeleton.trees([(i, tree.values[:, 0].astype(int)) for i, tree in enumerate(ensemble.trees)])
    return edges, cover_trees(trees, edges, Budget(slots, flag), free_linear)


def comparison_bits(ensemble, edges, x):
    columns = x[:, edges.feature]
    holds = columns < edges.threshold if ensemble.strict else columns <= edges.threshold
    return np.where(np.isnan(columns), edges.missing == 1, holds).astype(float)


def looked_up(lookup, bits, slots):
    entries = np.array(lookup.entries)
    np.testing.assert_array_equal(entries[slots:], -entries[:slots])  # the torus is negacyclic
    index = lookup.constant + sum(weight * bits[:, bit] for bit, weight in lookup.weights)
    return entries[index.astype(int) % (2 * slots)]


def evaluated(covers, bits, slots):
    """[samples, trees]"""
    for flag in covers.flags:
        value = looked_up(flag.lookup, bits, slots) + flag.offset
        assert set(value.tolist()) <= {0.0, 1.0}
        bits = np.concatenate([bits, value[:, None]], axis=1)
    columns = []
    for cover in covers.trees:
        total = np.full(len(bits), cover.constant)
        for edge, weight in cover.linear.items():
            total += weight * bits[:, edge]
        columns.append(sum((looked_up(lookup, bits, slots) for lookup in cover.lookups), total))
    return np.stack(columns, axis=1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 6),
    st.integers(1, 8),
    st.sampled_from([2, 3, 5, 200]),
    st.sampled_from([2, 3, 5, 8, 16, 32]),
    st.sampled_from([None, FlagWeights(1, 4), FlagWeights(2, 8), FlagWeights(4, 2)]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_covers_are_the_trees(seed, features, depth, values, slots, flag, switches):
    missing, strict, free_linear = switches
    random = np.random.default_rng(seed)
    trees = tuple(random_tree(random, features, depth, 1, 4, values, missing) for _ in range(3))
    ensemble = TreeEnsemble(trees, features, strict=strict)
    x = random.integers(-1, 10, (SAMPLES, features)) / 2
    x[random.random(x.shape) < 0.15 * missing] = np.nan
    try:
        edges, covers = covered(ensemble, slots, flag, free_linear)
    except NoParameterSetError:
        assume(False)
    found = evaluated(covers, comparison_bits(ensemble, edges, x), slots)
    np.testing.assert_array_equal(found, ensemble.tree_values(x)[:, :, 0])


def chain(length, features, value=lambda i: 3 * i + 1):
    """Goes right at every node: the last leaf has as many comparisons before it as the tree has nodes."""
    feature, threshold, children, values = [], [], [], []
    for i in range(length):
        feature += [i % features, 0]
        threshold += [i // features, 0]
        children += [(2 * i + 1, 2 * i + 2), (-1, -1)]
        values += [[0], [value(i)]]
    sides = np.array([*children, (-1, -1)])
    # The inner node i is row 2 i; its left child is the leaf 2 i + 1, its right child the row 2 i + 2.
    return Tree.of_nodes([*feature, 0], [*threshold, 0], sides[:, 0], sides[:, 1], [*values, [50]])


def test_a_path_of_more_features_than_slots_needs_flags():
    ensemble = TreeEnsemble((chain(6, 6),), 6)
    with pytest.raises(NoParameterSetError, match="tests more features than look-ups of 2 entries"):
        covered(ensemble, 2, None)
    assert len(covered(ensemble, 8, None)[1].trees[0].lookups) <= 6
    edges, covers = covered(ensemble, 2, FlagWeights(1, 2))
    x = np.random.default_rng(0).integers(-1, 2, (SAMPLES, 6)).astype(float)
    found = evaluated(covers, comparison_bits(ensemble, edges, x), 2)
    np.testing.assert_array_equal(found, ensemble.tree_values(x)[:, :, 0])


@pytest.mark.parametrize(("length", "features"), [(30, 30), (400, 1), (60, 2), (90, 40)])
def test_long_chains(length, features):
    """Depth 400 is beyond what a function that calls itself could do at ease; one feature needs no look-up."""
    ensemble = TreeEnsemble((chain(length, features, lambda i: i % 2),), features)
    edges, covers = covered(ensemble, 8, FlagWeights(2, 2))
    x = np.random.default_rng(0).integers(-1, length // features + 1, (SAMPLES, features)).astype(float)
    x[::2] = np.sort(x[::2], axis=1) + 1  # some get far
    found = evaluated(covers, comparison_bits(ensemble, edges, x), 8)
    np.testing.assert_array_equal(found, ensemble.tree_values(x)[:, :, 0])
    assert len(covers.flags) + len(covers.trees[0].lookups) <= (0 if features == 1 else length)


def test_equal_flags_of_several_trees_are_one():
    tree = chain(40, 40, lambda i: i % 2)
    alone = covered(TreeEnsemble((tree,), 40), 8, FlagWeights(2, 2))[1]
    assert alone.flags
    assert len(covered(TreeEnsemble((tree,) * 3, 40), 8, FlagWeights(2, 2))[1].flags) == len(alone.flags)


# (feature, threshold, left, right), or the value of a leaf: a part of an extra tree of three targets.
MANY_VALUES = (
    0, 0, 10, (1, 3, (2, 0, (3, 2, 3, (1, 0, (3, 3, 4, 8), 7)), (3, 0, (1, 1, (0, 1, 7, 9), (1, 2, 11, (5, 0, 9, 7))),
    (3, 1, (4, 0, 1, (2, 1, 0, 2)), 7))), 9),
)  # fmt: skip


def nested(node):
    rows = []

    def visit(node):
        number = len(rows)
        rows.append((0, 0.0, -1, -1, [0.0 if isinstance(node, tuple) else node]))
        if isinstance(node, tuple):
            rows[number] = (*node[:2], visit(node[2]), visit(node[3]), [0.0])
        return number

    visit(node)
    return Tree.of_nodes(*map(list, zip(*rows, strict=True)))


def test_a_base_that_a_subtree_of_many_values_does_not_count() -> None:
    ensemble = TreeEnsemble((nested(MANY_VALUES),), 6)
    x = np.random.default_rng(3).integers(0, 5, (400, 6)) - 0.5
    edges, covers = covered(ensemble, 16, FlagWeights(2, 4))
    found = evaluated(covers, comparison_bits(ensemble, edges, x), 16)
    np.testing.assert_array_equal(found, ensemble.tree_values(x)[:, :, 0])
