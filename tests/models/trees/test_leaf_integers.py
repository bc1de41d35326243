"""Leaf values as integers: a unit for all outputs where they are compared or mixed, one for each output of a regression."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cloakwork.models.client_steps import Members, Transform
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.models.trees.leaf_integers import leaf_integers

TOY = "toy_two_limb"
SAMPLES = np.array([[-1.0], [0.5], [2.0]])


def ensemble(*leaves: list[float], **facts: object) -> TreeEnsemble:
    """One tree of three leaves: x <= 0, x <= 1, else."""
    values = [[0.0] * len(leaves[0]), leaves[0], [0.0] * len(leaves[0]), *leaves[1:]]
    columns = ([0, 0, 0, 0, 0], [0.0, 0.0, 1.0, 0.0, 0.0], [1, -1, 3, -1, -1], [2, -1, 4, -1, -1])
    return TreeEnsemble((Tree.of_nodes(*columns, values),), 1, **facts)


APART = ensemble([0.0, 0.003], [1.0, 0.001], [0.3, 0.0])


def test_a_unit_for_each_output() -> None:
    integers = leaf_integers(APART, 4, 1, units_apart=True)
    assert [scalar.contribution.tolist() for scalar in integers.scalar_trees] == [[[0.1, 0.0]], [[0.0, 0.001]]]
    leaves = [scalar.values[APART.trees[0].leaves].tolist() for scalar in integers.scalar_trees]
    assert leaves == [[0, 10, 3], [3, 1, 0]]  # exact
    (scalar,) = leaf_integers(APART, 4, 1).scalar_trees  # the second output is less than a step
    assert scalar.contribution.tolist() == [[1 / 15, 0.0]]


def test_a_constant_sum_leaves_out_the_output_of_the_widest_unit() -> None:
    constant = ensemble([0.0, 2.0, 0.0], [0.01, 1.0, 0.99], [0.005, 1.5, 0.495])
    integers = leaf_integers(constant, 8, 1, units_apart=True)
    assert [np.flatnonzero(own.contribution[0]).tolist() for own in integers.scalar_trees] == [[0, 1], [1, 2]]
    scores = integers.offset + sum(own.values[:, None] * own.contribution for own in integers.scalar_trees)
    leaves = constant.trees[0].leaves
    assert np.abs(scores - constant.trees[0].values)[leaves].max() <= 0.01


@pytest.mark.parametrize(
    ("facts", "apart"),
    [
        ({}, True),
        ({"transform": "exp"}, True),
        ({"after": (Transform("none"),)}, True),
        ({"after": (Members(np.array([1, 1]), ("none", "exp"), np.ones(2), False), Transform("none"))}, True),
        ({"labels": [0, 1]}, False),
        ({"transform": "softmax"}, False),
        ({"after": (Members(np.array([2]), ("softmax",), np.ones(1), False),)}, False),
        ({"after": (Members(np.array([1, 1]), ("none", "none"), np.ones(2), True),)}, False),
    ],
)
def test_which_answers_follow_each_score(facts: dict[str, object], apart: bool) -> None:
    assert replace(APART, **facts).values_follow_each_score is apart


def test_outputs_of_different_scales_encrypted(sessions) -> None:
    key, session = sessions(TOY, "cpu")
    model = compile_ensemble(APART, sets=[TOY], thresholds="client")
    np.testing.assert_allclose(model.predict(SAMPLES), APART.scores(SAMPLES), atol=1e-9)
    encrypted = model.predict(SAMPLES, "encrypted", key=key, session=session)
    np.testing.assert_array_equal(encrypted, model.predict(SAMPLES))
