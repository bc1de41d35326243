"""The clear interpreter of a graph, the oracle of the compiler: its schedule on real numbers (models/runtime/machines/clear.py)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.arrays import Reals
from cloakwork.models.graph.ir import Graph
from cloakwork.models.graph.schedule import Schedule, schedule
from cloakwork.models.runtime.machines.clear import Clear, input_rows
from cloakwork.models.runtime.machines.machine import execute_graph

_WORKING_BYTES: Final = 1 << 26  # memory that is used again costs less than more of it at once


def interpret(graph: Graph, x: ArrayLike) -> Reals:
    """Returns values of the output [samples, ..] for inputs [samples, ..], before the client's steps."""
    samples, size, steps = np.asarray(x, dtype=np.float64), samples_at_once(graph), schedule(graph)
    parts = [_run(graph, steps, samples[i : i + size])[0] for i in range(0, max(1, len(samples)), size)]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def wire_values(graph: Graph, x: ArrayLike) -> Reals:
    """Returns values of every wire [samples, wires + 1]; the last one is the zero wire."""
    return _run(graph, schedule(graph), x)[1]


def samples_at_once(graph: Graph) -> int:
    """Returns samples whose values, and the values gathered for any linear node, stay within some 64 MiB."""
    gathered = max((int(np.bincount(node.block).max()) * node.gather.shape[1] for node in graph.linears), default=0)
    return max(1, min(1000, _WORKING_BYTES // (8 * max(gathered, graph.wire_count))))


def _run(graph: Graph, steps: Schedule, x: ArrayLike) -> tuple[Reals, Reals]:
    """Returns values of the output, and of every wire."""
    machine = Clear(graph, input_rows(graph.input, x))
    return execute_graph(steps, machine), machine.wires
