"""The few values of sums of integers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cloakwork.models.exact.element_steps import MOST_VALUES, integers_between, reachable_sums


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_all_combinations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = [(int(rng.integers(-9, 10)), np.unique(rng.integers(-5, 6, 3))) for _ in range(5)]
    found = reachable_sums(terms)
    assert found is not None
    assert found.tolist() == sorted({
        sum(weight * int(value) for (weight, _), value in zip(terms, values, strict=True))
        for values in product(*(each for _, each in terms))
    })  # fmt: skip


@pytest.mark.parametrize("count", [MOST_VALUES - 1, MOST_VALUES])
def test_bits_of_one_weight_have_one_value_more_than_there_are_bits(count: int) -> None:
    found = reachable_sums([(3, np.array([0, 1]))] * count)
    assert found is None if count + 1 > MOST_VALUES else found is not None and len(found) == count + 1


def test_what_has_weight_0_adds_nothing() -> None:
    many = np.arange(MOST_VALUES)
    found = reachable_sums([(0, many), (0, many), (2, np.array([0, 5]))])
    assert found is not None and found.tolist() == [0, 10]


@pytest.mark.parametrize(
    ("low", "high"), [(-3.0, 2.0), (5.0, 5.0), (0.0, MOST_VALUES - 1.0), (0.0, float(MOST_VALUES))]
)
def test_a_range_has_both_of_its_ends(low: float, high: float) -> None:
    found = integers_between(low, high)
    assert (
        found is None
        if high - low >= MOST_VALUES
        else found is not None and found.tolist() == list(range(int(low), int(high) + 1))
    )
