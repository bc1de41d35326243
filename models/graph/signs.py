"""Bits of an encrypted integer from below: its sign, or any function of its highest bits.

Integers are units of 1 / 2^B of the torus, so that one is known modulo 2^B and its sign is its highest bit. Lower bits are found and
subtracted first, a *window* of w bits at a time: 2^(B - w - place) times what is left is a number of w bits on the whole circle. A look-up gives
half of the functions on a circle, those with f(x + half a turn) = -f(x), so a window takes two: its highest bit, and the others once that is
gone. What is subtracted has the units of the integer, where noise has to be small; windows are as wide as the noise of their factor allows.

Source: [LMP21], sign by removing digits. Ours: what is left keeps its modulus, so that nothing is rounded; windows of different widths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.graph_builder import Facts, GraphBuilder, Row

SIGNS: Final = "signs"
MOST_WINDOW_BITS: Final = 6


@dataclass(frozen=True)
class SignPlan:
    """How the highest bits of an integer of `bits` bits are found."""

    bits: int
    windows: tuple[int, ...]  # bits of each that is subtracted, the lowest first; the last one holds the sign

    @property
    def lookups(self) -> int:
        """A window of one bit takes one, the last one too."""
        return sum(1 if width == 1 else 2 for width in self.windows[:-1]) + 1

    @property
    def place(self) -> int:
        """Of the last window: how many bits are subtracted."""
        return self.bits - self.windows[-1]


def plan_signs(bits: int, fits: Callable[[int, int], bool], kept: int = 1) -> SignPlan | None:
    """With the fewest look-ups; None where the noise leaves no room.

    Args:
        fits: whether a window of so many bits can be read where 2^k is the factor on the units: fits(width, k).
        kept: bits that the last window has at least.
    """

    @cache
    def best(place: int) -> tuple[int, tuple[int, ...]] | None:
        left = bits - place
        ways = []
        for width in range(min(MOST_WINDOW_BITS, left), 0, -1):
            if not fits(width, left - width) or (width < left < width + kept) or (width == left < kept):
                continue
            rest = (0, ()) if width == left else best(place + width)
            if rest is not None:
                ways.append((rest[0] + (1 if width in (1, left) else 2), (width, *rest[1])))
        return min(ways, key=lambda way: way[0], default=None)

    found = best(0)
    return None if found is None else SignPlan(bits, found[1])


def circle(slots: int) -> Facts:
    """How an index of 2 slots values is encrypted."""
    return Facts(1 / (2 * slots), 0.0, 2.0 * slots - 1, (slots - 1) / 2)


@dataclass(frozen=True)
class _Window:
    """One that was subtracted: rows without what is below it and its highest bit, and that bit."""

    place: int
    width: int
    rows: list[Row]
    top: Indices
    middle: float  # of the top bit's two values


def _subtracted(builder: GraphBuilder, rows: list[Row], plan: SignPlan, name: str) -> tuple[list[Row], list[_Window]]:
    """Rows without the bits below the last window, and the windows before it."""
    place, unit = 0, 2.0**-plan.bits
    windows: list[_Window] = []
    for width in plan.windows[:-1]:
        half, weight = 1 << (width - 1), 1 << place
        # The highest bit t, whose weight is half * weight, as (t - 1/2) of that.
        top = np.repeat([-0.5, 0.5], half) * half * weight
        bits = _looked_up(builder, rows, plan, (place, width), top, Facts(unit, top.min(), top.max()), name)
        rows = [_without(row, wire, half * weight / 2) for row, wire in zip(rows, bits.tolist(), strict=True)]
        windows.append(_Window(place, width, rows, bits, half * weight / 2))
        if width > 1:
            low = np.arange(half) * float(weight)
            table = np.concatenate([low, -low])
            facts = Facts(unit, -low.max(), low.max())
            digits = _looked_up(builder, rows, plan, (place, width), table, facts, name)
            rows = [_without(row, wire, 0.0) for row, wire in zip(rows, digits.tolist(), strict=True)]
        place += width
    return rows, windows


def highest_bits(
    builder: GraphBuilder, rows: list[Row], plan: SignPlan, tables: Reals, facts: Facts, name: str = SIGNS
) -> Indices:
    """A look-up of the last window of every row, the bits below being gone.

    Args:
        rows: constants in units of 2^-bits of the torus.
        tables: [rows, 2^w] for the w bits of the last window, the second half the first one negated.
        facts: of the results.
    """
    left, _ = _subtracted(builder, rows, plan, name)
    return _looked_up(builder, left, plan, (plan.place, plan.windows[-1]), tables, facts, name)


def excess_parts(
    builder: GraphBuilder, rows: list[Row], plan: SignPlan, unit: float, name: str
) -> tuple[list[Indices], float]:
    """What makes max(d, 0) of an integer d beside d / 2: wires [rows] each to be added up, and a constant; phases, `unit` for 1.

    With L = d + 2^(B-1) [d < 0] and the sign s: 2 max(d, 0) = d + s L + 2^(B-1) [d < 0]. Bits of L are read without what is below and above
    them, half a turn further where d is negative, where a look-up negates what it gives. They reach from the highest bit of a window to below
    that of the next one.

    Args:
        plan: whose windows, all but the lowest with one bit more, can be read.
    """
    left, windows = _subtracted(builder, rows, plan, name)
    width, quarter = plan.windows[-1], 2.0 ** (plan.bits - 2)
    sign = np.repeat([0.125, -0.125], 1 << (width - 1))
    signs = _looked_up(builder, left, plan, (plan.place, width), sign, Facts(1.0, -0.125, 0.125), name).tolist()
    found: list[Indices] = []
    before: _Window | None = None
    for window in [*windows, None]:
        here = left if window is None else window.rows
        if before is not None:
            here = [_without(row, wire, -before.middle, 1) for row, wire in zip(here, before.top.tolist(), strict=True)]
        lowest = 0 if before is None else before.place + before.width - 1
        end = plan.bits if window is None else window.place + window.width
        if end - lowest > 1 or window is None:
            values = np.arange(1 << (end - lowest - 1)) * 2.0**lowest
            half = (values - (quarter if window is None else 0.0)) * unit / 2
            table, reach = np.concatenate([half, -half]), float(np.abs(half).max())
            facts, turning = Facts(1.0, -reach, reach), None if window is None else signs
            found.append(_looked_up(builder, here, plan, (lowest, end - lowest), table, facts, name, turning))
        before = window
    return found, quarter * unit / 2


def _looked_up(
    builder: GraphBuilder,
    rows: list[Row],
    plan: SignPlan,
    window: tuple[int, int],
    table: Reals,
    facts: Facts,
    name: str,
    signs: Sequence[int] | None = None,
) -> Indices:
    """A function of some bits of every row, those below being gone.

    Args:
        window: the lowest bit, and how many.
        signs: wires of 1/8 or -1/8, which turn what is read by half where they are negative.
    """
    place, width = window
    factor, weight = 1 << (plan.bits - place - width), 1 << place
    scaled = [Row({w: factor * v for w, v in row.weights.items()}, row.constant / weight) for row in rows]
    if signs is not None:  # 1/4 - 2 / 8 = 0, 1/4 + 2 / 8 = 1/2
        quarter = 2.0 ** (width - 2)
        scaled = [Row({**row.weights, s: -2}, row.constant + quarter) for row, s in zip(scaled, signs, strict=True)]
    name = f"{name}, bits {place} to {place + width - 1}"
    indices = builder.linear(scaled, circle(1 << (width - 1)), name)
    return builder.lookup(indices, np.broadcast_to(table, (len(rows), 1 << width)), facts, name)


def _without(row: Row, wire: int, constant: float, times: int = -1) -> Row:
    weights = {**row.weights, wire: row.weights.get(wire, 0) + times}
    return Row({each: weight for each, weight in weights.items() if weight}, row.constant - constant)
