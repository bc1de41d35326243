"""What the steps say of their columns holds for any sample; what they do not know is left to samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloakwork.models.client_steps import (
    Append,
    Binarise,
    Bins,
    Categories,
    Columns,
    Compare,
    Complete,
    Divide,
    Equal,
    Function,
    Impute,
    InputStep,
    Normalise,
    OneHot,
    Polynomials,
    Present,
    Project,
    Quantiles,
    Saturate,
    Select,
    Splines,
    Standardise,
    Texts,
    known_ranges,
    run_input_steps,
)

WORDS = tuple("abcdefgh")
CODES = Categories(3, np.array([0, 2]), (("x", "y", None), ()), "ignore", missing=True)


def texts(rng: np.random.Generator, count: int) -> list[str]:
    return [" ".join(rng.choice([*WORDS, "z"], rng.integers(0, 9))) for _ in range(count)]


def rows(rng: np.random.Generator, count: int) -> np.ndarray:
    columns = [rng.choice(["x", "y", "w", None], count), rng.normal(size=count), rng.choice([0, "?"], count)]
    return np.array([np.asarray(each, dtype=object) for each in columns]).T


TABLE: list[InputStep] = [
    Select(np.array([1, 0])),
    Append(np.array([2, 0]), (Standardise(np.ones(2), np.array([-2.0, 3.0])), Divide(np.zeros(2), np.array([2.0, -1.0])))),
    OneHot(np.array([3, 0, 0])),
    Binarise(np.zeros(3)),
    Compare(np.array([1, 0]), np.zeros(2), np.ones(2, dtype=np.int64)),
    Equal(np.array([0, 0, 1]), np.array([0.0, 1.0, 0.5])),
    Bins(np.array([1]), np.array([0, 3]), np.array([-1.0, 0.0, 1.0]), np.array([0]), 4),
    Saturate(np.full(3, -0.5), np.full(3, 0.5)),
    Quantiles(np.sort(np.linspace(-1, 1, 12).reshape(4, 3), axis=0), np.linspace(0, 1, 4), "uniform"),
    Splines(np.linspace(-1, 2, 18).reshape(6, 3), 1, "constant", True),
    Function("tanh"),
    Project(np.zeros(3), np.eye(3)[:, :2]),
    Polynomials(np.array([[1, 0, 1], [2, 0, 0]])),
    Complete(("a",), np.array([0])),
    Normalise("l2"),
]  # fmt: skip


@pytest.mark.parametrize("step", TABLE, ids=lambda step: type(step).__name__)
def test_columns_of_any_sample_lie_within_what_is_known(step: InputStep) -> None:
    rng = np.random.default_rng(3)
    steps = (CODES, step)
    few, many = rows(rng, 2), rows(rng, 400)
    made = run_input_steps(steps, many)
    low, high = known_ranges(steps, few, made.shape[1])
    sure = ~np.isnan(low)
    assert (sure == ~np.isnan(high)).all()
    assert ((made >= low) & (made <= high))[:, sure].all()
    assert sure.any() == (type(step) not in (Function, Project, Polynomials))


@pytest.mark.parametrize(
    ("others", "ends"),
    [
        ({"hashed": 5, "signed": True}, (-3, 3)),
        ({"vocabulary": WORDS, "binary": True}, (0, 1)),
        ({"vocabulary": WORDS}, (0, 3)),
    ],
)
def test_counts_are_those_of_any_word(others: dict[str, Any], ends: tuple[float, float]) -> None:
    first = Texts(**{"vocabulary": (), "pattern": r"(?u)\b\w+\b", **others})
    few = ["a a a", "b"]
    low, high = known_ranges((first,), few, first.count)
    assert (low == ends[0]).all() and (high == ends[1]).all()
    weighted = (first, Function("logarithm of counts")) if low.min() >= 0 else (first,)
    for norm in ("l1", "l2", "max"):
        steps = (*weighted, Standardise(np.zeros(first.count), np.full(first.count, 2.5)), Normalise(norm), Present())
        low, high = known_ranges(steps, few, first.count)
        assert (low == (-1 if others.get("signed") else 0)).all() and (high == 1).all()
        made = run_input_steps(steps, texts(np.random.default_rng(0), 90))
        assert (made >= low - 1e-9).all() and (made <= high + 1e-9).all()


def test_what_is_not_known_is_left_to_samples() -> None:
    for steps in ((), (Columns(2),), (Columns(2), Standardise(np.zeros(2), np.ones(2)), Impute(np.zeros(2)))):
        assert np.isnan(known_ranges(steps, np.zeros((3, 2)), 2)).all()
    single = Categories(1, np.array([0]), (("a",),))  # one number has no range
    assert np.isnan(known_ranges((single,), [["a"]], 1)).all()
