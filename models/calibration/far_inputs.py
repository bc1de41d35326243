"""Ranges of answers for inputs far from all samples, which clients let through up to the ends of the input's range.

Terms of an answer that have to do with each other reach their ends together there: the squares of a reconstruction error do for whatever the
autoencoder has not seen, far beyond the answers to any calibration sample. Values of look-ups are those of their tables, beyond ranges too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Graph, Lookup, wires
from cloakwork.models.graph.schedule import LookUp, schedule
from cloakwork.models.graph.steps import apply_steps
from cloakwork.models.runtime.machines.clear import Clear
from cloakwork.models.runtime.machines.machine import execute_graph

_SEED: Final = 20261128
_COUNT: Final = 32  # inputs of each kind
_MIXED: Final = 200  # of each kind
_AT_ENDS: Final = 0.2  # of the numbers
_TIMES: Final = (1.5, 2.0, 4.0)  # as far from the mean as samples are


def far_answers(graph: Graph, samples: Reals | None) -> tuple[Reals, Reals]:
    """Returns least and largest values [numbers of the output]. Args: graph: with ranges, levelled; samples: [samples, ..], None: only corners."""
    machine = _Tables(graph, far_inputs(graph, samples))
    answers = execute_graph(schedule(graph), machine).reshape(-1, graph.output.size)
    return answers.min(axis=0), answers.max(axis=0)


def far_inputs(graph: Graph, samples: Reals | None) -> Reals:
    """Returns [inputs, numbers]: every number at either end of the range, by chance; samples moved away from their mean, as far as the range lets
    them."""
    assert graph.lower is not None and graph.upper is not None
    input_wires, random = wires(graph.input), np.random.default_rng(_SEED)
    low, high = graph.lower[input_wires], graph.upper[input_wires]
    inputs = [np.where(random.random((_COUNT, len(low))) < 0.5, low, high)]
    if samples is not None:
        rows = samples.reshape(len(samples), -1)
        middle = rows.mean(axis=0)
        for times in _TIMES:
            chosen = rows[random.permutation(len(rows))[:_COUNT]]
            inputs.append(np.clip(middle + times * (chosen - middle), low, high))
    return np.concatenate(inputs)


def mixed_inputs(samples: Reals) -> Reals:
    """Returns [inputs, ..]: numbers of several samples together; and samples with some numbers at either end of what that number has. Each number
    is one of the samples', and what they are together is unlike any."""
    random = np.random.default_rng(_SEED)
    rows = samples[random.permutation(len(samples))[:_MIXED]]
    ends = np.where(random.random(rows.shape) < 0.5, samples.min(axis=0), samples.max(axis=0))
    moved = np.where(random.random(rows.shape) < _AT_ENDS, ends, rows)
    return np.concatenate([random.permuted(rows, axis=0), moved])


class _Tables(Clear):
    """Values of a graph with ranges as its tables have them: a table holds its range and continues with the opposite sign, about the middle of the
    values at both ends (passes/equalise_lookups.py)."""

    def look_up(self, step: LookUp) -> None:
        for node in step.nodes:
            self.wires[:, wires(node)] = _read(self._graph, node, self.wires[:, node.gather])


def _read(graph: Graph, node: Lookup, x: Reals) -> Reals:
    """Returns [inputs, look-ups]"""
    assert graph.lower is not None and graph.upper is not None and node.shifts is None
    low, high = (np.append(ends, 0.0)[node.gather] for ends in (graph.lower, graph.upper))
    middle, width = (low + high) / 2, np.where(high > low, high - low, 1.0)
    turns = (x - middle) / (2 * width)
    turns -= np.rint(turns)
    beyond = np.abs(turns) > 0.25
    turns -= np.where(beyond, np.sign(turns) / 2, 0.0)
    inside = np.clip(middle + 2 * width * turns, low, high)
    values, first, last = (_values(node, each) for each in (inside, low[None], high[None]))
    return np.asarray(np.where(beyond, first + last - values, values))


def _values(node: Lookup, x: Reals) -> Reals:
    function: Indices = node.function
    return np.asarray(apply_steps(node.steps, x, function))
