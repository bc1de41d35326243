"""Gives the output linear rows of its own where look-ups read its rows too: a hidden layer that is also an output, say.

The client decrypts phases up to 3/8 of the torus, a look-up reads them up to 1/4, and the noise that comes after each is another: a row cannot have
the scale of both. Doing it twice takes multiplications and no bootstrap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.graph.ir import Graph, Linear, Node, check_levelled, identity_renaming, wires
from cloakwork.models.graph.shrink import shrunk


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
