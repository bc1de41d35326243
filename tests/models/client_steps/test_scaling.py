"""Means and scales that are taken out of the client's steps do the same as the last one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.models.client_steps import (
    Columns,
    InputStep,
    Normalise,
    OneHot,
    Present,
    Project,
    Select,
    Standardise,
    run_input_steps,
)
from cloakwork.models.client_steps.scaling import split_scaling


def scaling(rng: np.random.Generator, columns: int) -> Standardise:
    return Standardise(rng.normal(size=columns) * 10, rng.uniform(0.1, 10, columns) * rng.choice([-1, 1], columns))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(["scale", "select", "present", "codes"]), max_size=6))
def test_the_same_numbers_as_before(seed: int, kinds: list[str]) -> None:
    rng = np.random.default_rng(seed)
    steps: list[InputStep] = [Columns(4)]
    width, codes = 4, np.zeros(4, dtype=bool)
    for kind in kinds:
        if kind == "scale":
            made = scaling(rng, width)
            steps.append(Standardise(np.where(codes, 0, made.offset), np.where(codes, 1, made.scale)))
        elif kind == "select":
            columns = rng.integers(0, width, 5)
            steps.append(Select(columns))
            width, codes = 5, codes[columns]
        elif kind == "present":
            steps.append(Present())
        else:
            sizes = np.where(codes, 3, 0)
            steps.append(OneHot(sizes))
            width, codes = int(np.maximum(sizes, 1).sum()), np.zeros(int(np.maximum(sizes, 1).sum()), dtype=bool)
    x = rng.normal(size=(20, 4))
    rest, last = split_scaling(steps)
    found = run_input_steps(rest if last is None else (*rest, last), x)
    np.testing.assert_allclose(found, run_input_steps(steps, x), rtol=1e-9, atol=1e-9)
    assert (last is not None) == ("scale" in kinds) and not any(isinstance(step, Standardise) for step in rest)


@pytest.mark.parametrize(
    "after",
    [Normalise("l2"), Project(np.zeros(3), np.eye(3)), OneHot(np.array([0, 2, 0]))],
    ids=["normalised", "projected", "codes of scaled numbers"],
)
def test_what_does_not_commute_stays(after: InputStep) -> None:
    steps = (Columns(3), Standardise(np.ones(3), np.full(3, 2.0)), after)
    assert split_scaling(steps) == (steps, None)


def test_a_scale_of_zero_stays() -> None:
    steps = (Columns(2), Standardise(np.zeros(2), np.array([1.0, 0.0])))
    assert split_scaling(steps) == (steps, None)
