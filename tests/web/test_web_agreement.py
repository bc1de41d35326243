"""Steps of the client in Node are those of Python, for pipelines and networks that no zoo has: the same numbers before encryption, the same
answers after decryption, the same warnings and refusals.

Arithmetic is the same bit for bit; functions of the C library (exp, log, ..), sums of several terms and powers agree to TOLERANCE, because
numpy's own differ by as much from one processor to the next. What is rounded after them is equal, except where a value lies within that of
a rounding boundary.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from drawn_pipelines import Drawn, draw
from test_web_client import samples_of

import cloakwork as cw
from cloakwork.models import zoo
from cloakwork.models.client_steps import (
    Bins,
    Compare,
    InputStep,
    Positions,
    Quantise,
    Rescale,
    Round,
    Saturate,
    Thermometer,
    no_samples,
    run_input_steps,
)
from cloakwork.models.client_steps.unfit import Replaced
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CalibratedRangeWarning, CompileError, ReplacedValuesWarning, ShapeError
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime.interpreter import simulate

pytestmark = pytest.mark.os_entropy
TOLERANCE = 1e-11  # of a value, or of the largest of its array where terms cancel
DISCRETE = (Bins, Compare, Positions, Quantise, Rescale, Round, Saturate, Thermometer)
STAGES = ("scores", "probabilities", "labels")
BATCHES, DRAWS = 4, 30


@dataclass(frozen=True)
class Case:
    """A specification with what it is asked: samples, each a batch, and phases of its output."""

    client: ClientSpecification
    samples: Sequence[Any]
    phases: Sequence[np.ndarray] = ()


def asked(web: Path, folder: Path, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """What Node answers."""
    lists = [
        {
            "client": case.client.to_json(),
            "samples": [listed(x) for x in case.samples],
            "phases": [{"shape": each.shape, "data": each.ravel().tolist()} for each in case.phases],
        }
        for case in cases
    ]
    (folder / "cases.json").write_text(json.dumps(lists))
    command = ["node", str(web / "test" / "agree.mjs"), str(folder / "cases.json"), str(folder / "answers.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "answers.json").read_text())
    return found


def listed(x: Any) -> Any:
    """For JSON: null for NaN, texts for infinities."""
    if isinstance(x, dict):
        return {name: listed(each) for name, each in x.items()}
    if isinstance(x, list | tuple | np.ndarray):
        return [listed(each) for each in (x.tolist() if isinstance(x, np.ndarray) else x)]
    if isinstance(x, float) and not np.isfinite(x):
        return None if np.isnan(x) else str(x)
    return x


def array(found: Any) -> np.ndarray:
    if isinstance(found, list):
        return np.asarray(found)
    return np.array([float(each) for each in found["data"]]).reshape(found["shape"])


# --- comparisons ---


def check_inputs(client: ClientSpecification, x: Any, found: dict[str, Any]) -> bool:
    """Whether the samples were taken, by both."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            expected = client.inputs(x)
        except ShapeError as error:
            assert found.get("error") == "ShapeError", (str(error), found)
            return False
    assert "error" not in found, found
    numbers = array(found)
    assert numbers.shape == expected.shape
    rounded = any(isinstance(step, DISCRETE) for step in client.input_steps)
    if np.array_equal(numbers, expected) if rounded else is_close(numbers, expected):
        assert found["warnings"] == [
            str(each.message) for each in caught if each.category in (CalibratedRangeWarning, ReplacedValuesWarning)
        ]
    else:
        check_near_a_boundary(client, x, numbers)
    return True


def check_near_a_boundary(client: ClientSpecification, x: Any, found: np.ndarray) -> None:
    """Samples whose numbers differ are those that Python too makes something else of when a column moves by the tolerance after some step.

    A boundary is not of `Round` alone: where many training samples were equal, a quantile transform jumps at their value.
    """
    steps, expected = client.input_steps, client_numbers(client, x)
    near = np.zeros(len(expected), dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(1, len(steps)):
            values = run_input_steps(steps[:k], x, unfit=Replaced())
            size = TOLERANCE * np.maximum(np.abs(values), np.nanmax(np.abs(values), initial=0, axis=0))
            for column, sign in itertools.product(range(values.shape[1]), (-1, 1)):
                moved = values.copy()
                moved[:, column] += sign * size[:, column]
                again = run_input_steps(steps[k:], moved, unfit=Replaced())
                near |= differ(np.clip(again, *client.input_range), expected)
    bad = differ(found, expected) & ~near
    assert not bad.any(), (np.flatnonzero(bad), found[bad], expected[bad])


def differ(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """[samples], by more than terms that cancel may."""
    size = 1000 * TOLERANCE * np.maximum(np.abs(expected), finite_size(expected))
    return np.asarray((np.abs(found - expected) > size).any(axis=1))


def client_numbers(client: ClientSpecification, x: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return client.inputs(x)


def check_answer(expected: Any, found: Any) -> None:
    if isinstance(expected, dict):
        assert list(found["named"]) == list(expected)
        for name, each in expected.items():
            check_answer(each, found["named"][name])
        return
    expected, numbers = np.asarray(expected), array(found)
    assert numbers.shape == expected.shape
    if expected.dtype.kind == "f":
        assert is_close(numbers, expected), (numbers, expected)
    else:
        np.testing.assert_array_equal(numbers, expected)


def is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * finite_size(expected), equal_nan=True)


def finite_size(x: np.ndarray) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0))


