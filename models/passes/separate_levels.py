"""Makes linear nodes and look-ups alternate, as the engine runs them.

A linear node on linear nodes is composed with them (the tree of a max-pool on a convolution) where the wider rows cost less than bootstraps;
elsewhere a look-up of the identity goes between, which also refreshes the noise. A look-up that reads no linear node gets one of width 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.ir import (
    ZERO_WIRE,
    Graph,
    Linear,
    Lookup,
    Node,
    check_levelled,
    wire_numbers,
    without_dead_nodes,
)
from cloakwork.models.passes.compose import composed
from cloakwork.models.passes.compose_windows import composed_windows
from cloakwork.models.passes.rows_together import is_dense, rows_together

COMPOSED_WIDTH = 32  # rows up to this width are always composed
# Weights of the wider rows that are worth one bootstrap: on the CPU a bootstrap takes as long as 2,000 to 4,000 multiplications of a
# ciphertext, on the GPU as many more, and one that only refreshes a value brings it noise.
WEIGHTS_PER_BOOTSTRAP = 4096


def separate_levels(graph: Graph) -> Graph:
    builder = _Builder(graph)
    for node in graph.nodes[1:]:
        if isinstance(node, Linear):
            builder.add_linear(node)
        elif isinstance(node, Lookup):
            gather = builder.from_linears(builder.moved(node.gather), node.origin)
            builder.append(replace(node, gather=gather))
    output = builder.from_linears(builder.moved(graph.output.reshape(-1)), "output").reshape(graph.output.shape)
    return check_levelled(without_dead_nodes(replace(graph, nodes=tuple(builder.nodes), output=output)))


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = [graph.input]
        self._next_wire = graph.wire_count
        self._owner = np.full(
            graph.wire_count + 1, -1, dtype=np.int64
        )  # linear node of each wire; the last entry is the zero wire's
        self._moved = np.arange(graph.wire_count + 1, dtype=np.int64)  # old wire -> wire of the result
        self._moved[-1] = ZERO_WIRE
        self._refreshed: dict[int, int] = {}  # first wire of a linear node -> first wire of its refreshed copy

    def moved(self, gather: Indices) -> Indices:
        return self._moved[gather]

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        if isinstance(node, Linear):
            end = node.first_wire + node.size
            if end >= len(self._owner):
                grown = np.full(2 * end + 1, -1, dtype=np.int64)
                grown[: len(self._owner)] = self._owner
                self._owner = grown
            self._owner[node.first_wire : end] = len(self.nodes) - 1

    def add_linear(self, node: Linear) -> None:
        node = replace(node, gather=self.moved(node.gather))
        sources = self._linears(node.gather)
        if sources:
            composition = _on_sources(node, sources)
            if composition is not None:
                self._append_moved(node, *composition)
                return
        gather = node.gather
        for source in sources:
            inside = (gather >= source.first_wire) & (gather < source.first_wire + source.size)
            gather = np.where(inside, gather - source.first_wire + self._refresh(source), gather)
        node = replace(node, gather=gather)
        ordered = np.sort(node.gather, axis=1)
        if bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()):
            self._append_moved(
                node, *composed(node, [])
            )  # a wire twice in a row: its noise adds up, so its weights must
            return
        self.append(node)

    def _append_moved(self, node: Linear, result: Linear, place: Indices) -> None:
        """Args: place: the wire (from the node's first) that each of its rows has in the result."""
        self._moved[node.first_wire : node.first_wire + node.size] = node.first_wire + place
        self.append(result)

    def from_linears(self, gather: Indices, origin: str) -> Indices:
        """Returns the same values from wires of linear nodes."""
        other = self._owner[gather] < 0
        if not other.any():
            return gather
        wires, index = np.unique(gather[other], return_inverse=True)
        copy = Linear(
            self._allocate(len(wires)),
            wires[:, None],
            np.zeros(len(wires), dtype=np.int64),
            np.ones((1, 1, 1)),
            np.zeros((1, 1)),
            origin,
        )
        self.append(copy)
        result = gather.copy()
        result[other] = wire_numbers(copy)[index.reshape(-1)]
        return result

    def _allocate(self, count: int) -> int:
        first = self._next_wire
        self._next_wire += count
        return first

    def _linears(self, gather: Indices) -> list[Linear]:
        nodes = [self.nodes[i] for i in np.unique(self._owner[gather]).tolist() if i >= 0]
        return [node for node in nodes if isinstance(node, Linear)]

    def _refresh(self, source: Linear) -> int:
        if source.first_wire not in self._refreshed:
            first = self._allocate(source.size)
            self.append(Lookup(first, wire_numbers(source), (), np.zeros(source.size, dtype=np.int64), source.origin))
            self._refreshed[source.first_wire] = first
        return self._refreshed[source.first_wire]


def _on_sources(node: Linear, sources: list[Linear]) -> tuple[Linear, Indices] | None:
    """Returns the node on what its sources read, and the wire (from the node's first) that each of its rows has there; None where bootstraps cost
    less."""
    most = WEIGHTS_PER_BOOTSTRAP * _refreshed(node, sources)
    together = rows_together(node, sources)
    if together is not None:
        wide, place = together
        whole = composed_windows(wide, sources, most)
        if whole is not None and is_dense(whole):
            return whole, place
    if _is_narrow(node, sources):
        return composed(node, sources)
    whole = composed_windows(node, sources, most)
    return None if whole is None else (whole, np.arange(node.size))


def _is_narrow(node: Linear, sources: list[Linear]) -> bool:
    widest = max(int(source.weights.shape[2]) for source in sources)
    return widest * int(node.weights.shape[2]) <= COMPOSED_WIDTH


def _refreshed(node: Linear, sources: list[Linear]) -> int:
    """Bootstraps that refresh what the node reads, when it is not composed."""
    read = np.unique(node.gather)
    return sum(int(((read >= s.first_wire) & (read < s.first_wire + s.size)).sum()) for s in sources)
