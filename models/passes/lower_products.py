"""Products, quotients, choices and extremes of several wires, as linear nodes and look-ups:

    x y = ((x + y)^2 - (x - y)^2) / 4      max(x, y) = y + Relu(x - y)      min(x, y) = y - Relu(y - x)
    x / y = x (1 / y)                      where(c, x, y) = y + c (x - y)

In exact programs a choice is a look-up of one number, where(c, x, y) = y + gate(x - y + g c), g being larger than any difference;
exact/exact_integers.py makes g as small as the integers allow.

Two look-ups for a product of two wires, one more for a quotient's reciprocals, one for an extreme or a gate; what is computed of the same wires
is computed once. Products of functions of one wire take one and are gone before (fuse_functions), which makes one of reciprocals and what is
before them here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup, Node, Product
from cloakwork.models.graph.steps import Step
from cloakwork.models.passes.fuse_functions import fuse_functions
from cloakwork.models.runtime.interpreter import wire_values

_GATE: Final = 2.0**20  # times the largest difference that samples show
_MOST_DIFFERENCE: Final = 2.0**20  # where there are no samples


def has_choices(graph: Graph) -> bool:
    """Whether samples have to say how far apart values are."""
    return any(isinstance(node, Product) and node.operator == "Where" for node in graph.nodes)


def lower_products(graph: Graph, gated: bool = False, samples: Reals | None = None) -> Graph:
    """Replaces products by look-ups.

    Args:
        gated: choices by gates, of exact programs, and a name of its own for the excess of an extreme, which is not rounded there.
        samples: [samples, ..] of the input, which say how large differences are.
    """
    if not any(isinstance(node, Product) for node in graph.nodes):
        return graph
    values = wire_values(graph, samples) if gated and samples is not None and has_choices(graph) else None
    lowering = _Lowering(graph, gated, values)
    for node in graph.nodes:
        lowering.add(node)
    return fuse_functions(replace(graph, nodes=tuple(lowering.nodes)))


class _Lowering:
    def __init__(self, graph: Graph, gated: bool, values: Reals | None) -> None:
        self.nodes: list[Node] = []
        self._gated, self._values = gated, values
        self._next_wire = graph.wire_count
        self._origin = ""

    def add(self, node: Node) -> None:
        """Adds products, which keep their wires: their last node is a linear one with as many."""
        if not isinstance(node, Product):
            self.nodes.append(node)
            return
        self._origin = node.origin
        operands = list(node.gather.T)
        if node.operator == "Where":
            condition, x, y = operands
            if self._gated:
                self._linear([y, self._chosen(condition, x, y)], [1.0, 1.0], node.first_wire)
                return
            squares = self._squares(condition, self._weighted([x, y], [1.0, -1.0]))
            parts, weights = [*squares, y], [0.25, -0.25, 1.0]
        elif node.operator in ("Max", "Min"):
            sign = 1.0 if node.operator == "Max" else -1.0
            x, y = operands
            difference = self._weighted([x, y], [sign, -sign])
            parts, weights = [y, self._lookup(difference, Step("Excess" if self._gated else "Relu"))], [1.0, sign]
        else:
            x, y = operands
            factor = self._reciprocals(y) if node.operator == "Div" else y
            parts, weights = list(self._squares(x, factor)), [0.25, -0.25]
        self._linear(parts, weights, node.first_wire)

    def _chosen(self, condition: Indices, x: Indices, y: Indices) -> Indices:
        """Returns x - y where the condition is 1, 0 where it is 0."""
        most = np.full(len(x), _MOST_DIFFERENCE)
        if self._values is not None:
            difference = np.abs(self._values[:, x] - self._values[:, y]).max(axis=0, initial=0.0)
            most = np.exp2(np.ceil(np.log2(np.where(difference > 0, difference, 1.0))))
        largest = float(most.max())
        shown = np.full(1, _GATE * largest)
        gate = Step("Gate", (shown, shown / 2, np.full(1, largest)))
        return self._lookup(self._weighted([x, y, condition], [1.0, -1.0, float(shown[0])]), gate)

    def _squares(self, x: Indices, y: Indices) -> tuple[Indices, Indices]:
        """Returns (x + y)^2 and (x - y)^2; equal pairs once."""
        pairs, index = np.unique(np.sort(np.stack([x, y], axis=1), axis=1), axis=0, return_inverse=True)
        index = index.reshape(-1)
        square = Step("Pow", (np.array([2.0]),))
        plus, minus = (self._lookup(self._weighted(list(pairs.T), [1.0, sign]), square) for sign in (1.0, -1.0))
        return plus[index], minus[index]

    def _reciprocals(self, x: Indices) -> Indices:
        distinct, index = np.unique(x, return_inverse=True)
        return self._lookup(distinct, Step("Reciprocal"))[index.reshape(-1)]

    def _lookup(self, x: Indices, step: Step) -> Indices:
        first = self._allocate(len(x))
        function = np.zeros(len(x), dtype=np.int64)
        self.nodes.append(Lookup(first, np.ascontiguousarray(x), (step,), function, self._origin))
        return np.arange(first, first + len(x))

    def _weighted(self, parts: list[Indices], weights: list[float]) -> Indices:
        return self._linear(parts, weights, self._allocate(len(parts[0])))

    def _linear(self, parts: list[Indices], weights: list[float], first: int) -> Indices:
        gather = np.stack(parts, axis=1)
        block = np.zeros(len(gather), dtype=np.int64)
        self.nodes.append(Linear(first, gather, block, np.array([[weights]]), np.zeros((1, 1)), self._origin))
        return np.arange(first, first + len(gather))

    def _allocate(self, count: int) -> int:
        first = self._next_wire
        self._next_wire += count
        return first
