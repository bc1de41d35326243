"""Input steps that a server might choose, and samples that do not suit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cloakwork.models.client_steps import (
    FUNCTIONS,
    ZERO_IS_MISSING,
    Append,
    Binarise,
    Categories,
    Columns,
    Complete,
    Divide,
    Function,
    InputStep,
    Normalise,
    Polynomials,
    Power,
    Present,
    Project,
    Quantiles,
    Rescale,
    Select,
    Splines,
    Standardise,
    no_samples,
    run_input_steps,
)
from cloakwork.models.program.client_specification import ClientSpecification

WIDTH = 3
NUMBERS = (np.nan, None, np.inf, -np.inf, 0.0, -0.0, -1.5, 0.5, 3.0, 1e300, -1e300, 5e-324, 1e18, True)
TEXTS = ("red", "mauve", "", "1.5", "-inf", "nan", "1_0", "n/a", "é")


def _reals(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice([-1e300, -2.0, -0.5, 0.5, 1.0, 3.0, 1e300], shape)


def _knots(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.sort(rng.normal(0, 2, (rows, WIDTH)), axis=0)


# One of each kind that some values do not suit, on WIDTH columns.
STEPS: dict[str, Callable[[np.random.Generator], InputStep]] = {
    "standardise": lambda rng: Standardise(_reals(rng, WIDTH), _reals(rng, WIDTH)),
    "divide": lambda rng: Divide(_reals(rng, WIDTH), _reals(rng, WIDTH)),
    "normalise": lambda rng: Normalise(str(rng.choice(["l1", "l2", "max"]))),
    "complete": lambda rng: Complete(("a", "c"), np.array([0, 2])),
    "present": lambda rng: Present(),
    "binarise": lambda rng: Binarise(rng.normal(0, 1, WIDTH)),
    "project": lambda rng: Project(_reals(rng, WIDTH), rng.normal(0, 1, (WIDTH, WIDTH))),
    "polynomials": lambda rng: Polynomials(rng.integers(0, 5, (WIDTH, WIDTH))),
    "box-cox": lambda rng: Power("box-cox", rng.choice([-2.0, 0.0, 0.5, 9.0], WIDTH)),
    "yeo-johnson": lambda rng: Power("yeo-johnson", rng.choice([-2.0, 0.0, 0.5, 9.0], WIDTH)),
    "function": lambda rng: Function(str(rng.choice(sorted(FUNCTIONS)))),
    "zeros": lambda rng: Function(ZERO_IS_MISSING),
    "quantiles": lambda rng: Quantiles(
        _knots(rng, 4), np.linspace(0, 1, 4), str(rng.choice(["uniform", "normal"]))
    ),
    "splines": lambda rng: Splines(_knots(rng, 6), 2, str(rng.choice(["constant", "continue", "periodic"])), True),
    "bounded splines": lambda rng: Splines(_knots(rng, 6), 2, "error", True),
    "append": lambda rng: Append(
        np.array([2, 0, 1]), (Power("box-cox", np.ones(WIDTH)), Splines(_knots(rng, 6), 2, "error", True))
    ),
}  # fmt: skip


def drawn_steps(rng: np.random.Generator) -> tuple[InputStep, ...]:
    """A table of numbers, or of numbers and categories, and up to four steps, each on the first columns of what comes before."""
    names, missing = ("a", "b", "c"), bool(rng.integers(2))
    first = Columns(WIDTH, names, missing)
    if rng.integers(2):
        known = (("red", "blue", None),) if rng.integers(2) else (("red", 1, 2.5),)
        first = Categories(WIDTH, np.array([1]), known, str(rng.choice(["refuse", "ignore"])), names, missing)
    steps: tuple[InputStep, ...] = (first,)
    for name in rng.choice(sorted(STEPS), rng.integers(0, 5)):
        steps = (*steps, STEPS[name](rng), Select(np.arange(WIDTH)))
    if rng.integers(2):
        ends = np.full(WIDTH, 4.0)
        steps = (*steps, Rescale(-ends, ends, np.zeros(WIDTH), np.full(WIDTH, 0.25)))
    return steps


def with_steps(client: ClientSpecification, steps: tuple[InputStep, ...]) -> ClientSpecification:
    """A specification that encrypts what the steps make."""
    shape = run_input_steps(steps, no_samples(steps)).shape[1:]
    return replace(client, input_steps=steps, input_shape=shape, input_range=(-4.0, 4.0), input_scale=0.0625)


def drawn_samples(rng: np.random.Generator, rows: int, texts: bool) -> list[list[Any]]:
    """Args: texts: among the numbers."""
    cells = [*NUMBERS, *TEXTS] if texts else NUMBERS
    return [[cells[i] for i in rng.integers(0, len(cells), WIDTH)] for _ in range(rows)]
