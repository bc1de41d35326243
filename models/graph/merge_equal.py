"""A pass that computes equal look-ups once.

Evaluation is deterministic: look-ups with the same input and the same table give the same words, noise included, so that m of them in a sum
bring m standard deviations of noise, not sqrt(m). Done once, with their weights added up, they cost one bootstrap, and every noise figure over
the wires of a graph is one over distinct sources. Before quantisation too, so that the weights that are quantised have been added up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.equal_sources import Sources, find_sources
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Input, Linear, Lookup, Node, Product, check, wires

# Properties of nodes: whether one is affine, how its blocks split, who reads it, whether it is an output.

# Positions that need different weights get blocks of their own, up to this many weights in a node.
MAX_WEIGHTS = 1 << 24


def affine_of(node: Node) -> tuple[Reals, Reals] | None:
    """Returns scale and offset of each element when the node is a look-up of affine steps alone."""
    if not isinstance(node, Lookup) or any(step.operator not in ("Affine", "Identity") for step in node.steps):
        return None
    scale, offset = np.ones(node.size), np.zeros(node.size)
    for step in node.steps:
        if step.operator == "Affine":
            a, b = (parameter[node.function] for parameter in step.parameters)
            scale, offset = scale * a, offset * a + b
    return scale, offset


def regroup(node: Linear, *details: Reals) -> tuple[Indices, Indices] | None:
    """Splits blocks until `details` [P, ..] are constant in each: old block and first position of each new one, new block of each position.

    None when that takes more than MAX_WEIGHTS weights.
    """
    rows = np.concatenate([node.block[:, None].astype(np.float64), *details], axis=1)
    _, first, block = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(first) * node.weights.shape[1] * node.weights.shape[2] > MAX_WEIGHTS:
        return None
    return first.astype(np.int64), block.reshape(-1).astype(np.int64)


def readers(graph: Graph, node: Node) -> list[Node]:
    """Returns nodes that read any wire of this one."""
    first, last = node.first_wire, node.first_wire + node.size
    return [other for other in graph.nodes if bool(((other.gather >= first) & (other.gather < last)).any())]


def reader_counts(graph: Graph) -> Indices:
    """Returns [nodes]: how many nodes read each, the output counting as one more."""
    owner, counts = graph.owners(), np.zeros(len(graph.nodes), dtype=np.int64)
    for gather in (*(node.gather for node in graph.nodes), graph.output):
        read = np.unique(owner[gather])
        counts[read[read >= 0]] += 1
    return counts


def is_output(graph: Graph, node: Node) -> bool:
    first, last = node.first_wire, node.first_wire + node.size
    return bool(((graph.output >= first) & (graph.output < last)).any())


# A node without the numbers that nothing reads.


def shrunk(node: Node, read: NDArray[np.bool_]) -> tuple[Node | None, Indices]:
    """Returns the node with what is read of it, and the old numbers of its wires; None when nothing is."""
    node_wires = np.arange(node.first_wire, node.first_wire + node.size, dtype=np.int64)
    if isinstance(node, Input):
        return node, node_wires
    if not bool(read.any()):
        return None, node_wires[:0]
    if isinstance(node, Product):
        return replace(node, gather=node.gather[read]), node_wires[read]
    if isinstance(node, Lookup):
        elements = read.reshape(len(node.gather), -1).any(axis=1)
        smaller = replace(node, gather=node.gather[elements], function=node.function[elements])
        return smaller, node_wires.reshape(len(node.gather), -1)[elements].reshape(-1)
    grid = read.reshape(len(node.gather), -1)
    positions, rows = grid.any(axis=1), grid.any(axis=0)
    blocks, block = np.unique(node.block[positions], return_inverse=True)
    linear = replace(
        node,
        gather=node.gather[positions],
        block=block.reshape(-1).astype(np.int64),
        weights=np.ascontiguousarray(node.weights[blocks][:, rows]),
        bias=np.ascontiguousarray(node.bias[blocks][:, rows]),
    )
    return linear, node_wires.reshape(grid.shape)[np.ix_(positions, rows)].reshape(-1)


def merge_equal(graph: Graph) -> Graph:
    """Returns the graph with equal look-ups done once and without what nothing reads then; itself when there are none.

    Args:
        graph: levelled (separate_levels), before or after quantisation.

    Raises:
        CompileError: a linear node would need more weights than are worth keeping.
    """
    while True:
        sources = find_sources(graph)
        nodes = [_read_sources(node, sources) if isinstance(node, Linear) else node for node in graph.nodes]
        if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
            return graph
        # Again: rows that read a wire once now may be equal to others.
        graph = check(_without_unread(replace(graph, nodes=tuple(nodes))))


# --- readers -----------------------------------------------------------------------------------------------------------------------


def _read_sources(node: Linear, sources: Sources) -> Linear:
    """Returns every weight on a wire as one on its source; weights on the same source are added up."""
    renamed = np.append(sources.wire, ZERO_WIRE)[node.gather]
    if not bool((renamed != node.gather).any()):
        return node
    signs = np.append(sources.sign, 1)[node.gather]
    node = _signed(replace(node, gather=renamed), signs)
    node = _added_up(node)
    pattern = _first_columns(node.gather)
    if bool(
        (pattern != np.arange(node.gather.shape[1])).any()
    ):  # positions of one block repeat wires in different places
        node = _added_up(_split(node, pattern.astype(np.float64))[0])
    used = np.flatnonzero((node.gather >= 0).any(axis=0))
    used = used if len(used) else np.zeros(1, dtype=np.int64)
    return replace(node, gather=node.gather[:, used], weights=np.ascontiguousarray(node.weights[:, :, used]))


def _signed(node: Linear, signs: Indices) -> Linear:
    if bool((signs == 1).all()):
        return node
    split, first = _split(node, signs.astype(np.float64))
    return replace(split, weights=split.weights * signs[first][:, None, :])


def _split(node: Linear, details: Reals) -> tuple[Linear, Indices]:
    """Returns blocks whose positions agree in `details` [P, K], and the first position of each."""
    groups = regroup(node, details)
    if groups is None:
        raise CompileError(
            f"linear '{node.origin}': reads equal look-ups at too many different places; remove the repeated channels from the model"
        )
    first, block = groups
    old = node.block[first]
    return replace(node, weights=node.weights[old], bias=node.bias[old], block=block), first


def _added_up(node: Linear) -> Linear:
    """Columns of a block that read the same wire at all of its positions become one."""
    gather, weights = node.gather.copy(), node.weights.copy()
    for block in range(len(weights)):
        chosen = np.flatnonzero(node.block == block)
        if not len(chosen):
            continue
        columns = gather[chosen].T
        _, first, index = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        kept = first[index.reshape(-1)]
        added = np.zeros_like(weights[block].T)
        np.add.at(added, kept, weights[block].T)
        weights[block] = added.T
        repeated = np.flatnonzero(kept != np.arange(len(kept)))
        gather[np.ix_(chosen, repeated)] = ZERO_WIRE
    return replace(node, gather=gather, weights=weights)


def _repeats(gather: Indices) -> bool:
    """Whether a position reads a wire twice."""
    ordered = np.sort(gather, axis=1)
    return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())


def _first_columns(gather: Indices) -> Indices:
    """Returns [P, K]: the first column that reads the same wire; its own for the zero wire."""
    order = np.argsort(gather, axis=1, kind="stable")
    ordered = np.take_along_axis(gather, order, axis=1)
    starts = np.ones_like(ordered, dtype=bool)
    starts[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]) | (ordered[:, 1:] < 0)
    place = np.maximum.accumulate(np.where(starts, np.arange(gather.shape[1]), 0), axis=1)
    result = np.empty_like(gather)
    np.put_along_axis(result, order, np.take_along_axis(order, place, axis=1), axis=1)
    return result


# --- what nothing reads --------------------------------------------------------------------------------------------------------------


def _without_unread(graph: Graph) -> Graph:
    """Leaves out elements of look-ups, and rows and positions of linear nodes, that nothing reads; first wires stay."""
    read = np.zeros(graph.wire_count + 1, dtype=bool)
    read[graph.output.reshape(-1)] = True
    renaming = np.full(graph.wire_count + 1, ZERO_WIRE, dtype=np.int64)
    kept: list[tuple[Node, Indices]] = []  # nodes from the last to the first, and their wires that are left
    for node in reversed(graph.nodes):
        smaller, left = shrunk(node, read[wires(node)])
        if smaller is None:
            continue
        kept.append((smaller, left))
        renaming[left] = np.arange(smaller.first_wire, smaller.first_wire + smaller.size)
        read[smaller.gather.reshape(-1)] = True
    kept.reverse()
    nodes = [node if isinstance(node, Input) else replace(node, gather=renaming[node.gather]) for node, _ in kept]
    result = replace(graph, nodes=tuple(nodes), output=renaming[graph.output])

    def moved(facts: Reals | None) -> Reals | None:
        if facts is None:
            return None
        new = np.zeros(result.wire_count)
        for node, left in kept:
            new[wires(node)] = facts[left]
        return new

    lower, upper, scale, offset = (moved(facts) for facts in (graph.lower, graph.upper, graph.scale, graph.offset))
    return replace(result, lower=lower, upper=upper, scale=scale, offset=offset)
