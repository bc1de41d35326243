"""Makes linear nodes and look-ups alternate, as the engine runs them.

A linear node on linear nodes is composed with them (the tree of a max-pool on a convolution) where the wider rows cost less than bootstraps;
elsewhere a look-up of the identity goes between, which also refreshes the noise. A look-up that reads no linear node gets one of width 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import (
    ZERO_WIRE,
    Graph,
    Linear,
    Lookup,
    Node,
    check_levelled,
    identity_renaming,
    wire_numbers,
    wires,
    without_dead_nodes,
)
from cloakwork.models.graph.merge_equal import shrunk
from cloakwork.models.passes.compose_windows import composed_windows, is_dense, rows_together

# One linear node for a chain of them: rows of the later on rows of the earlier, every wire once in a row.


def composed(node: Linear, sources: list[Linear]) -> tuple[Linear, Indices]:
    """Returns node after sources, and the wire (from the node's first) that each of its rows has in the result.

    Rows that read the same wires become rows of one position, as those of a convolution are.
    """
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
    names, sums = _merged(np.concatenate(wider, axis=1), np.concatenate(factors, axis=1))
    return _grouped(node, names, sums, bias)


def _merged(gather: Indices, weights: Reals) -> tuple[Indices, Reals]:
    """Returns every wire at most once in a row, in ascending order, weights added; zeros last, rows as wide as the widest."""
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
    return _compact(names, np.where(names >= 0, sums, 0.0), names >= 0)


def _compact(names: Indices, sums: Reals, used: np.ndarray) -> tuple[Indices, Reals]:
    """Returns used columns of every row first. Args: sums [rows, K] or [rows, R, K]."""
    width = max(1, int(used.sum(axis=1).max()))
    order = np.argsort(~used, axis=1, kind="stable")[:, :width]
    kept = np.take_along_axis(used, order, axis=1)
    names = np.where(kept, np.take_along_axis(names, order, axis=1), ZERO_WIRE)
    if sums.ndim == 3:
        order, kept = order[:, None, :], kept[:, None, :]
    return names, np.where(kept, np.take_along_axis(sums, order, axis=-1), 0.0)


def _grouped(node: Linear, names: Indices, sums: Reals, bias: Reals) -> tuple[Linear, Indices]:
    """Returns positions of as many rows as read the same wires; of one row when that differs."""
    windows, group = np.unique(names, axis=0, return_inverse=True)
    group = group.reshape(-1)
    counts = np.bincount(group, minlength=len(windows))
    place = np.arange(len(names), dtype=np.int64)
    if len(windows) < len(names) and int(counts.min()) == int(counts.max()):
        order = np.argsort(group, kind="stable")
        place[order] = np.arange(len(names))
        names = windows
        sums, bias = sums[order].reshape(len(windows), -1, sums.shape[1]), bias[order].reshape(len(windows), -1)
    else:
        sums, bias = sums[:, None, :], bias[:, None]
    names, sums = _compact(names, sums, (names >= 0) & (sums != 0).any(axis=1))
    flat = np.concatenate([sums.reshape(len(sums), -1), bias], axis=1)
    _, first, block = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    result = replace(
        node,
        gather=names,
        block=block.reshape(-1).astype(np.int64),
        weights=np.ascontiguousarray(sums[first]),
        bias=np.ascontiguousarray(bias[first]),
    )
    return result, place


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


# Gives the output linear rows of its own where look-ups read its rows too: a hidden layer that is also an output, say.
#
# The client decrypts phases up to 3/8 of the torus, a look-up reads them up to 1/4, and the noise that comes after each is another: a row cannot have
# the scale of both. Doing it twice takes multiplications and no bootstrap.


def separate_outputs(graph: Graph) -> Graph:
    """Separates outputs from what else reads them. Args: graph: levelled (separate_levels)."""
    of_output, of_lookups = (np.zeros(graph.wire_count + 1, dtype=bool) for _ in range(2))
    of_output[graph.output.reshape(-1)] = True
    for lookup in graph.lookups:
        of_lookups[lookup.gather] = True
    next_wire, moved, copies = graph.wire_count, identity_renaming(graph), list[Node]()
    for node in graph.linears:
        node_wires = wires(node)
        if not (of_output[node_wires].any() and of_lookups[node_wires].any()):
            continue
        copy, old = shrunk(node, of_output[node_wires])
        assert isinstance(copy, Linear)
        moved[old] = np.arange(next_wire, next_wire + copy.size)
        copies.append(replace(copy, first_wire=next_wire))
        next_wire += copy.size
    if not copies:
        return graph
    return check_levelled(replace(graph, nodes=(*graph.nodes, *copies), output=moved[graph.output]))
