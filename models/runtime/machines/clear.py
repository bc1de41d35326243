"""The machine on real numbers: exact arithmetic of a graph's values, no noise, no look-up resolution; and what it shares with the noisy one."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import ShapeError
from cloakwork.models.graph.functions import FUNCTIONS
from cloakwork.models.graph.ir import Graph, Input, Lookup, wires
from cloakwork.models.graph.schedule import Block, Drop, Extract, Gather, LookUp, Multiply, Operate
from cloakwork.models.graph.steps import apply_steps


class AllWires(ABC):
    """All wires of some samples in one array, in the order of the graph; what is dropped stays, for those who look at every wire."""

    def __init__(self, wires: Reals) -> None:
        """Args: wires: zeros [samples, wires + 1], or what a machine of the same graph has left; the last is the zero wire."""
        self.wires = wires

    def multiply(self, step: Multiply) -> None:
        node, bias, samples = step.node, self._bias(step), len(self.wires)
        out = np.empty((samples, len(node.gather), step.rows))
        numbers, columns = step.reads.distinct
        read = np.ascontiguousarray(
            self._read(numbers).T
        )  # [wires, samples]: a position's windows are whole lines of it
        for block in step.blocks:
            window = read[columns[block.positions].T]  # [K, p, samples]
            weights = node.weights[block.number].astype(np.float64)
            sums = weights @ window.reshape(len(window), -1)  # one matrix product, not one for each sample
            sums = sums.reshape(step.rows, -1, samples).transpose(2, 1, 0)
            out[:, block.positions] = self._weighted(step, block, sums) + bias[block.number]
        self.wires[:, wires(node)] = out.reshape(samples, -1)

    def _read(self, numbers: Indices) -> Reals:
        """Returns [samples, wires] that weights act on."""
        return self.wires[:, numbers]

    def _weighted(self, step: Multiply, block: Block, sums: Reals) -> Reals:
        """Returns sums [samples, p, R] of weights times what `_read` gave, in the machine's own numbers."""
        return sums

    @abstractmethod
    def _bias(self, step: Multiply) -> Reals:
        """Returns [G, R]"""

    def drop(self, step: Drop) -> None:  # noqa: B027 (all wires stay)
        """Does nothing."""


class Clear(AllWires):
    """Values of a graph, before quantisation or after."""

    def __init__(self, graph: Graph, samples: Reals) -> None:
        """Args: samples: [samples, numbers]."""
        super().__init__(np.zeros((len(samples), graph.wire_count + 1)))
        self._graph, self._samples = graph, samples
        self._scale = None if graph.scale is None else np.append(graph.scale, 0.0)

    def extract(self, step: Extract) -> None:
        self.wires[:, wires(step.node)] = self._samples

    def _read(self, numbers: Indices) -> Reals:
        x = self.wires[:, numbers]
        return x if self._scale is None else x * self._scale[numbers]  # phases: inputs and look-ups have offset 0

    def _weighted(self, step: Multiply, block: Block, sums: Reals) -> Reals:
        if self._scale is None:
            return sums
        values: Reals = sums / self._scale[wires(step.node)].reshape(-1, step.rows)[block.positions]
        return values

    def _bias(self, step: Multiply) -> Reals:
        return step.node.bias

    def look_up(self, step: LookUp) -> None:
        for node in step.nodes:
            y = apply_steps(node.steps, *_shifted(node, self.wires[:, node.gather]))
            low, high = value_limits(self._graph, node)
            self.wires[:, wires(node)] = np.clip(y, low, high)

    def operate(self, step: Operate) -> None:
        node = step.node
        with np.errstate(all="ignore"):
            operands = np.moveaxis(self.wires[:, node.gather], 2, 0)
            self.wires[:, wires(node)] = FUNCTIONS[node.operator](*operands)

    def output(self, reads: Gather) -> Reals:
        """Returns [samples, ..]"""
        return self.wires[:, reads.wires]


def input_rows(node: Input, x: ArrayLike) -> Reals:
    """Returns samples as [samples, wires of the input]."""
    array = np.asarray(x, dtype=np.float64)
    if array.shape[1:] != node.shape:
        expected = ["samples", *node.shape]
        raise ShapeError(
            f"input '{node.origin}': expected an array of shape {expected}, got {list(array.shape)}; samples come first"
        )
    return array.reshape(len(array), node.size)


def value_limits(graph: Graph, node: Lookup) -> tuple[Reals, Reals]:
    """Returns what the tables of a look-up can hold: half a turn of phase either way. No limit before quantisation, nor for numbers of a circle,
    whose tables may hold whole turns beside what is read of them (exact/digit_search.py)."""
    scale = None if node.is_table else graph.scale
    limit = np.full(node.size, np.inf) if scale is None else 0.5 / scale[wires(node)]
    return -limit, limit


def _shifted(node: Lookup, x: Reals) -> tuple[Reals, Indices]:
    """Returns arguments [samples, outputs] and functions [outputs] of every output."""
    if node.shifts is None:
        return x, node.function
    outputs = len(node.shifts)
    moved = np.repeat(x, outputs, axis=1) + np.tile(node.shifts, len(node.gather))
    return moved, np.repeat(node.function, outputs)
