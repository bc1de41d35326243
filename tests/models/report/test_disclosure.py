"""What the report counts of a client specification, step by step."""

from dataclasses import replace

import numpy as np
import pytest

import cloakwork as cw
from cloakwork.models.client_steps import Bins, Columns
from cloakwork.models.report.disclosure import disclosures
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble

STUMP = Tree.of_nodes([0, 0, 0], [2.5, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
X = np.arange(6.0)[:, None]
BINS = Bins(np.array([0, 0]), np.array([0, 3, 6]), np.array([1.0, 2, 3] * 2), np.array([0, 1]), 2)


def counted(specification):
    return {each.what: each.count for each in disclosures(specification)}


def of_stump(tree=STUMP, **options):
    return compile_ensemble(TreeEnsemble((tree,), 1), samples=X, sets=["lut3"], **options).client


def test_bins_are_thresholds_where_they_are_what_trees_compare():
    """In programs of older releases they were sent; in front of anything else they are a discretizer's, digits of one feature counted once."""
    client = of_stump()
    columns = Columns(1, None)
    compared = counted(replace(client, input_steps=(columns, BINS)))
    assert compared["thresholds of the model"] == 3 and "edges of bins" not in compared
    before = counted(replace(client, input_steps=(columns, BINS, *client.input_steps[1:])))
    assert before["edges of bins"] == 3 and "thresholds of the model" not in before


def test_a_discretizer_before_a_linear_model_and_before_trees():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.tree import DecisionTreeClassifier

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    y = (x.sum(axis=1) > 0).astype(int)
    for last in (LogisticRegression(), DecisionTreeClassifier(max_depth=3)):
        binned = preprocessing.KBinsDiscretizer(5, encode="ordinal", quantile_method="averaged_inverted_cdf")
        told = counted(cw.compile(make_pipeline(binned, last).fit(x, y), x).client)
        assert told["edges of bins"] == 2 * 4 and "thresholds of the model" not in told


def test_numbers_of_sums_are_counted():
    """A tree of three classes is one number of two digits; a sum that begins elsewhere than at 0 tells where."""
    three = Tree.of_nodes([0, 0, 0, 0, 0], [1.5, 3.5, 0, 0, 0], [2, 3, -1, -1, -1], [1, 4, -1, -1, -1],
                          [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])  # fmt: skip
    told = counted(of_stump(three))
    assert told["numbers of values of outputs"] == 2 and "least values of sums" not in told
    client = of_stump()
    wrap, *others = client.output_steps
    assert "least values of sums" not in counted(client)
    assert (
        counted(replace(client, output_steps=(replace(wrap, lowest=wrap.lowest - 3), *others)))["least values of sums"]
        == 1
    )
