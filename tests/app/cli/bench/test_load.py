"""`cloakwork bench serve` counts what it should."""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.app.cli.bench.serve import Load, _agrees, _answers, _record
from cloakwork.app.client.table import Table


def load(requests: int) -> Load:
    return Load("m", Table(np.zeros((3, 2)), None), np.array([0, 1, 2]), requests, float("inf"))


def test_samples_are_taken_in_turn_until_there_are_enough() -> None:
    asked = load(5)
    assert [asked.next_sample() for _ in range(7)] == [0, 1, 2, 0, 1, None, None]
    late = load(5)
    late.deadline = 0.0
    assert late.next_sample() is None


def test_labels_must_be_equal_and_numbers_near() -> None:
    assert _agrees("b", np.array(["a", "b"]), 1) and not _agrees("a", np.array(["a", "b"]), 1)
    values = np.array([0.0, 10.0])
    assert _agrees(9.6, values, 1) and not _agrees(9.4, values, 1)
    assert _answers(np.array([[0.1, 0.7, 0.2]])).tolist() == [1]


def test_the_record() -> None:
    done = load(4)
    done.sent, done.latencies, done.computed = 4, [0.1, 0.2, 0.3, 0.4], [0.1, 0.1, 0.1, 0.1]
    record = _record(done, users=2, tenants=1, elapsed=2.0)
    assert record["answered"] == 4 and record["per_second"] == 2.0
    assert record["p50_seconds"] == pytest.approx(0.25)
    assert record["p50_over_compute"] == pytest.approx(2.5)
