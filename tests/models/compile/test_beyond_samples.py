"""Scores of anomalies, beyond those of all samples, do not come back among the ordinary ones, or a warning says that some do."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import helper
from onnx_models import model

import cloakwork as cw
from cloakwork.models.compile import stages
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import AccuracyWarning


def squared_sums(spread: float) -> tuple[CompiledModel, np.ndarray, list[str]]:
    """The squares, added up, of sums of two pairs of numbers that are nearly opposite in all samples; the samples, and warnings.

    Args: spread: of each sum; of two numbers that have nothing to do with each other it is about 1.4.
    """
    rng = np.random.default_rng(5)
    first = rng.normal(size=(300, 2))
    x = np.concatenate([first, spread * rng.normal(size=(300, 2)) - first], axis=1)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"], name="sum"),
        helper.make_node("Mul", ["s", "s"], ["q"], name="square"),
        helper.make_node("MatMul", ["q", "v"], ["y"], name="score"),
    ]
    constants = {"w": np.tile(np.eye(2), (2, 1)).astype(np.float32), "v": np.ones((2, 1), dtype=np.float32)}
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        made = cw.compile(model(nodes, [4], constants), x, accuracy=0.9)
    return made, x, [str(each.message) for each in raised if each.category is AccuracyWarning]


def back(made: CompiledModel, x: np.ndarray) -> int:
    """How many answers beyond those of the samples come back among them, of numbers of several samples together."""
    mixed = np.random.default_rng(6).permuted(x, axis=0)
    largest = made.predict_float(x).max()
    beyond = made.predict_float(mixed) > 1.1 * largest
    assert beyond.sum() > 20
    return int((made.predict(mixed)[beyond] < 0.9 * largest).sum())


def test_ranges_reach_as_far_as_inputs_unlike_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    made, x, told = squared_sums(0.15)
    assert back(made, x) == 0
    assert not told
    monkeypatch.setattr(stages, "_FAR", ())
    narrow, _, told = squared_sums(0.15)
    assert back(narrow, x) > 2
    assert "come back among them" in told[0]


def test_a_warning_says_how_many_come_back() -> None:
    made, x, told = squared_sums(0.1)
    assert back(made, x) > 2
    (text,) = told
    assert "answers that lie beyond those of all samples come back among them" in text
    assert "margin=" in text
