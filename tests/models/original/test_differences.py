from __future__ import annotations

import numpy as np
import pytest

from cloakwork.models.original.agreement import agreement_of
from cloakwork.models.original.differences import difference
from cloakwork.models.original.edges import edges_of


def test_rounding_of_float32_is_no_difference():
    x = np.random.default_rng(1).normal(size=(50, 3)) * [1, 100, 1e4]
    assert difference(x, x.astype(np.float32).astype(np.float64)) is None


def test_small_changes_of_large_values_and_of_one_number_among_larger_ones() -> None:
    """A temperature in kelvin, a probability beside an income."""
    kelvin = np.random.default_rng(5).normal(300, 2, (100, 1))
    assert difference(kelvin, kelvin + 0.1) is not None
    both = np.random.default_rng(6).normal(0, (1000, 0.1), (100, 2))
    assert difference(both, both + np.array([0, 0.1])) is not None
    assert difference(both, both.astype(np.float32).astype(np.float64)) is None


def test_what_cancels_may_differ_by_what_a_rounding_changes_in_most_samples() -> None:
    rng = np.random.default_rng(7)
    left, ours, again = 3e-6 * rng.normal(size=(3, 40, 1))  # of terms that cancel
    assert difference(left, ours) is not None
    assert difference(left, ours, again=again) is None
    steps = np.round(rng.normal(size=(40, 1)))
    over = steps.copy()
    over[:5] += 1  # few samples lie on a step
    assert difference(steps, steps + 0.1, again=over) is not None


def test_the_first_sample_that_differs_is_told():
    x = np.arange(20.0)[:, None]
    found = x.copy()
    found[[4, 9]] += 1
    wrong = difference(x, found)
    assert wrong is not None
    assert (wrong.sample, wrong.count) == (4, 2)
    assert wrong.text == "gives 5 where the model says 4 (sample 4; 2 of 20 samples differ)"
    assert difference(x, found, share=0.1) is None


@pytest.mark.parametrize("found", [np.array(["a", "b", "a"]), np.array(["a", "a"]), np.array([["a"], ["a"], ["b"]])])
def test_labels_and_shapes(found: np.ndarray):
    assert difference(np.array(["a", "a", "b"]), found) is not None


def test_what_the_model_cannot_say_counts_for_nothing_but_what_we_cannot_say_does():
    wanted, nothing = np.array([[1.0], [np.inf], [3.0]]), np.array([[1.0], [np.nan], [3.0]])
    assert difference(wanted, nothing) is None
    assert difference(np.ones((3, 1)), nothing) is not None


def test_edges_reach_the_ends_and_beyond_and_integers_do_not():
    x = np.random.default_rng(2).uniform(-1, 3, (100, 4))
    edges = edges_of(x)
    assert (edges == 0).all(axis=1).any()
    assert (edges.min(axis=0) < x.min(axis=0)).all()
    assert (edges.max(axis=0) > x.max(axis=0)).all()
    whole = np.random.default_rng(3).integers(2, 9, (100, 4))
    assert set(np.unique(edges_of(whole))) <= set(np.unique(whole))


def test_agreement_of_labels_has_a_lower_end():
    wanted = np.array([0] * 300)
    told = agreement_of(wanted, np.array([0] * 297 + [1] * 3))
    assert (told.told, told.value, told.samples) == ("labels", 0.99, 300)
    assert told.at_least == pytest.approx(0.9752, abs=1e-4)


def test_agreement_of_values_is_that_of_the_worst_output():
    wanted = np.random.default_rng(4).normal(size=(500, 2)) * [1, 100]
    told = agreement_of(wanted, wanted + 0.1)
    assert told.value == pytest.approx(1 - 0.1 / wanted[:, 0].std())
