"""Highest bits and excess of integers: every integer of some bits, with windows of every width."""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.signs import SignPlan, chosen_parts, excess_parts, highest_bits, plan_signs
from cloakwork.models.runtime.interpreter import interpret

WINDOWS = [(6,), (1, 5), (5, 1), (2, 4), (3, 3), (4, 5), (1, 1, 5), (2, 1, 3), (4, 2, 5)]


def every_integer(bits: int) -> np.ndarray:
    """Of that many bits and a sign among them [integers, 1]."""
    return np.arange(-(1 << (bits - 1)), 1 << (bits - 1), dtype=np.float64)[:, None]


def started(plan: SignPlan) -> tuple[GraphBuilder, int]:
    """With one encrypted integer in units of 2^-bits."""
    builder, most = GraphBuilder(), 2.0 ** (plan.bits - 1)
    return builder, int(builder.input(1, WireEncoding(2.0**-plan.bits, -most, most), "integer")[0])


@pytest.mark.parametrize("windows", WINDOWS)
def test_excess_of_every_integer(windows: tuple[int, ...]) -> None:
    """Half of the integer and the parts; the unit of the result is that of the integer."""
    plan = SignPlan(sum(windows), windows)
    builder, wire = started(plan)
    unit = 2.0**-plan.bits
    parts, constant = excess_parts(builder, [Row({wire: 1}, 0.0)], plan, unit, "excess")
    # Of an integer in half units, so that half of it is one.
    twice = Row({wire: 1, **{int(part[0]): 2 for part in parts}}, 0.0)
    row = builder.linear([twice], WireEncoding(2 * unit, 0.0, 2.0**plan.bits), "sum")
    d = every_integer(plan.bits)
    found = interpret(builder.graph(row), d) + constant / unit
    np.testing.assert_allclose(found, np.maximum(d, 0), atol=1e-9)


def added(builder: GraphBuilder, parts: list[np.ndarray], unit: float, x: np.ndarray) -> np.ndarray:
    """The sum of wires whose results have their own unit, for inputs [samples, ..]."""
    row = builder.linear([Row({int(part[0]): 1 for part in parts}, 0.0)], WireEncoding(1.0, -1.0, 1.0), "sum")
    return interpret(builder.graph(row), x)[:, 0] / unit


@pytest.mark.parametrize("windows", WINDOWS)
def test_excess_of_every_integer_apart(windows: tuple[int, ...]) -> None:
    """By look-ups alone, at a unit of its own, which no multiple of the integer's is."""
    plan = SignPlan(sum(windows), windows)
    builder, wire = started(plan)
    unit = 0.3 * 2.0**-plan.bits
    parts, constant = excess_parts(builder, [Row({wire: 1}, 0.0)], plan, unit, "excess", alone=True)
    assert constant == 0
    d = every_integer(plan.bits)
    np.testing.assert_allclose(added(builder, parts, unit, d), np.maximum(d, 0)[:, 0], atol=1e-9)


@pytest.mark.parametrize("low", [-37, 0, 5])
@pytest.mark.parametrize("windows", WINDOWS)
def test_every_integer_chosen_by_a_bit(windows: tuple[int, ...], low: int) -> None:
    plan = SignPlan(sum(windows), windows)
    builder, unit = GraphBuilder(), 0.3 * 2.0**-plan.bits
    integer, bit = builder.input(2, WireEncoding(2.0**-plan.bits, 0.0, 2.0 ** (plan.bits - 1)), "both").tolist()
    rows, bits = [Row({integer: 1}, 0.0)], [Row({bit: 1}, 0.0)]
    parts = chosen_parts(builder, rows, bits, plan, (low, unit), "choice")
    d = np.repeat(np.arange(1 << (plan.bits - 1), dtype=np.float64), 2)
    c = np.arange(len(d)) % 2
    found = added(builder, parts, unit, np.stack([d, c], axis=1))
    np.testing.assert_allclose(found, c * (d + low), atol=1e-9)


@pytest.mark.parametrize("windows", WINDOWS)
def test_any_function_of_the_highest_bits(windows: tuple[int, ...]) -> None:
    """Of non-negative integers: the last window but its highest bit, without what is below."""
    plan = SignPlan(sum(windows), windows)
    builder, wire = started(plan)
    values = np.random.default_rng(1).integers(-5, 6, 1 << (windows[-1] - 1)).astype(float)
    facts = WireEncoding(1 / 64, -5.0, 5.0)
    found = highest_bits(builder, [Row({wire: 1}, 0.0)], plan, np.concatenate([values, -values]), facts)
    row = builder.linear([Row({int(found[0]): 1}, 0.0)], facts, "output")
    d = np.arange(1 << (plan.bits - 1), dtype=np.float64)[:, None]
    expected = values[(d[:, 0] / (1 << plan.place)).astype(int)]
    np.testing.assert_array_equal(interpret(builder.graph(row), d)[:, 0], expected)


def test_the_last_window_keeps_what_is_asked_for() -> None:
    for kept in range(1, 6):
        plan = plan_signs(12, lambda width, _: width <= 5, kept)
        assert plan is not None and sum(plan.windows) == 12 and plan.windows[-1] >= kept
    assert plan_signs(12, lambda width, _: width <= 5, 6) is None
