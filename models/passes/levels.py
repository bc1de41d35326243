"""Groups the graph into levels: linear nodes, then look-ups that run in one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloakwork.models.ir import Graph, Linear, Lookup, wires


@dataclass(frozen=True, eq=False)
class Level:
    linears: tuple[Linear, ...]
    lookups: tuple[Lookup, ...]

    @property
    def bootstraps(self) -> int:
        return sum(node.bootstraps for node in self.lookups)


def levels(graph: Graph) -> tuple[Level, ...]:
    """As early as possible; the last level has no look-ups when the output is linear, as it always is."""
    depth = np.zeros(graph.wire_count + 1, dtype=np.int64)  # look-ups behind a wire
    linears: dict[int, list[Linear]] = {}
    lookups: dict[int, list[Lookup]] = {}
    for node in graph.nodes[1:]:
        behind = int(depth[node.gather].max())
        if isinstance(node, Linear):
            linears.setdefault(behind, []).append(node)
            depth[wires(node)] = behind
        elif isinstance(node, Lookup):
            lookups.setdefault(behind, []).append(node)
            depth[wires(node)] = behind + 1
    count = max(linears) + 1
    return tuple(Level(tuple(linears.get(i, ())), tuple(lookups.get(i, ()))) for i in range(count))
