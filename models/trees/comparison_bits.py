"""Sources of a program's comparison bits: the client (here), or look-ups (grid_bits.py, position_bits.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Compare, InputStep
from cloakwork.models.graph.graph_builder import GraphBuilder, WireEncoding
from cloakwork.models.trees.edges import Edges


@dataclass(frozen=True, eq=False)
class Bit:
    """bit = sum of the wires' values + constant + always.

    Args:
        wires: of the graph; others than these (below 0) are zero and keep their place among the weights.
        steps: of an index in the phase of a flag that is up; None: a comparison.
        always: that tables are turned by, so that rows do not show it.
    """

    wires: tuple[int, ...]
    constant: float
    steps: int | None = None
    always: int = 0

    def weight(self, weight: int, factor: int) -> int:
        """Returns the weight on the wires' phases, for one on the bit. Args: factor: of comparisons."""
        return weight * factor if self.steps is None else weight // self.steps


class BitSource(Protocol):
    """A source of a program's bits."""

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
        wires = builder.input(len(self.used), WireEncoding(1 / self.units, 0.0, 1.0), "comparisons")
        return {int(edge): Bit((int(wire),), 0.0) for edge, wire in zip(self.used, wires, strict=True)}
