"""Puts a quantised graph together from rows of integer weights and tables of 2M entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Input, Linear, Lookup, Node, check_levelled
from cloakwork.models.graph.steps import Step


@dataclass(frozen=True)
class Row:
    """value = constant + sum of weight * value of a wire, where phases add up with integer weights."""

    weights: dict[int, int]  # wire -> weight on its phase; numbers below 0 stand for the zero wire
    constant: float


@dataclass(frozen=True, eq=False)
class WireEncoding:
    """The encoding of wires: phase = (value - offset) * scale; numbers, or one for each wire."""

    scale: ArrayLike
    lower: ArrayLike
    upper: ArrayLike
    offset: ArrayLike = 0.0


@dataclass
class GraphBuilder:
    """Wires are numbered in the order of the calls."""

    nodes: list[Node] = field(default_factory=list)
    facts: list[Reals] = field(default_factory=list)  # [4, wires] of each node: lower, upper, scale, offset
    wire_count: int = 0

    def input(self, count: int, facts: WireEncoding, origin: str) -> Indices:
        return self._append(Input(0, (count,), origin), facts)

    def linear(self, rows: Sequence[Row], facts: WireEncoding, origin: str) -> Indices:
        """Returns a position for each row; equal rows share a block."""
        width = max(1, max(len(row.weights) for row in rows))
        gather = np.full((len(rows), width), ZERO_WIRE, dtype=np.int64)
        weights = np.zeros((len(rows), width + 3))
        for position, row in enumerate(rows):
            ordered = sorted(row.weights.items(), key=lambda pair: pair[1])  # so that equal rows are found
            for column, (wire, weight) in enumerate(ordered):
                gather[position, column], weights[position, column] = max(wire, ZERO_WIRE), weight
            weights[position, -3] = row.constant
        for column, fact in ((-2, facts.scale), (-1, facts.offset)):  # of a block the same
            weights[:, column] = np.broadcast_to(np.asarray(fact, dtype=np.float64), len(rows))
        distinct, block = np.unique(weights, axis=0, return_inverse=True)
        integers = np.ascontiguousarray(np.rint(distinct[:, None, :-3]).astype(np.int64))
        bias = np.ascontiguousarray(distinct[:, -3:-2])
        return self._append(Linear(self.wire_count, gather, _flat(block), integers, bias, origin), facts)

    def sums(
        self, gather: Sequence[Sequence[int]], weights: Sequence[int], constant: float, facts: WireEncoding, origin: str
    ) -> Indices:
        """Returns a position for each row of wires, all under one block of weights; ZERO_WIRE where a row has nothing to weigh."""
        wires, block = np.array(gather, dtype=np.int64), np.zeros(len(gather), dtype=np.int64)
        integers = np.array([[weights]], dtype=np.int64)
        return self._append(Linear(self.wire_count, wires, block, integers, np.array([[constant]]), origin), facts)

    def lookup(
        self, gather: Indices, tables: Reals, facts: WireEncoding, origin: str, shifts: Sequence[int] | None = None
    ) -> Indices:
        """Returns one table [2M] for each gathered wire; equal ones are kept once."""
        distinct, function = np.unique(tables, axis=0, return_inverse=True)
        chosen = None if shifts is None else np.array(shifts, dtype=np.int64)
        node = Lookup(self.wire_count, gather, (Step("Table", (distinct,)),), _flat(function), origin, chosen)
        return self._append(node, facts)

    def search(self, gather: Indices, tables: Reals, tolerance: float, facts: WireEncoding, origin: str) -> Indices:
        """Returns one table [2M] for each gathered wire, of which entries that many slots away are right as well."""
        distinct, function = np.unique(tables, axis=0, return_inverse=True)
        step = Step("Search", (distinct, np.full(len(distinct), tolerance)))
        return self._append(Lookup(self.wire_count, gather, (step,), _flat(function), origin), facts)

    def add(self, node: Node, facts: WireEncoding) -> Indices:
        """Returns a node as it is, at wires of its own; it reads wires that are there."""
        return self._append(replace(node, first_wire=self.wire_count), facts)

    def graph(self, output: Indices) -> Graph:
        lower, upper, scale, offset = np.concatenate(self.facts, axis=1)
        return check_levelled(Graph(tuple(self.nodes), output, lower=lower, upper=upper, scale=scale, offset=offset))

    def _append(self, node: Node, facts: WireEncoding) -> Indices:
        first, count = self.wire_count, node.size
        self.nodes.append(node)
        parts = (facts.lower, facts.upper, facts.scale, facts.offset)
        self.facts.append(np.stack([np.broadcast_to(np.asarray(part, dtype=np.float64), count) for part in parts]))
        self.wire_count += count
        return np.arange(first, first + count, dtype=np.int64)


def _flat(index: Indices) -> Indices:
    return index.reshape(-1).astype(np.int64)
