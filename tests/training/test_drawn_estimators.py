"""Strangers' estimators, compiled: the program answers as the fitted object itself, or is refused for a reason. No other end."""

from __future__ import annotations

import sys
import warnings
from collections import Counter

import numpy as np
import pytest
from cases import case

pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from drawn_estimators import Stranger, drawn_estimator, smallest

import cloakwork as cw
from cloakwork.models.errors import CalibratedRangeWarning, CompileError, ImportFaultError, ShapeError


def end_of(stranger: Stranger) -> str:
    """ "right", or why it was refused. AssertionError for another answer; whatever else is raised is a fault too."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            compiled = cw.compile(stranger.fitted, stranger.samples)
            warned.clear()
            found = np.asarray(compiled.predict(stranger.fresh))
        except ImportFaultError:
            raise
        except (CompileError, ShapeError) as error:
            return f"refused: {type(error).__name__}"
        beyond = any(issubclass(each.category, CalibratedRangeWarning) for each in warned)
        wanted = np.asarray(stranger.fitted.predict(stranger.fresh))
    assert found.shape == wanted.shape
    if stranger.classifies:
        assert (found == wanted).mean() >= 0.9
        return "right"
    clear = np.asarray(stranger.fitted.predict(stranger.samples))
    size = np.maximum(np.abs(clear).max(axis=0), 1e-300)  # no square of what is divided by it overflows
    spread = (clear / size).std(axis=0)
    lost = (np.abs(found / size - wanted / size) / np.where(spread > 1e-6, spread, 1)).reshape(len(found), -1) ** 2
    if beyond:
        assert (lost <= 0.05**2).all(axis=1).mean() >= 0.85
    else:  # as stated, but for three standard deviations of what so few samples show
        most = 1 - compiled.program.facts.original.at_least
        assert (lost.mean(axis=0) <= most**2 + 1e-12 + 3 * np.sqrt((lost**2).sum(axis=0)) / len(lost)).all()
    return "right"


def fails(stranger: Stranger) -> bool:
    try:
        end_of(stranger)
    except Exception:
        return True
    return False


@pytest.mark.parametrize(
    "seeds",
    [
        range(6),
        *(pytest.param(range(i, i + 15), marks=pytest.mark.tier("all")) for i in range(100, 160, 15)),
        *(pytest.param(range(i, i + 50), marks=pytest.mark.tier("release")) for i in range(1000, 2000, 50)),
    ],
    ids=str,
)
def test_drawn_estimators_answer_as_themselves(seeds: range) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        stranger = drawn_estimator(seed)
        try:
            ends[end_of(stranger)] += 1
        except Exception:
            with case("seed", seed, smallest(stranger, fails).name):
                raise
    sys.stdout.write(f"{', '.join(f'{end}: {count}' for end, count in ends.items())}\n")  # shown by -rP
    assert ends["right"] >= 0.6 * len(seeds), ends


def test_what_fails_is_told_with_as_few_steps_as_fail() -> None:
    stranger = next(each for each in map(drawn_estimator, range(100)) if len(getattr(each.fitted, "steps", [])) > 2)
    found = smallest(stranger, lambda each: len(getattr(each.fitted, "steps", [])) > 1)
    assert len(found.fitted.steps) == 2
