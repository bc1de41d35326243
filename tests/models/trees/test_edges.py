"""Thresholds of trees that compare float32 numbers: rounded, they compare every float32 number as before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloakwork.models.trees.ensemble import between_singles

LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("strict", [False, True])
@given(threshold=st.floats(-LARGEST, LARGEST))
@example(threshold=0.1)
@example(threshold=-0.1)
@example(threshold=16777217.0)  # between two singles
@example(threshold=1e-46)  # below the smallest single
@example(threshold=LARGEST)
def test_comparisons_stay_what_they_are(strict: bool, threshold: float) -> None:
    (rounded,) = between_singles(np.array([threshold]), strict)
    assert np.float32(rounded) == rounded
    nearest = np.float32(threshold)
    with np.errstate(over="ignore"):
        x = np.array([nearest, *(np.nextafter(nearest, np.float32(to)) for to in (-np.inf, np.inf))])
    exact = x.astype(np.float64)
    expected = exact < threshold if strict else exact <= threshold
    np.testing.assert_array_equal(exact < rounded if strict else exact <= rounded, expected)
