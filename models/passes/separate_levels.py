"""Makes linear nodes and look-ups alternate, as the engine runs them.

A linear node on narrow linear nodes is composed with them (the tree of a max-pool); wide ones get a look-up of the identity between, which
also refreshes the noise. A look-up that reads no linear node gets one of width 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.ir import (
    ZERO_WIRE,
    Graph,
    Indices,
    Linear,
    Lookup,
    Node,
    Reals,
    check_levelled,
    wire_numbers,
    without_dead_nodes,
)

COMPOSED_WIDTH = 32  # widest row that composition makes


def separate_levels(graph: Graph) -> Graph:
    builder = _Builder(graph)
    for node in graph.nodes[1:]:
        if isinstance(node, Linear):
            builder.add_linear(node)
        elif isinstance(node, Lookup):
            gather = builder.from_linears(node.gather, node.origin)
            builder.append(replace(node, gather=gather))
    output = builder.from_linears(graph.output.reshape(-1), "output").reshape(graph.output.shape)
    return check_levelled(without_dead_nodes(replace(graph, nodes=tuple(builder.nodes), output=output)))


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = [graph.input]
        self._next_wire = graph.wire_count
        self._linear_of_wire: dict[int, Linear] = {}
        self._refreshed: dict[int, int] = {}  # first wire of a linear node -> first wire of its refreshed copy

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        if isinstance(node, Linear):
            self._linear_of_wire.update(dict.fromkeys(range(node.first_wire, node.first_wire + node.size), node))

    def add_linear(self, node: Linear) -> None:
        sources = self._linears(node.gather)
        widths = [source.weights.shape[2] for source in sources]
        if sources and max(widths) * node.weights.shape[2] <= COMPOSED_WIDTH:
            self.append(_composed(node, sources))
            return
        gather = node.gather
        for source in sources:
            inside = (gather >= source.first_wire) & (gather < source.first_wire + source.size)
            gather = np.where(inside, gather - source.first_wire + self._refresh(source), gather)
        node = replace(node, gather=gather)
        ordered = np.sort(node.gather, axis=1)
        if bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()):
            node = _composed(node, [])  # a wire twice in a row: its noise adds up, so its weights must
        self.append(node)

    def from_linears(self, gather: Indices, origin: str) -> Indices:
        """The same values from wires of linear nodes."""
        other = np.array([int(wire) not in self._linear_of_wire for wire in gather])
        if not other.any():
            return gather
        count = int(other.sum())
        copy = Linear(
            self._allocate(count),
            gather[other][:, None],
            np.zeros(count, dtype=np.int64),
            np.ones((1, 1, 1)),
            np.zeros((1, 1)),
            origin,
        )
        self.append(copy)
        result = gather.copy()
        result[other] = wire_numbers(copy)
        return result

    def _allocate(self, count: int) -> int:
        first = self._next_wire
        self._next_wire += count
        return first

    def _linears(self, gather: Indices) -> list[Linear]:
        found = {}
        for wire in np.unique(gather):
            node = self._linear_of_wire.get(int(wire))
            if node is not None:
                found[node.first_wire] = node
        return list(found.values())

    def _refresh(self, source: Linear) -> int:
        if source.first_wire not in self._refreshed:
            first = self._allocate(source.size)
            self.append(Lookup(first, wire_numbers(source), (), np.zeros(source.size, dtype=np.int64), source.origin))
            self._refreshed[source.first_wire] = first
        return self._refreshed[source.first_wire]


def _composed(node: Linear, sources: list[Linear]) -> Linear:
    """node after sources as rows of their own, every wire once in a row."""
    rows = node.weights.shape[1]
    gather = np.repeat(node.gather, rows, axis=0)  # [P R, K]
    weights = node.weights[node.block].reshape(-1, node.weights.shape[2]).copy()
    bias = node.bias[node.block].reshape(-1).copy()
    wider = [gather]
    factors = [weights]
    for source in sources:
        inside = (gather >= source.first_wire) & (gather < source.first_wire + source.size)
        local = np.where(inside, gather - source.first_wire, 0)
        position, row = np.divmod(local, source.weights.shape[1])
        block = source.block[position]
        share = np.where(inside, weights, 0.0)
        bias += (share * source.bias[block, row]).sum(axis=1)
        expanded = np.where(inside[..., None], source.gather[position], ZERO_WIRE)
        wider.append(expanded.reshape(len(gather), -1))
        factors.append((share[..., None] * source.weights[block, row]).reshape(len(gather), -1))
        weights = np.where(inside, 0.0, weights)
        gather = np.where(inside, ZERO_WIRE, gather)
        wider[0], factors[0] = gather, weights
    merged_gather, merged_weights = _merged(np.concatenate(wider, axis=1), np.concatenate(factors, axis=1))
    distinct, block = np.unique(np.column_stack([merged_weights, bias]), axis=0, return_inverse=True)
    return Linear(
        node.first_wire,
        merged_gather,
        block.reshape(-1).astype(np.int64),
        np.ascontiguousarray(distinct[:, None, :-1]),
        np.ascontiguousarray(distinct[:, -1:]),
        node.origin,
    )


def _merged(gather: Indices, weights: Reals) -> tuple[Indices, Reals]:
    """Every wire at most once in a row, weights added, zeros left out, rows as wide as the widest."""
    order = np.argsort(gather, axis=1, kind="stable")
    gather, weights = np.take_along_axis(gather, order, axis=1), np.take_along_axis(weights, order, axis=1)
    fresh = np.ones(gather.shape, dtype=bool)
    fresh[:, 1:] = gather[:, 1:] != gather[:, :-1]
    slot = np.cumsum(fresh, axis=1) - 1
    line = np.broadcast_to(np.arange(len(gather))[:, None], gather.shape)
    sums = np.zeros(gather.shape)
    np.add.at(sums, (line, slot), weights)
    names = np.full(gather.shape, ZERO_WIRE, dtype=np.int64)
    names[line, slot] = gather
    used = (names >= 0) & (sums != 0)
    compact = np.argsort(~used, axis=1, kind="stable")[:, : max(1, int(used.sum(axis=1).max()))]
    used = np.take_along_axis(used, compact, axis=1)
    return (
        np.where(used, np.take_along_axis(names, compact, axis=1), ZERO_WIRE),
        np.where(used, np.take_along_axis(sums, compact, axis=1), 0.0),
    )
