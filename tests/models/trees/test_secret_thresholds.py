"""Nothing that a client or a user of a service is told depends on where thresholds are, for all kinds of trees and all ways that keep them."""

import itertools

import numpy as np
import pytest
from cases import in_tiers

from cloakwork.models.repository import facts_of
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.test_grid_comparisons import moved, without_digests
from tests.models.trees.tree_models import random_tree

FEATURES, MOST = 4, 3000


def trees(random, count, depth, outputs, values, missing=False):
    made = tuple(random_tree(random, FEATURES, depth, outputs, 8, values, missing) for _ in range(count))
    return tuple(tree for tree in made if len(tree.inner)) or trees(random, count, depth, outputs, values, missing)


def iris_tree(random):
    return TreeEnsemble(trees(random, 1, 4, 3, 2), FEATURES, "mean", single=True, labels=np.arange(3))


def forest(random):
    return TreeEnsemble(trees(random, 8, 4, 2, 5), FEATURES, "mean", single=True, labels=np.arange(2))


def boosting(random):
    """As XGBoost has it: strict comparisons of float32, missing values, a base score."""
    made = trees(random, 8, 4, 1, None, missing=True)
    options = {"base": np.array([0.3]), "strict": True, "single": True, "labels": np.arange(2), "transform": "sigmoid"}
    return TreeEnsemble(made, FEATURES, **options)


def told(model):
    """What the service publishes and what the client is sent, digests aside, which are salted: another test."""
    facts = facts_of(model.program)
    facts["client"] = without_digests(facts["client"])
    facts["report"].pop("program_digest")
    facts.pop("program_digest")
    return facts


WAYS = (("grid", 6), ("grid", 8), ("grid", 12), ("grid", 16), ("server", 6), ("server", 12))
QUICK = ((iris_tree, "grid", 8, "labels"), (boosting, "grid", 12, "scores"), (boosting, "server", 12, "scores"))


EVERY = [
    (kind, *way, tell)
    for kind, way, tell in itertools.product((iris_tree, forest, boosting), WAYS, ("scores", "labels"))
]


@pytest.mark.parametrize(("kind", "comparisons", "bits", "tell"), in_tiers(EVERY, QUICK))
def test_nothing_that_is_told_depends_on_the_thresholds(kind, comparisons, bits, tell):
    """The same trees, all thresholds moved in the same order: specification, sizes, counts, failure probabilities, forecasts of time.

    The grid is one of whole numbers, of which 6 and 8 bits have too few points: there it is uniform, and thresholds are on its points.
    """
    random = np.random.default_rng(11)
    ensemble = kind(random)
    x = random.integers(0, MOST, (150, FEATURES)).astype(float)
    x[:2] = [[0] * FEATURES, [MOST - 1] * FEATURES]
    options = {"thresholds": comparisons, "samples": x, "grid_bits": bits, "accuracy": 0.0, "tell": tell}
    points = _points(ensemble, options)
    digit = 1 << bits // 2
    ends = points[
        [0, 1, digit - 1, digit, -digit - 1, -digit, -2, -1]
    ]  # of digits, where bits need fewer of a threshold
    choices = [points[5 : len(points) // 2], points[len(points) // 3 :], ends]
    models = [compile_ensemble(moved(ensemble, random, MOST, own), **options) for own in choices]
    if tell == "scores":
        answers = {model.predict(x, output="scores").tobytes() for model in models}
        assert len(answers) == len(models), "they are other models"
    facts = [told(model) for model in models]
    assert facts[0] == facts[1] == facts[2]


def _points(ensemble, options):
    """Of the grid of the features, which is the same for all of them."""
    step = compile_ensemble(ensemble, **{**options, "tell": "scores"}).client.input_steps[-1]
    grids = [step.grid(feature) for feature in range(FEATURES)]
    assert all(np.array_equal(grid, grids[0]) for grid in grids)
    return grids[0]
