"""The largest of several encrypted integers, told by its number: signs of all differences, and for each integer a look-up on how often it wins.

Integers are units of 1 / 2^B of the torus, so that a difference is known modulo 2^B and its sign is its highest bit. Lower bits are found and
subtracted first, a *window* of w bits at a time: 2^(B - w - place) times what is left is a number of w bits on the whole circle. A look-up gives
half of the functions on a circle, those with f(x + half a turn) = -f(x), so a window takes two: its highest bit, and the others once that is
gone. What is subtracted has the units of the scores, where noise has to be small; windows are as wide as the noise of their factor allows.

Source: [LMP21], sign by removing digits. Ours: what is left keeps its modulus, so that nothing is rounded; windows of different widths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.trees.graph_builder import Facts, GraphBuilder, Row

SIGNS: Final = "signs"
WINNER: Final = "winner"
MOST_WINDOW_BITS: Final = 6


@dataclass(frozen=True)
class SignPlan:
    """How the sign of an integer of `bits` bits is found."""

    bits: int
    windows: tuple[int, ...]  # bits of each that is subtracted, the lowest first; the last one holds the sign

    @property
    def lookups(self) -> int:
        """A window of one bit takes one, the last one too."""
        return sum(1 if width == 1 else 2 for width in self.windows[:-1]) + 1


def plan_signs(bits: int, fits: Callable[[int, int], bool]) -> SignPlan | None:
    """With the fewest look-ups; None where the noise leaves no room.

    Args:
        fits: whether a window of so many bits can be read where 2^k is the factor on the units: fits(width, k).
    """

    @cache
    def best(place: int) -> tuple[int, tuple[int, ...]] | None:
        left = bits - place
        ways = []
        for width in range(min(MOST_WINDOW_BITS, left), 0, -1):
            if not fits(width, left - width):
                continue
            rest = (0, ()) if width == left else best(place + width)
            if rest is not None:
                ways.append((rest[0] + (1 if width in (1, left) else 2), (width, *rest[1])))
        return min(ways, key=lambda way: way[0], default=None)

    found = best(0)
    return None if found is None else SignPlan(bits, found[1])


@dataclass(frozen=True, eq=False)
class Contest:
    """Pairs of integers, and the whole number that is added to the difference of each before its sign is taken."""

    plan: SignPlan
    slots: int  # of look-ups that count, M
    leads: Indices  # [classes, classes]: a wins over b > a where a - b + leads[a, b] >= 0

    @property
    def classes(self) -> int:
        return len(self.leads)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(self.classes), 2))

    @property
    def output_unit(self) -> float:
        """Of the torus, between two numbers of classes."""
        return 2.0 ** -(self.classes.bit_length() + 1)

    def output(self, builder: GraphBuilder, scores: Sequence[Row]) -> Indices:
        """The number of the class that wins over every other; the first of equal ones."""
        rows = [_difference(scores[a], scores[b], float(self.leads[a, b])) for a, b in self.pairs]
        ahead = _not_negative(builder, rows, self.plan, self.slots)
        won: list[list[tuple[int, int]]] = [[] for _ in range(self.classes)]  # (wire, sign)
        for (a, b), wire in zip(self.pairs, ahead.tolist(), strict=True):
            won[a].append((wire, 1))
            won[b].append((wire, -1))
        while max(map(len, won)) > self.slots - 1:
            won = self._all_of_some(builder, won)
        indices = self._counted(builder, won)
        table = np.zeros((self.classes, 2 * self.slots))
        for number, own in enumerate(won):
            table[number, len(own)] = number
        table[:, self.slots :] = -table[:, : self.slots]
        facts = Facts(self.output_unit, -float(self.classes), float(self.classes))
        numbers = builder.lookup(indices, table, facts, WINNER)
        row = Row(dict.fromkeys(numbers.tolist(), 1), 0.0)
        return builder.linear([row], Facts(self.output_unit, 0.0, self.classes - 1.0), WINNER)

    def _all_of_some(self, builder: GraphBuilder, won: list[list[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
        """Whether all bits of a part hold, in place of these bits."""
        most = self.slots - 1
        parts = [own[start : start + most] for own in won for start in range(0, len(own), most)]
        indices = self._counted(builder, parts)
        table = np.full((len(parts), 2 * self.slots), -0.5)
        for number, own in enumerate(parts):
            table[number, len(own)] = 0.5
        table[:, self.slots :] = -table[:, : self.slots]
        wires = iter(builder.lookup(indices, table, Facts(1 / (2 * self.slots), -0.5, 0.5), WINNER).tolist())
        return [[(next(wires), 1) for _ in range(0, len(own), most)] for own in won]

    def _counted(self, builder: GraphBuilder, parts: Sequence[Sequence[tuple[int, int]]]) -> Indices:
        """How many of the bits hold: each is 1/2 or -1/2."""
        rows = [Row(dict(own), len(own) / 2) for own in parts]
        return builder.linear(rows, _circle(self.slots), WINNER)


def _circle(slots: int) -> Facts:
    return Facts(1 / (2 * slots), 0.0, 2.0 * slots - 1, (slots - 1) / 2)


def _difference(a: Row, b: Row, lead: float) -> Row:
    weights = dict(a.weights)
    for wire, weight in b.weights.items():
        weights[wire] = weights.get(wire, 0) - weight
    return Row({wire: weight for wire, weight in weights.items() if weight}, a.constant - b.constant + lead)


def _not_negative(builder: GraphBuilder, rows: list[Row], plan: SignPlan, slots: int) -> Indices:
    """1/2 where a row is at least 0, -1/2 elsewhere, in slots of look-ups that count."""
    place, unit = 0, 2.0**-plan.bits
    for width in plan.windows[:-1]:
        half, weight = 1 << (width - 1), 1 << place
        # The highest bit t as (t - 1/2) of its weight.
        top = np.repeat([-0.5, 0.5], half) * half * 2 * weight
        bits = _looked_up(builder, rows, plan, place, width, top, Facts(unit, top.min(), top.max()))
        rows = [_without(row, wire, float(half * weight)) for row, wire in zip(rows, bits.tolist(), strict=True)]
        if width > 1:
            low = np.arange(half) * float(weight)
            table = np.concatenate([low, -low])
            digits = _looked_up(builder, rows, plan, place, width, table, Facts(unit, -low.max(), low.max()))
            rows = [_without(row, wire, 0.0) for row, wire in zip(rows, digits.tolist(), strict=True)]
        place += width
    width = plan.windows[-1]
    sign = np.repeat([0.5, -0.5], 1 << (width - 1))
    return _looked_up(builder, rows, plan, place, width, sign, Facts(1 / (2 * slots), -0.5, 0.5))


def _looked_up(
    builder: GraphBuilder, rows: list[Row], plan: SignPlan, place: int, width: int, table: Indices, facts: Facts
) -> Indices:
    """A function of the bits place .. place + width - 1; those below are gone."""
    factor, weight = 1 << (plan.bits - place - width), 1 << place
    scaled = [Row({w: factor * v for w, v in row.weights.items()}, row.constant / weight) for row in rows]
    name = f"{SIGNS}, bits {place} to {place + width - 1}"
    indices = builder.linear(scaled, _circle(1 << (width - 1)), name)
    return builder.lookup(indices, np.tile(table, (len(rows), 1)), facts, name)


def _without(row: Row, wire: int, constant: float) -> Row:
    return Row({**row.weights, wire: row.weights.get(wire, 0) - 1}, row.constant - constant)
