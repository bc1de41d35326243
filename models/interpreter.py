"""The clear interpreter of a graph: the oracle of the compiler. Exact arithmetic of the graph's numbers, no noise, no look-up resolution."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.errors import ShapeError
from cloakwork.models.functions import FUNCTIONS
from cloakwork.models.ir import Graph, Indices, Input, Linear, Lookup, Product, Reals, wires
from cloakwork.models.steps import apply_steps

_WORKING_BYTES = 1 << 28


def interpret(graph: Graph, x: ArrayLike) -> Reals:
    """Values of the output [samples, ..] for inputs [samples, ..], before the client's steps."""
    samples, size = np.asarray(x, dtype=np.float64), samples_at_once(graph)
    wanted = graph.output.reshape(-1)
    parts = [wire_values(graph, samples[i : i + size])[:, wanted] for i in range(0, max(1, len(samples)), size)]
    values: Reals = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return values.reshape((len(values), *graph.output.shape))


def samples_at_once(graph: Graph) -> int:
    """Samples whose values, and the values gathered for any linear node, stay within some 256 MiB."""
    gathered = max((int(np.bincount(node.block).max()) * node.gather.shape[1] for node in graph.linears), default=0)
    return max(1, min(1000, _WORKING_BYTES // (8 * max(gathered, graph.wire_count))))


def wire_values(graph: Graph, x: ArrayLike) -> Reals:
    """Values of every wire [samples, wires + 1]; the last one is the zero wire."""
    samples = input_rows(graph.input, x)
    values = np.zeros((len(samples), graph.wire_count + 1))
    for node in graph.nodes:
        if isinstance(node, Input):
            values[:, wires(node)] = samples
        elif isinstance(node, Linear):
            values[:, wires(node)] = _linear(graph, node, values)
        elif isinstance(node, Product):
            with np.errstate(all="ignore"):
                values[:, wires(node)] = FUNCTIONS[node.operator](*np.moveaxis(values[:, node.gather], 2, 0))
        else:
            y = apply_steps(node.steps, *_shifted(node, values[:, node.gather]))
            low, high = value_limits(graph, node)
            values[:, wires(node)] = np.clip(y, low, high)
    return values


def input_rows(node: Input, x: ArrayLike) -> Reals:
    """Samples as [samples, wires of the input]."""
    array = np.asarray(x, dtype=np.float64)
    if array.shape[1:] != node.shape:
        expected = ["samples", *node.shape]
        raise ShapeError(
            f"input '{node.origin}': expected an array of shape {expected}, got {list(array.shape)}; samples come first"
        )
    return array.reshape(len(array), node.size)


def value_limits(graph: Graph, node: Lookup) -> tuple[Reals, Reals]:
    """What the tables of a look-up can hold: half a turn of phase either way; no limit before quantisation."""
    limit = np.full(node.size, np.inf) if graph.scale is None else 0.5 / graph.scale[wires(node)]
    return -limit, limit


def _shifted(node: Lookup, x: Reals) -> tuple[Reals, Indices]:
    """Arguments [samples, outputs] and functions [outputs] of every output."""
    if node.shifts is None:
        return x, node.function
    outputs = len(node.shifts)
    moved = np.repeat(x, outputs, axis=1) + np.tile(node.shifts, len(node.gather))
    return moved, np.repeat(node.function, outputs)


def _linear(graph: Graph, node: Linear, values: Reals) -> Reals:
    positions, _ = node.gather.shape
    rows = node.weights.shape[1]
    out = np.empty((len(values), positions, rows))
    for block in range(len(node.weights)):
        chosen = np.flatnonzero(node.block == block)
        x = values[:, node.gather[chosen]]
        if graph.scale is not None:
            x = x * np.append(graph.scale, 0.0)[node.gather[chosen]]  # phases: inputs and look-ups have offset 0
        y = x.reshape(-1, x.shape[2]) @ node.weights[block].T.astype(np.float64)
        y = y.reshape(len(values), len(chosen), rows)
        if graph.scale is not None:
            y = y / graph.scale[wires(node)].reshape(positions, rows)[chosen]
        out[:, chosen] = y + node.bias[block]
    return out.reshape(len(values), -1)
