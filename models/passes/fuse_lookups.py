"""Turns chains of look-ups into one: g(f(x)) is a function of x. A shared f stays for its other readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cloakwork.models.ir import Graph, Lookup, Node, without_dead_nodes
from cloakwork.models.passes.affine import affine_of, reader_counts

# Steps of a shared look-up that its readers repeat: without a bound a chain that is read at every link takes time in the square of its length.
MOST_SHARED_STEPS: Final = 256


def fuse_lookups(graph: Graph) -> Graph:
    owner, counts = graph.owners(), reader_counts(graph)
    before: dict[int, int] = {}  # position of a look-up -> that of the one that is fused into it
    length: dict[int, int] = {}  # steps of a look-up with those that are fused into it
    for position, node in enumerate(graph.nodes):
        if not isinstance(node, Lookup):
            continue
        length[position] = len(node.steps)
        sources = np.unique(owner[node.gather])
        inner = int(sources[0])
        if len(sources) == 1 and inner in length and not _better_apart(node, counts[inner], length[inner]):
            before[position] = inner
            length[position] += length[inner]
    nodes: dict[int, Node] = {}
    alive = {0} | set(owner[graph.output.reshape(-1)].tolist())
    for position in range(len(graph.nodes) - 1, -1, -1):
        if position not in alive:
            continue
        chain = [position]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        alive |= set(np.unique(owner[graph.nodes[chain[-1]].gather]).tolist())
        nodes[position] = _fused([graph.nodes[i] for i in reversed(chain)])
    kept = tuple(nodes[position] for position in sorted(nodes))
    return without_dead_nodes(Graph(kept, graph.output, graph.client_steps))


def _better_apart(outer: Lookup, readers: int, steps: int) -> bool:
    """An affine function of a look-up that has other readers costs nothing as a linear node, but a bootstrap when fused."""
    return readers > 1 and (steps > MOST_SHARED_STEPS or affine_of(outer) is not None)


def _fused(chain: Sequence[Node]) -> Node:
    """Look-ups of which each reads the one before; what is no chain stays as it is."""
    links = [node for node in chain if isinstance(node, Lookup)]
    if len(chain) < 2:
        return chain[0]
    element = np.arange(links[-1].size)  # of each link, behind the elements of the last one
    functions = []
    for node, inner in zip(links[::-1], links[-2::-1], strict=False):
        functions.append(node.function[element])
        element = node.gather[element] - inner.first_wire
    functions.append(links[0].function[element])
    distinct, function = np.unique(np.stack(functions[::-1], axis=1), axis=0, return_inverse=True)
    steps = [step.select(distinct[:, i]) for i, node in enumerate(links) for step in node.steps]
    last = links[-1]
    return Lookup(
        last.first_wire, links[0].gather[element], tuple(steps), function.reshape(-1).astype(np.int64), last.origin
    )
