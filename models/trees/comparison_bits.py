"""Where the comparison bits of a program come from: the client, or look-ups on the bins that the client encrypts.

On the server one blind rotation gives every comparison on an encrypted number in [0, M): the table is +1/2 on one half of the circle and -1/2 on
the other, and the coefficient that stands for a shift by M - 1 - e gives whether the number is at most e. Features with more bins are split
into digits, the last digit being compared first: with the bits A, whether the higher digits are below the edge's, B, whether they are at most the
edge's, and C, of the digits below, the comparison holds when A + B + C >= 2.

Source: [CIM19] several results of one rotation. Ours: shifts of one table, which are other coefficients of the accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Bins, Compare, InputStep
from cloakwork.models.errors import CompileError
from cloakwork.models.trees.edges import Edges
from cloakwork.models.trees.graph_builder import Facts, GraphBuilder, Row

FEWEST_CARRY_SLOTS: Final = 4  # A + B + C is 0 .. 3


@dataclass(frozen=True, eq=False)
class Bit:
    """bit = sum of the wires' values + constant. Args: steps: of an index in the phase of a flag that is up; None: a comparison."""

    wires: tuple[int, ...]
    constant: float
    steps: int | None = None

    def weight(self, weight: int, factor: int) -> int:
        """On the wires' phases, for one on the bit. Args: factor: of comparisons."""
        return weight * factor if self.steps is None else weight // self.steps


class BitSource(Protocol):
    """How a program gets its bits."""

    @property
    def step(self) -> InputStep:
        """The client's last step before encryption."""

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        """Adds nodes; the bit of every edge."""


@dataclass(frozen=True, eq=False)
class ClientBits:
    """The client compares and encrypts each bit as 1 / units of the torus: exactly what the bins say, with hardly any noise."""

    edges: Edges
    used: Indices
    units: int
    strict: bool
    single: bool

    @property
    def step(self) -> InputStep:
        edges, used = self.edges, self.used
        return Compare(edges.feature[used], edges.threshold[used], edges.missing[used], self.strict, self.single)

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        wires = builder.input(len(self.used), Facts(1 / self.units, 0.0, 1.0), "comparisons")
        return {int(edge): Bit((int(wire),), 0.0) for edge, wire in zip(self.used, wires, strict=True)}


@dataclass(frozen=True, eq=False)
class ServerBits:
    """The client encrypts bins in digits below `radix`; the server compares. Bits are +-1/2 at 1 / 2 slots of the torus."""

    edges: Edges
    used: Indices
    slots: int
    radix: int  # a power of two, so that shifts are whole coefficients
    strict: bool
    single: bool

    def __post_init__(self) -> None:
        if self.edges.takes_missing or self.edges.missing.any():
            raise CompileError(
                "comparisons='server': bins have no place for missing values (NaN); use comparisons='client', or replace them first"
            )

    @property
    def thresholds(self) -> dict[int, Indices]:
        """The used edges of every feature, ascending."""
        features = self.edges.feature[self.used]
        return {int(f): self.used[features == f] for f in np.unique(features)}

    def _digits(self, count: int) -> int:
        """Digits that number 0 .. count edges."""
        digits = 1
        while self.radix**digits <= count:
            digits += 1
        return digits

    @property
    def step(self) -> InputStep:
        features, starts, digits, values = [], [0], [], []
        for feature, own in self.thresholds.items():
            for digit in range(self._digits(len(own))):
                features.append(feature)
                digits.append(digit)
                values.append(self.edges.threshold[own])
                starts.append(starts[-1] + len(own))
        return Bins(
            np.array(features),
            np.array(starts),
            np.concatenate(values),
            np.array(digits),
            self.radix,
            self.strict,
            self.single,
        )

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        """Level 1: every digit compared with everything; then one level for each further digit."""
        columns = [(f, digit) for f, own in self.thresholds.items() for digit in range(self._digits(len(own)))]
        radix, quarter = self.radix, 1 / (4 * self.radix)  # the client's phases stay within a quarter of the torus
        wires = builder.input(len(columns), Facts(quarter, 0.0, radix - 1.0), "bins")
        circle = Facts(2 * quarter, 0.0, 2.0 * radix - 1, (radix - 1) / 2)
        indices = builder.linear([Row({int(wire): 2}, 0.0) for wire in wires], circle, "bins")
        table = np.tile(np.repeat([0.5, -0.5], radix), (len(columns), 1))
        shifts = range(1, radix)  # shift M - 1 - e for the edges e = M - 2 .. 0
        outputs = builder.lookup(indices, table, self._bit_facts, "comparisons", list(shifts))
        compared = outputs.reshape(len(columns), radix - 1)[:, ::-1]  # [columns, e]
        at_most = dict(zip(columns, compared.tolist(), strict=True))
        state: dict[int, tuple[int | None, bool]] = {}  # edge -> wire of C, or its constant
        places = [(edge, f, rank) for f, own in self.thresholds.items() for rank, edge in enumerate(own.tolist())]
        for edge, feature, rank in places:
            state[edge] = self._lowest(at_most[feature, 0], rank % radix)
        most = max(self._digits(len(own)) for own in self.thresholds.values())
        for digit in range(1, most):
            self._carry(builder, digit, places, at_most, state)
        found = {}
        for edge, (wire, _) in state.items():
            assert wire is not None  # a rank has a digit below the largest, or a carry that the next digit decides
            found[edge] = Bit((wire,), 0.5)
        return found

    @property
    def _bit_facts(self) -> Facts:
        return Facts(1 / (2 * self.slots), -0.5, 0.5)

    def _lowest(self, at_most: list[int], digit: int) -> tuple[int | None, bool]:
        """Whether a digit is at most the edge's: always true for the largest one."""
        return (None, True) if digit == self.radix - 1 else (at_most[digit], False)

    def _carry(
        self,
        builder: GraphBuilder,
        digit: int,
        places: list[tuple[int, int, int]],
        at_most: dict[tuple[int, int], list[int]],
        state: dict[int, tuple[int | None, bool]],
    ) -> None:
        """The comparisons down to digit 0 from those below `digit`, for features that have it."""
        rows, edges = [], []
        for edge, feature, rank in places:
            if (feature, digit) not in at_most:
                continue
            own = rank // self.radix**digit % self.radix
            below = at_most[feature, digit][own - 1] if own > 0 else None  # A
            equal, _ = self._lowest(at_most[feature, digit], own)  # B
            lower = state[edge][0]  # C
            if lower is None and equal is not None:
                state[edge] = (equal, False)  # C holds, so A + B + 1 >= 2 when B does
                continue
            if lower is None:
                continue  # B and C hold
            wires = [wire for wire in (below, equal, lower) if wire is not None]
            rows.append(Row(dict.fromkeys(wires, 1), 0.5 * len(wires) + (equal is None)))
            edges.append(edge)
        if rows:
            step, turn = 1 / (2 * self.slots), 2.0 * self.slots
            facts = Facts(step, 0.0, turn - 1, (self.slots - 1) / 2)
            indices = builder.linear(rows, facts, f"digit {digit}")
            half = np.where(np.arange(self.slots) >= 2, 0.5, -0.5)
            table = np.tile(np.concatenate([half, -half]), (len(rows), 1))
            wires_out = builder.lookup(indices, table, self._bit_facts, f"digit {digit}")
            state.update({edge: (int(wire), False) for edge, wire in zip(edges, wires_out, strict=True)})
