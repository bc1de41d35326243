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
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.lookup_parts import LookupRole, part_origin

SIGNS: Final = "signs"
MOST_WINDOW_BITS: Final = 6


@dataclass(frozen=True)
class SignPlan:
    """The plan that finds the highest bits of an integer of `bits` bits."""

    bits: int
    windows: tuple[int, ...]  # bits of each that is subtracted, the lowest first; the last one holds the sign

    @property
    def lookups(self) -> int:
        """A window of one bit takes one, the last one too."""
        return sum(1 if width == 1 else 2 for width in self.windows[:-1]) + 1

    @property
    def place(self) -> int:
        """Returns the place of the last window: how many bits are subtracted."""
        return self.bits - self.windows[-1]


def plan_signs(bits: int, fits: Callable[[int, int], bool], kept: int = 1) -> SignPlan | None:
    """Plans signs with the fewest look-ups; None where the noise leaves no room.

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

    cheapest = best(0)
    return None if cheapest is None else SignPlan(bits, cheapest[1])


def circle(slots: int) -> WireEncoding:
    """Returns how an index of 2 slots values is encrypted."""
    return WireEncoding(1 / (2 * slots), 0.0, 2.0 * slots - 1, (slots - 1) / 2)


@dataclass(frozen=True)
class _Window:
    """One that was subtracted: rows without what is below it and its highest bit, and that bit."""

    place: int
    width: int
    rows: list[Row]
    top: Indices
    middle: float  # of the top bit's two values


def _subtracted(builder: GraphBuilder, rows: list[Row], plan: SignPlan, name: str) -> tuple[list[Row], list[_Window]]:
    """Returns rows without the bits below the last window, and the windows before it."""
    place, unit, lower = 0, 2.0**-plan.bits, (name, LookupRole.LOWER)
    windows: list[_Window] = []
    for width in plan.windows[:-1]:
        half, weight = 1 << (width - 1), 1 << place
        # The highest bit t, whose weight is half * weight, as (t - 1/2) of that.
        top = np.repeat([-0.5, 0.5], half) * half * weight
        bits = _looked_up(builder, rows, plan, (place, width), top, WireEncoding(unit, top.min(), top.max()), lower)
        rows = [_without(row, wire, half * weight / 2) for row, wire in zip(rows, bits.tolist(), strict=True)]
        windows.append(_Window(place, width, rows, bits, half * weight / 2))
        if width > 1:
            low = np.arange(half) * float(weight)
            table = np.concatenate([low, -low])
            facts = WireEncoding(unit, -low.max(), low.max())
            digits = _looked_up(builder, rows, plan, (place, width), table, facts, lower)
            rows = [_without(row, wire, 0.0) for row, wire in zip(rows, digits.tolist(), strict=True)]
        place += width
    return rows, windows


def highest_bits(
    builder: GraphBuilder, rows: list[Row], plan: SignPlan, tables: Reals, facts: WireEncoding, name: str = SIGNS
) -> Indices:
    """Adds a look-up of the last window of every row, the bits below being gone.

    Args:
        rows: constants in units of 2^-bits of the torus.
        tables: [rows, 2^w] for the w bits of the last window, the second half the first one negated.
        facts: of the results.
    """
    left, _ = _subtracted(builder, rows, plan, name)
    return _looked_up(builder, left, plan, (plan.place, plan.windows[-1]), tables, facts, (name, LookupRole.HIGHEST))


def excess_parts(
    builder: GraphBuilder, rows: list[Row], plan: SignPlan, unit: float, name: str, alone: bool = False
) -> tuple[list[Indices], float]:
    """Makes the parts of max(d, 0) of an integer d beside d / 2: wires [rows] each to be added up, and a constant; phases, `unit` for 1.

    With L = d + 2^(B-1) [d < 0] and the sign s: 2 max(d, 0) = d + s L + 2^(B-1) [d < 0] = L + s L. Bits of L are read without what is below and
    above them, half a turn further where d is negative, where a look-up negates what it gives. They reach from the highest bit of a window to
    below that of the next one.

    Args:
        plan: whose windows, all but the lowest with one bit more, can be read.
        alone: whether max(d, 0) is made without d / 2, the bits of L being read as they are too.
    """
    left, windows = _subtracted(builder, rows, plan, name)
    width, quarter = plan.windows[-1], 2.0 ** (plan.bits - 2)
    sign = np.repeat([0.125, -0.125], 1 << (width - 1))
    facts, part = WireEncoding(1.0, -0.125, 0.125), (name, LookupRole.HIGHEST)
    signs = _looked_up(builder, left, plan, (plan.place, width), sign, facts, part).tolist()
    pieces = _pieces(left, windows, plan)
    if alone:
        turned = _halves(builder, pieces, plan, [signs] * (len(pieces) - 1) + [None], (0, unit), name)
        plain = _halves(builder, pieces, plan, [None] * (len(pieces) - 1) + [signs], (0, unit), name)
        return turned + plain, 0.0
    turns = [signs] * (len(pieces) - 1) + [None]
    return _halves(builder, pieces, plan, turns, (-quarter, unit), name), quarter * unit / 2


def chosen_parts(
    builder: GraphBuilder,
    rows: list[Row],
    bits: list[Row],
    plan: SignPlan,
    values: tuple[float, float],
    name: str,
) -> list[Indices]:
    """Makes the parts of c (d + low) of integers d in [0, 2^(B-1)) and bits c: wires [rows] each to be added up.

    2 c x = x + s x with s = 2 c - 1 in place of the sign of an excess: the bits are read as they are, and half a turn further where c is 0.

    Args:
        bits: rows of 0 or 1, in units of 2^-B as those of d.
        values: low, and the phase for 1.
    """
    sign = np.array([-0.125, 0.125])
    facts, part = WireEncoding(1.0, -0.125, 0.125), (name, LookupRole.CONDITION)
    signs = _looked_up(builder, bits, plan, (0, 1), sign, facts, part).tolist()
    pieces = _pieces(*_subtracted(builder, rows, plan, name), plan)
    turned, plain = ([turn] * len(pieces) for turn in (signs, None))
    return [wires for turns in (turned, plain) for wires in _halves(builder, pieces, plan, turns, values, name)]


@dataclass(frozen=True)
class _Piece:
    """Bits of rows from `lowest` to below `end`, of which all others are gone; the highest is 0, or the sign of the row."""

    lowest: int
    end: int
    rows: list[Row]


def _pieces(left: list[Row], windows: list[_Window], plan: SignPlan) -> list[_Piece]:
    """Args: left: rows without the bits below the last window; windows: those before it."""
    pieces: list[_Piece] = []
    before: _Window | None = None
    for window in [*windows, None]:
        here = left if window is None else window.rows
        if before is not None:
            here = [_without(row, wire, -before.middle, 1) for row, wire in zip(here, before.top.tolist(), strict=True)]
        lowest = 0 if before is None else before.place + before.width - 1
        end = plan.bits if window is None else window.place + window.width
        if end - lowest > 1 or window is None:
            pieces.append(_Piece(lowest, end, here))
        before = window
    return pieces


def _halves(
    builder: GraphBuilder,
    pieces: list[_Piece],
    plan: SignPlan,
    turns: Sequence[Sequence[int] | None],
    values: tuple[float, float],
    name: str,
) -> list[Indices]:
    """Returns half of every piece, negated by its turns. Args: values: what is added to the last piece, and the phase for 1."""
    added, unit = values
    halves: list[Indices] = []
    for piece, turn in zip(pieces, turns, strict=True):
        table = np.arange(1 << (piece.end - piece.lowest - 1)) * 2.0**piece.lowest
        half = (table + (added if piece is pieces[-1] else 0.0)) * unit / 2
        reach = float(np.abs(half).max())
        window, facts = (piece.lowest, piece.end - piece.lowest), WireEncoding(1.0, -reach, reach)
        tables, part = np.concatenate([half, -half]), (name, LookupRole.PIECE)
        halves.append(_looked_up(builder, piece.rows, plan, window, tables, facts, part, turn))
    return halves


def _looked_up(
    builder: GraphBuilder,
    rows: list[Row],
    plan: SignPlan,
    window: tuple[int, int],
    table: Reals,
    facts: WireEncoding,
    part: tuple[str, LookupRole],
    signs: Sequence[int] | None = None,
) -> Indices:
    """Returns a function of some bits of every row, those below being gone.

    Args:
        window: the lowest bit, and how many.
        part: of the chain in place of a look-up of that name.
        signs: wires of 1/8 or -1/8, which turn what is read by half where they are negative.
    """
    place, width = window
    factor, weight = 1 << (plan.bits - place - width), 1 << place
    scaled = [Row({w: factor * v for w, v in row.weights.items()}, row.constant / weight) for row in rows]
    if signs is not None:  # 1/4 - 2 / 8 = 0, 1/4 + 2 / 8 = 1/2
        quarter = 2.0 ** (width - 2)
        scaled = [Row({**row.weights, s: -2}, row.constant + quarter) for row, s in zip(scaled, signs, strict=True)]
    name = part_origin(*part, f"bits {place} to {place + width - 1}")
    indices = builder.linear(scaled, circle(1 << (width - 1)), name)
    return builder.lookup(indices, np.broadcast_to(table, (len(rows), 1 << width)), facts, name)


def _without(row: Row, wire: int, constant: float, times: int = -1) -> Row:
    weights = {**row.weights, wire: row.weights.get(wire, 0) + times}
    return Row({each: weight for each, weight in weights.items() if weight}, row.constant - constant)
