"""Turns chains of look-ups into one: g(f(x)) is a function of x. A shared f stays for its other readers."""

from __future__ import annotations

import numpy as np

from cloakwork.models.ir import Graph, Lookup, Node, without_dead_nodes
from cloakwork.models.passes.affine import affine_of, is_output, readers


def fuse_lookups(graph: Graph) -> Graph:
    nodes: dict[int, Node] = {}
    owner = graph.owners()
    for position, node in enumerate(graph.nodes):
        nodes[position] = node
        sources = np.unique(owner[node.gather])
        if not isinstance(node, Lookup) or len(sources) != 1:
            continue
        inner = nodes.get(int(sources[0]))
        if isinstance(inner, Lookup) and not _better_apart(graph, inner, node):
            nodes[position] = _fused(inner, node)
    return without_dead_nodes(Graph(tuple(nodes.values()), graph.output, graph.client_steps))


def _better_apart(graph: Graph, inner: Lookup, outer: Lookup) -> bool:
    """An affine function of a look-up that has other readers costs nothing as a linear node, but a bootstrap when fused."""
    shared = len(readers(graph, inner)) > 1 or is_output(graph, inner)
    return shared and affine_of(outer) is not None


def _fused(inner: Lookup, outer: Lookup) -> Lookup:
    chosen = outer.gather - inner.first_wire
    pairs = np.stack([inner.function[chosen], outer.function], axis=1)
    distinct, function = np.unique(pairs, axis=0, return_inverse=True)
    steps = [step.select(distinct[:, 0]) for step in inner.steps] + [
        step.select(distinct[:, 1]) for step in outer.steps
    ]
    return Lookup(
        outer.first_wire, inner.gather[chosen], tuple(steps), function.reshape(-1).astype(np.int64), outer.origin
    )
