"""Quantisers of wide integers: thresholds of many shapes, every reading as wrong as it may be."""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.exact.digit_lookups import search_digits
from cloakwork.models.exact.digit_search import SLOTS, DigitTables, Noise, digit_tables
from cloakwork.models.exact.step_functions import StepFunction, around_changes
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.runtime.interpreter import interpret

BITS = 22
P_FAIL_LOG2 = -64.0


@pytest.fixture(scope="module")
def room() -> Noise:
    """Of sums with a deviation of a quarter of a unit's hundredth."""
    return Noise(parameter_set("fine5"), (2.0**-BITS / 400) ** 2, P_FAIL_LOG2)


def evenly(low: int, high: int, count: int, step: float, start: float) -> StepFunction:
    thresholds = np.floor(start + step * np.arange(count)).astype(np.int64)
    thresholds = np.unique(thresholds[(thresholds > low) & (thresholds <= high)])
    return StepFunction(low, 0.0, thresholds, np.ones(len(thresholds)))


CASES = [
    # low, high, count, step, start
    (-900_000, 900_000, 255, 911.3, 0.0),
    (-300_000, 900_000, 255, 1531.7123, -120_000.0),
    (-300_000, 1_500_000, 255, 2731.7123, -120_000.0),  # with ranks apart
    (-20_000, 900_000, 15, 17_001.9, 5_000.5),
    (-800_000, 800_000, 127, 1000.0, -63_500.0),
    (-600_000, 100_000, 3, 40_000.3, -590_000.0),
    (-100_000, 700_000, 255, 2731.0, -5_000.0),
    (-1, 700_000, 63, 1777.77, 600_000.0),
]


def read_wrongly(found: DigitTables, x: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """How many thresholds are passed. Args: errors: [readings + 1, x], shares of the margins in [-1, 1]."""
    plan, left, passed = found.plan, x.astype(np.float64), np.zeros(len(x))
    ranks = np.zeros(len(x))
    for i, reading in enumerate(plan.readings):
        phase = (left - found.centres[i]) * reading.factor * 2.0**-plan.bits
        phase = (phase + 0.5) % 1 - 0.5 + reading.margin * errors[i]
        assert np.abs(phase).max() < 0.25
        slot = np.floor(phase * 2 * SLOTS + SLOTS / 2).astype(np.int64)
        left, passed = left - found.subtracted[i][slot], passed + found.passed[i][slot]
        if i in plan.ranked:
            ranks += found.ranks[plan.ranked.index(i)][slot]
    if plan.ranks:
        turns = 2.0 ** (plan.place - plan.bits)
        index = (ranks if plan.ranked else left * turns) - found.count + plan.rank_margin * 2.0**plan.ranks * errors[-1]
        left = left - (np.floor(index + 0.5) % 2.0**plan.ranks < 2.0 ** (plan.ranks - 1))
    compared = left % 2.0**plan.sign.bits
    np.testing.assert_allclose(compared, np.rint(compared), atol=1e-6)
    below: np.ndarray = np.rint(compared) < 2.0 ** (plan.sign.bits - 1)
    return passed + below


@pytest.mark.parametrize("low, high, count, step, start", CASES)
def test_readings_may_be_wrong_by_their_margins(
    low: int, high: int, count: int, step: float, start: float, room: Noise
) -> None:
    steps = evenly(low, high, count, step, start)
    found = digit_tables(steps, high, BITS, room)
    assert found is not None
    assert found.plan.lookups <= 13
    rng = np.random.default_rng(14)
    near = np.concatenate([steps.thresholds + d for d in (-2, -1, 0, 1)])
    x = np.unique(np.clip(np.concatenate([near, rng.integers(low, high + 1, 20_000), [low, high]]), low, high))
    shape = (len(found.plan.readings) + 1, len(x))
    wanted = np.searchsorted(steps.thresholds, x, "right")
    for errors in (np.zeros(shape), rng.uniform(-1, 1, shape), 0.999_999 * rng.choice([-1.0, 1.0], shape)):
        np.testing.assert_array_equal(read_wrongly(found, x, errors), wanted)


@pytest.mark.parametrize("low, high, count, step, start", CASES[:5])
def test_the_graph_counts_thresholds(low: int, high: int, count: int, step: float, start: float, room: Noise) -> None:
    """Two rows of one plan, with steps of their own."""
    steps = evenly(low, high, count, step, start)
    found = digit_tables(steps, high, BITS, room)
    assert found is not None
    builder = GraphBuilder()
    wires = builder.input(2, WireEncoding(2.0**-BITS, low, high), "integers").tolist()
    rows, heights = [Row({wire: 1}, 0.0) for wire in wires], np.array([0.5, -3.0])
    parts, constant = search_digits(
        builder, rows, [found, found], heights, WireEncoding(2.0**-12, -800.0, 800.0), "counted"
    )
    sums = [Row({int(part[i]): 1 for part in parts}, float(constant[i])) for i in (0, 1)]
    graph = builder.graph(builder.linear(sums, WireEncoding(2.0**-12, -800.0, 800.0), "sum"))
    x = np.random.default_rng(15).integers(low, high + 1, (5_000, 2))
    wanted = np.searchsorted(steps.thresholds, x, "right") * heights
    np.testing.assert_allclose(interpret(graph, x.astype(np.float64)), wanted, atol=1e-9)


def test_steps_that_are_not_alike_are_left() -> None:
    """Of several heights, far from even, or more than noise has room for."""
    quiet = Noise(parameter_set("fine5"), 0.0, P_FAIL_LOG2)
    steps = evenly(-900_000, 900_000, 100, 3000.0, 0.0)
    uneven = StepFunction(steps.low, 0.0, steps.thresholds, np.arange(1.0, len(steps.thresholds) + 1))
    assert digit_tables(uneven, 900_000, BITS, quiet) is None
    random = np.unique(np.random.default_rng(16).integers(-800_000, 800_000, 200))
    assert digit_tables(StepFunction(-900_000, 0.0, random, np.ones(len(random))), 900_000, BITS, quiet) is None
    loud = Noise(parameter_set("fine5"), 2.0**-30, P_FAIL_LOG2)
    assert digit_tables(steps, 900_000, BITS, loud) is None


def test_changes_are_found_by_bisection() -> None:
    thresholds = np.array([-5, -4, 100, 4_000_000])
    around = around_changes(lambda x: np.searchsorted(thresholds, x, "right").astype(float), -(10**7), 10**7)
    assert set(thresholds) | set(thresholds - 1) <= set(around.tolist())
    assert len(around) <= 2 * len(thresholds) + 2
