"""Regressors of several targets, spread from 0.001 to 1000: each output of the program is as near to the fitted object's as its own spread says."""

from __future__ import annotations

import sys
import warnings
from collections import Counter

import numpy as np
import pytest
from cases import case

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from drawn_outputs import SeveralTargets, drawn_targets

import cloakwork as cw
from cloakwork.models.errors import CompileError, ImportFaultError


def end_of(stranger: SeveralTargets) -> str:
    """ "right", or why it was refused. AssertionError for another answer; whatever else is raised is a fault too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = cw.compile(stranger.fitted, stranger.samples)
        except ImportFaultError:
            raise
        except CompileError as error:
            return f"refused: {type(error).__name__}"
        answers, expected = compiled.predict(stranger.fresh), stranger.fitted.predict(stranger.fresh)
        spread = stranger.fitted.predict(stranger.samples).std(axis=0)
    near = np.abs(answers - expected) <= 0.05 * spread + 1e-6 * np.abs(expected)
    assert answers.shape == expected.shape
    assert (near.mean(axis=0) >= 0.85).all(), near.mean(axis=0)
    return "right"


@pytest.mark.parametrize(
    "seeds",
    [
        range(5),
        pytest.param(range(100, 120), marks=pytest.mark.tier("all")),
        *(pytest.param(range(i, i + 50), marks=pytest.mark.tier("release")) for i in range(1000, 1200, 50)),
    ],
    ids=str,
)
def test_each_output_keeps_its_values(seeds: range) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        stranger = drawn_targets(seed)
        with case("seed", seed, f"{stranger.name}, spread {stranger.scales.round(4).tolist()}"):
            ends[end_of(stranger)] += 1
    sys.stdout.write(f"{', '.join(f'{end}: {count}' for end, count in ends.items())}\n")  # shown by -rP
    assert ends["right"] >= 0.8 * len(seeds), ends
