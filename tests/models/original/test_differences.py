from __future__ import annotations

import numpy as np
import pytest

from cloakwork.models.original.agreement import difference, edges_of, facts_of, first_sure, verdict_of


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
    told = facts_of(wanted, np.array([0] * 297 + [1] * 3))
    assert (told.told, told.value, told.samples) == ("labels", 0.99, 300)
    assert told.at_least == pytest.approx(0.9752, abs=1e-4)


def test_agreement_of_values_is_that_of_the_worst_output():
    wanted = np.random.default_rng(4).normal(size=(500, 2)) * [1, 100]
    told = facts_of(wanted, wanted + 0.1)
    assert told.value == pytest.approx(1 - 0.1 / wanted[:, 0].std())


def test_values_off_by_the_same_amount_are_off_by_their_largest_share_for_certain():
    expected = np.random.default_rng(4).normal(size=(500, 2))
    facts = facts_of(expected, expected + np.where(np.arange(500) % 50 == 0, 1.0, 0.0)[:, None])
    assert facts.at_least < facts.value < 0.9


def test_errors_of_values_whose_squares_overflow():
    expected = np.array([1e200, -1e200, 3e200])
    assert verdict_of(expected, expected + 1e199).value == pytest.approx(
        verdict_of(expected / 1e200, expected / 1e200 + 0.1).value
    )


def test_constant_values_count_by_their_size():
    expected = np.array([[5.0, value] for value in range(100)])
    assert verdict_of(expected, expected + np.array([0.5, 0])).value == pytest.approx(0.9)
    assert verdict_of(expected * [0, 1], expected * [0, 1]).value == 1.0


@pytest.mark.parametrize(
    ("expected", "answers"),
    [
        (np.array(["a", "b", "b"], dtype=object), np.array(["a", "b", "a"])),
        (np.array([0, 1, 1], dtype=object), np.array([0, 1, 0])),
        (np.array([[0, 1], [1, 1], [0, 0]]), np.array([[0, 1], [1, 1], [1, 0]])),
        (np.array([True, False, False]), np.array([True, False, True])),
    ],
    ids=["texts", "objects", "several labels", "booleans"],
)
def test_labels_of_every_kind_are_compared(expected: np.ndarray, answers: np.ndarray) -> None:
    assert verdict_of(expected, answers).value == facts_of(expected, answers).value == pytest.approx(2 / 3)


def test_a_rare_class_that_is_lost_counts_by_itself():
    expected = np.array([1] * 20 + [0] * 1980)
    verdict = verdict_of(expected, np.array([1] * 12 + [0] * 1988))
    assert verdict.value > 0.99 and verdict.where == "class 1" and not verdict.reaches(0.97)


def test_more_samples_are_asked_until_they_show_the_accuracy():
    asked = []

    def on_some(count: int):
        asked.append(count)
        labels = np.zeros(count, dtype=int)
        return labels, np.where(np.arange(count) % 60 == 0, 1, labels)

    assert not first_sure(map(on_some, (300, 2000)), 0.97)[0].value < 0.97 and asked == [300, 2000]
    assert (
        first_sure(map(on_some, (300, 2000)), 0.99)[0].samples == 300
        and first_sure(map(on_some, (300, 2000)), 0.9)[0].samples == 300
    )
