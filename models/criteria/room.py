"""The last check of a program, whatever its options: what a look-up reads fits its table, and answers have room for their range."""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import PrecisionOverflowError
from cloakwork.models.graph.ir import Graph, Linear, wires

_TABLE: Final = 0.25  # of the torus, from the middle of a row's range either way: what a table holds
_ANSWER: Final = 1.0  # of the torus, the whole of an answer's range; clients of trees read it from 0 on
_SLACK: Final = 1e-6  # for rounding


def check_room(graph: Graph) -> None:
    """Raises PrecisionOverflowError: names the layer of a value that wraps for certain, its range and what fits. Args: graph: quantised."""
    assert graph.lower is not None and graph.upper is not None and graph.scale is not None and graph.offset is not None
    middle_out = np.maximum(graph.upper - graph.offset, graph.offset - graph.lower) * graph.scale
    of_tables, of_answers = middle_out / _TABLE, (graph.upper - graph.lower) * graph.scale / _ANSWER
    fullness = np.maximum(np.where(_looked_up(graph), of_tables, 0.0), np.where(_answered(graph), of_answers, 0.0))
    for node in graph.nodes:
        node_wires = wires(node)
        if not isinstance(node, Linear) or float(fullness[node_wires].max()) <= 1 + _SLACK:
            continue
        worst = node.first_wire + int(np.argmax(fullness[node_wires]))
        raise PrecisionOverflowError(
            f"layer '{node.origin}': its range of {graph.lower[worst]:.4g} to {graph.upper[worst]:.4g} is {fullness[worst]:.2f} times what "
            f"{'a table' if of_tables[worst] == fullness[worst] else 'an answer'} holds at its scale, and values would come back on the other "
            "side; use a wider parameter set, or more typical samples"
        )


def _looked_up(graph: Graph) -> Reals:
    """Returns [wires]: whether a look-up reads it; not those of a whole circle."""
    read = np.zeros(graph.wire_count + 1, dtype=bool)
    for lookup in graph.lookups:
        read[lookup.gather] |= not lookup.is_table
    return np.asarray(read[:-1])


def _answered(graph: Graph) -> Reals:
    """Returns [wires]: whether the client decrypts it."""
    read = np.zeros(graph.wire_count + 1, dtype=bool)
    read[graph.output.reshape(-1)] = True
    return np.asarray(read[:-1])
