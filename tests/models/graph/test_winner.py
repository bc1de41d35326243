"""The largest of several integers, by signs of differences: every integer of some bits, with windows of every width, in clear and encrypted."""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Integers
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.ir import wires
from cloakwork.models.graph.signs import SIGNS, SignPlan, plan_signs
from cloakwork.models.graph.winner import Contest
from cloakwork.models.program import Program
from cloakwork.models.runtime.interpreter import wire_values

TOY = "toy_large"
WINDOWS = [(6,), (1, 5), (5, 1), (2, 4), (3, 3), (4, 5), (1, 1, 5), (1, 5, 5), (4, 2, 5)]


def program(windows: tuple[int, ...], leads: Indices) -> Program:
    """The winner among as many encrypted integers as there are leads."""
    plan, classes = SignPlan(sum(windows), windows), len(leads)
    contest, builder = Contest(plan, 16, leads), GraphBuilder()
    most = 2.0 ** (plan.bits - 1)
    inputs = builder.input(classes, WireEncoding(2.0**-plan.bits, -most, most), "integers")
    output = contest.output(builder, [Row({int(wire): 1}, 0.0) for wire in inputs])
    return Program(
        builder.graph(output), parameter_set(TOY), 1.0, output_steps=(Integers(),), output_unit=contest.output_unit
    )


@pytest.mark.parametrize("windows", WINDOWS)
def test_every_difference_of_so_many_bits(windows: tuple[int, ...]) -> None:
    """Of two integers, half of it each; the look-ups that find its sign read whole numbers, in the middle of their slots."""
    bits = sum(windows)
    made = program(windows, np.zeros((2, 2), dtype=np.int64))
    half = 1 << (bits - 2)
    d = np.arange(-2 * half + 1, 2 * half)
    x = np.stack([d // 2, d // 2 - d], axis=1).astype(float)
    expected = (d < 0).astype(int)  # the first of equal ones
    every = wire_values(made.graph, x)
    np.testing.assert_array_equal(every[:, made.graph.output.reshape(-1)].reshape(-1), expected)
    for node in made.graph.linears:
        if node.origin.startswith(SIGNS):
            np.testing.assert_array_equal(every[:, wires(node)] % 1, 0)


@pytest.mark.tier("all")
@pytest.mark.parametrize("windows", [(4, 5), (1, 5, 2), (1, 1, 6)])
def test_encrypted_differences(windows: tuple[int, ...]) -> None:
    bits = sum(windows)
    model = CompiledModel(program(windows, np.zeros((2, 2), dtype=np.int64)))
    key = ClientKey.generate(TOY)
    d = np.arange(-(1 << (bits - 1)) + 1, 1 << (bits - 1))
    x = np.stack([d // 2, d // 2 - d], axis=1).astype(float)
    found = model.predict(x, "encrypted", key=key, session=Session(key.evaluation_keys()))
    np.testing.assert_array_equal(np.asarray(found).reshape(-1), d < 0)


def test_some_differences_encrypted() -> None:
    """At both ends, at equality and beside it."""
    model = CompiledModel(program((1, 5, 2), np.zeros((2, 2), dtype=np.int64)))
    key = ClientKey.generate(TOY)
    d = np.array([-127, -2, -1, 0, 1, 64, 127])
    x = np.stack([d // 2, d // 2 - d], axis=1).astype(float)
    found = model.predict(x, "encrypted", key=key, session=Session(key.evaluation_keys()))
    np.testing.assert_array_equal(np.asarray(found).reshape(-1), d < 0)


def test_leads_decide_between_equal_integers() -> None:
    """With real constants, whose differences are rounded down, exactly one wins: as by the constants themselves."""
    random = np.random.default_rng(0)
    constants = random.integers(-3 << 20, 3 << 20, 5)
    constants[3] = constants[1]
    made = program((4, 5), (constants[:, None] - constants[None, :]) // (1 << 20))
    x = random.integers(-4, 5, (500, 5)).astype(float)
    output = wire_values(made.graph, x)[:, made.graph.output.reshape(-1)].reshape(-1)
    np.testing.assert_array_equal(output, np.argmax(x * 2**20 + constants, axis=1))


@pytest.mark.tier("all")
def test_more_integers_than_a_look_up_counts() -> None:
    """Nineteen comparisons of each are counted in two look-ups, and these in one."""
    model = CompiledModel(program((1, 5), np.zeros((20, 20), dtype=np.int64)))
    assert model.report()["bootstraps_per_level"][-3:] == [190, 40, 20]
    x = np.random.default_rng(1).integers(-8, 8, (40, 20)).astype(float)
    key = ClientKey.generate(TOY)
    np.testing.assert_array_equal(np.asarray(model.predict(x)).reshape(-1), x.argmax(axis=1))
    found = model.predict(x[:4], "encrypted", key=key, session=Session(key.evaluation_keys()))
    np.testing.assert_array_equal(np.asarray(found).reshape(-1), x[:4].argmax(axis=1))


def test_windows_are_as_wide_as_noise_allows() -> None:
    narrow_far_out = plan_signs(15, lambda width, factor_log2: width <= (4 if factor_log2 > 8 else 5))
    assert narrow_far_out is not None and sum(narrow_far_out.windows) == 15
    assert narrow_far_out.windows[0] <= 4 and narrow_far_out.lookups == 6
    wide = plan_signs(16, lambda width, _: width <= 5)
    assert wide is not None and (sorted(wide.windows), wide.lookups) == ([1, 5, 5, 5], 6)
    assert plan_signs(8, lambda width, factor_log2: width < 4 and factor_log2 < 4) is None
