"""Ranges that clients are told: rounded outwards, so that they are no sample's, or the caller's own."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloakwork.models.criteria.feature_ranges import are_round, public_ends, ranges_by_number
from cloakwork.models.errors import CompileError

NAMES = ("age", "height", "weight")


def ends(low: float, high: float) -> tuple[float, float]:
    (lowest,), (highest,) = public_ends(np.array([low]), np.array([high]))
    return float(lowest), float(highest)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
@example(182158985.0, 0.001)
def test_ends_lie_around_the_samples_and_are_round(low: float, width: float) -> None:
    found = ends(low, low + width)
    slack = 1e-9 * width + 2 * math.ulp(abs(low) + width)
    assert found[0] <= low + slack and found[1] >= low + width - slack
    assert found[1] - found[0] <= 1.1001 * width + 4 * math.ulp(abs(low) + width)
    assert are_round(*found)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.31, 6.97, (0.2, 7.0)),
        (-2.68, 3.14159, (-2.8, 3.2)),
        (0.0, 255.0, (0.0, 255.0)),  # the range of a type, not of samples
        (-128.0, 127.0, (-128.0, 127.0)),
        (0.0, 1.0, (0.0, 1.0)),
        (3.0, 254.0, (0.0, 260.0)),
        (0.1 + 0.2, 0.7, (0.3, 0.7)),
        (0.0, 0.0, (-1.0, 1.0)),
        (2024.0, 2024.0, (2000.0, 2100.0)),
        (-3.0, -3.0, (-3.1, -2.9)),
        (-1.7e308, 1.7e308, (-1.7e308, 1.7e308)),  # no number is as large as their difference
    ],
)
def test_round_ends(low: float, high: float, expected: tuple[float, float]) -> None:
    assert ends(low, high) == expected


def test_samples_of_one_population_have_one_range() -> None:
    """Extremes of 2,000 samples that are uniform between -3.17 and 8.44: all but one in 10^6 times within a step of the ends."""
    found = set()
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(-3.17, 8.44, 2000)
        found.add(ends(x.min(), x.max()))
    assert found == {(-3.5, 8.5)}


def test_most_ranges_are_not_round() -> None:
    pairs = np.sort(np.random.default_rng(0).normal(size=(2000, 2)), axis=1)
    assert not any(are_round(low, high) for low, high in pairs.tolist())
    assert not are_round(0.0, math.nan) and not are_round(1.0, 1.0)


def test_names_and_numbers() -> None:
    given_ranges = {"weight": (40, np.float32(120)), 0: [0, 120], np.int64(1): np.array([1.2, 2.2])}
    assert ranges_by_number(given_ranges, NAMES) == {2: (40.0, 120.0), 0: (0.0, 120.0), 1: (1.2, 2.2)}  # type: ignore[arg-type]
    assert ranges_by_number(None, NAMES) == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hight": (0, 1)}, "ranges: there is no feature 'hight'; expected height, "),
        ({3: (0, 1)}, "ranges: expected names of features, or numbers from 0 to 2, got 3"),
        ({-1: (0, 1)}, "numbers from 0 to 2, got -1"),
        ({1.5: (0, 1)}, "numbers from 0 to 2, got 1.5"),
        ({True: (0, 1)}, "numbers from 0 to 2, got True"),
        ({None: (0, 1)}, "numbers from 0 to 2, got None"),
        ({"age": (0, 1), 0: (0, 1)}, "'age' is given twice, by name and by number"),
        ({"age": (1, 0)}, "expected two ascending finite numbers for 'age', got 1 and 0"),
        ({"age": (1, 1)}, "for 'age', got 1 and 1"),
        ({"age": (math.nan, 1)}, "for 'age', got nan and 1"),
        ({"age": (0, math.inf)}, "for 'age', got 0 and inf"),
        ({"age": (-1.7e308, 1.7e308)}, "for 'age', got -1.7e"),
        ({"age": (Fraction(10) ** 400, 1)}, "expected two ascending finite numbers for 'age'"),
        ({"age": "01"}, "for 'age', got nan and nan"),
        ({"age": (0, "1")}, "expected two ascending finite numbers for 'age', got 0 and nan"),
        ({"age": (0, 1, 2)}, "expected two ascending finite numbers for 'age'"),
        ({"age": None}, "for 'age', got NoneType, not a pair of numbers"),
        ({"age": (0, 1j)}, "expected two ascending finite numbers for 'age'"),
        ([(0, 1)], "expected a dict by name or number of a feature, got list"),
        ("age", "expected a dict by name or number of a feature, got str"),
    ],
)
def test_what_is_no_range_is_named(wrong: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        ranges_by_number(wrong, NAMES)
    assert "\n" not in str(caught.value)
