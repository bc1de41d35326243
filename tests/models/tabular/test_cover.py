"""Covers of trees by look-ups: the sum of table entries and weighted bits is the tree, for every number of slots."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.tabular.binned_tree import binned_tree
from cloakwork.models.tabular.cover import cover_tree
from cloakwork.models.tabular.edges import edges_of
from cloakwork.models.tabular.ensemble import Tree, TreeEnsemble
from tests.models.tabular.tree_models import random_tree

SAMPLES = 60


def comparison_bits(ensemble, edges, x):
    columns = x[:, edges.feature]
    holds = columns < edges.threshold if ensemble.strict else columns <= edges.threshold
    return np.where(np.isnan(columns), edges.missing == 1, holds).astype(int)


def evaluated(cover, bits, slots):
    total = np.full(len(bits), cover.constant)
    for edge, weight in cover.linear.items():
        total += weight * bits[:, edge]
    for lookup in cover.lookups:
        entries = np.array(lookup.entries)
        np.testing.assert_array_equal(entries[slots:], -entries[:slots])  # the torus is negacyclic
        index = lookup.constant + sum(weight * bits[:, edge] for edge, weight in lookup.weights)
        total += entries[index % (2 * slots)]
    return total


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 6),
    st.integers(1, 7),
    st.sampled_from([2, 3, 5, 200]),
    st.integers(3, 32),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_a_cover_is_the_tree(seed, features, depth, values, slots, switches):
    missing, strict, free_linear = switches
    random = np.random.default_rng(seed)
    tree = random_tree(random, features, depth, 1, 4, values, missing)
    ensemble = TreeEnsemble((tree,), features, strict=strict)
    edges, numbers = edges_of(ensemble)
    x = random.integers(-1, 10, (SAMPLES, features)) / 2
    x[random.random(x.shape) < 0.15 * missing] = np.nan
    root = binned_tree(tree, numbers[0], tree.values[:, 0].astype(int), edges)
    try:
        cover = cover_tree(root, edges, slots, free_linear)
    except NoParameterSetError:
        assume(False)
    np.testing.assert_array_equal(
        evaluated(cover, comparison_bits(ensemble, edges, x), slots), ensemble.scores(x)[:, 0]
    )


def test_a_path_of_more_features_than_slots_is_refused():
    """A chain that goes right at every node: the last leaf has as many conditions as the tree has nodes."""
    length = 6
    feature, children, values = [], [], []
    for i in range(length):
        feature += [i, 0]
        children += [(2 * i + 1, 2 * i + 2), (-1, -1)]
        values += [[0], [3 * i + 1]]
    feature.append(0)
    children.append((-1, -1))
    values.append([50])
    sides = np.array(children)
    tree = Tree.of_nodes(feature, np.zeros(len(feature)), sides[:, 0], sides[:, 1], values)
    edges, numbers = edges_of(TreeEnsemble((tree,), length))
    root = binned_tree(tree, numbers[0], tree.values[:, 0].astype(int), edges)
    with pytest.raises(NoParameterSetError, match="tests more features than look-ups of 2 entries"):
        cover_tree(root, edges, 2)
    assert len(cover_tree(root, edges, 8).lookups) <= length