def check_outputs(client: ClientSpecification, phases: np.ndarray, found: dict[str, Any]) -> None:
    with np.errstate(all="ignore"):
        for stage in STAGES:
            check_answer(client.output(phases, stage), found[stage])


def continuous(client: ClientSpecification) -> ClientSpecification | None:
    """What is there before the first step that rounds, as if it were encrypted; None where nothing is."""
    steps: list[InputStep] = []
    for step in client.input_steps:
        if isinstance(step, DISCRETE):
            break
        steps.append(step)
    if not steps:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        width = run_input_steps(steps, no_samples(steps)).shape[1:]
    return replace(client, input_steps=tuple(steps), input_shape=width, input_range=(-1e300, 1e300), input_scale=1e-301)


# --- models of the zoo ---


@pytest.mark.tier("all")
def test_inputs_of_the_zoo_are_those_of_python(web: Path, tmp_path: Path) -> None:
    """Of every model: its specification is read, and the same numbers are encrypted."""
    models = [zoo.load_model(name) for name in zoo.names()]
    x = [zoo.held_out(name).x if "samples" in zoo.card(name).facts else samples_of(name) for name in zoo.names()]
    cases = [Case(model.client, [each]) for model, each in zip(models, x, strict=True)]
    for case, found in zip(cases, asked(web, tmp_path, cases), strict=True):
        np.testing.assert_array_equal(array(found["inputs"][0]), case.client.inputs(case.samples[0]))


# --- drawn pipelines ---


def compiled(drawn: Drawn, seed: int) -> CompiledModel:
    """By one of the ways that trees compare, or as a linear model of any accuracy."""
    ways: list[dict[str, Any]] = [{"accuracy": 0}, {"thresholds": "client"}, {"thresholds": "server"}, {}]
    ways = [ways[0], *ways[1 + seed % 3 :]]
    for options in ways[:-1]:
        try:
            return cw.compile(drawn.estimator, drawn.x, **options)
        except CompileError as error:
            if "no option of" not in str(error):
                raise
    return cw.compile(drawn.estimator, drawn.x)


def drawn_cases(seeds: range) -> tuple[list[int], list[CompiledModel], list[Case]]:
    seeds_of, models, cases = [], [], []
    for seed in seeds:
        drawn = draw(seed)
        if drawn is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = compiled(drawn, seed)
            except (CompileError, ShapeError):  # which name what the compiler does not take
                continue
            x = [drawn.x, drawn.probes, *([drawn.x[:1]] if isinstance(drawn.x, list) else wrong(drawn.x))]
            odd = np.random.default_rng(seed).uniform(-0.25, 0.25, (5, model.client.output_scale.size))
            phases = [simulate(model.program, model.client.phases(drawn.x[:20]), seed), odd]
        seeds_of.append(seed)
        models.append(model)
        cases.append(Case(model.client, x, phases))
    return seeds_of, models, cases


def wrong(x: np.ndarray) -> list[np.ndarray]:
    """A missing value, an infinite one, too few columns, no rows; and what may be taken."""
    missing, infinite = x[:3].copy(), x[:3].copy()
    missing[1, 0], infinite[2, 1] = np.nan, np.inf
    unseen = x[:3].copy()
    unseen[0, -1] = 99.0 if x.dtype != object else "of none"
    return [missing, infinite, unseen, x[:3, :-1], x[:0]]


@pytest.mark.tier("all")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_drawn_pipelines(batch: int, web: Path, tmp_path: Path) -> None:
    seeds, _, cases = drawn_cases(range(batch * DRAWS, (batch + 1) * DRAWS))
    assert len(seeds) >= 0.7 * DRAWS
    taken = refused = 0
    before = [(case, open_one) for case in cases if (open_one := continuous(case.client)) is not None]
    open_cases = [Case(open_one, case.samples) for case, open_one in before]
    found = asked(web, tmp_path, [*cases, *open_cases])
    for seed, case, answer in zip(seeds, cases, found[: len(cases)], strict=True):
        assert "error" not in answer, (seed, answer)
        for x, each in zip(case.samples, answer["inputs"], strict=True):
            took = check_inputs(case.client, x, each)
            taken, refused = taken + took, refused + (not took)
        for phases, each in zip(case.phases, answer["outputs"], strict=True):
            check_outputs(case.client, phases, each)
    assert taken > 2 * len(cases) and refused > len(cases) / 2
    for case, answer in zip(open_cases, found[len(cases) :], strict=True):
        for x, each in zip(case.samples, answer["inputs"], strict=True):
            check_inputs(case.client, x, each)
