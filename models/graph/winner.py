"""The largest of several encrypted integers, told by its number: signs of all differences (graph/signs.py), and for each integer a look-up on
how often it wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.signs import SignPlan, circle, highest_bits

WINNER: Final = "winner"


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
        """Returns the part of the torus between two numbers of classes."""
        return 2.0 ** -(self.classes.bit_length() + 1)

    def output(self, builder: GraphBuilder, scores: Sequence[Row]) -> Indices:
        """Returns the number of the class that wins over every other; the first of equal ones."""
        rows = [_difference(scores[a], scores[b], float(self.leads[a, b])) for a, b in self.pairs]
        sign = np.repeat(
            [0.5, -0.5], 1 << (self.plan.windows[-1] - 1)
        )  # 1/2 where a row is at least 0, in slots of look-ups that count
        ahead = highest_bits(builder, rows, self.plan, sign, WireEncoding(1 / (2 * self.slots), -0.5, 0.5))
        won: list[list[tuple[int, int]]] = [[] for _ in range(self.classes)]  # (wire, sign)
        for (a, b), wire in zip(self.pairs, ahead.tolist(), strict=True):
            won[a].append((wire, 1))
            won[b].append((wire, -1))
        while max(map(len, won)) > self.slots - 1:
            won = self._all_of_some(builder, won)
        indices = self._counted(builder, won)
        table = np.zeros((self.classes, 2 * self.slots))
        for number, bits in enumerate(won):
            table[number, len(bits)] = number
        table[:, self.slots :] = -table[:, : self.slots]
        facts = WireEncoding(self.output_unit, -float(self.classes), float(self.classes))
        numbers = builder.lookup(indices, table, facts, WINNER)
        row = Row(dict.fromkeys(numbers.tolist(), 1), 0.0)
        return builder.linear([row], WireEncoding(self.output_unit, 0.0, self.classes - 1.0), WINNER)

    def _all_of_some(self, builder: GraphBuilder, won: list[list[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
        """Whether all bits of a part hold, in place of these bits."""
        most = self.slots - 1
        parts = [bits[start : start + most] for bits in won for start in range(0, len(bits), most)]
        indices = self._counted(builder, parts)
        table = np.full((len(parts), 2 * self.slots), -0.5)
        for number, bits in enumerate(parts):
            table[number, len(bits)] = 0.5
        table[:, self.slots :] = -table[:, : self.slots]
        wires = iter(builder.lookup(indices, table, WireEncoding(1 / (2 * self.slots), -0.5, 0.5), WINNER).tolist())
        return [[(next(wires), 1) for _ in range(0, len(bits), most)] for bits in won]

    def _counted(self, builder: GraphBuilder, parts: Sequence[Sequence[tuple[int, int]]]) -> Indices:
        """Returns how many of the bits hold: each is 1/2 or -1/2."""
        rows = [Row(dict(bits), len(bits) / 2) for bits in parts]
        return builder.linear(rows, circle(self.slots), WINNER)


def _difference(a: Row, b: Row, lead: float) -> Row:
    weights = dict(a.weights)
    for wire, weight in b.weights.items():
        weights[wire] = weights.get(wire, 0) - weight
    return Row({wire: weight for wire, weight in weights.items() if weight}, a.constant - b.constant + lead)
