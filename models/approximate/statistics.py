"""Statistics of a graph on typical inputs, beyond its ranges: moments of linear nodes' inputs, and the effect of each wire on the output.

The quantiser weighs errors by them: an error e of wire w changes the output by about sensitivity[w] e (root mean square over outputs and
samples), which is what a backward pass with random signs at the output estimates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.approximate.integer_rows import Compensation, compensated
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup, places, wires
from cloakwork.models.graph.steps import apply_steps
from cloakwork.models.runtime.interpreter import wire_values

_SEED = 20261122
_MOST_NUMBERS = 1 << 24  # samples times wires that are kept
_MOST_SAMPLES = 512
_MOST_READ = 8192  # values of a column, over samples and positions
_BACKWARD_SAMPLES = 32
_PROBES = 4
_REACH = 0.02  # of a look-up's range: over how much its slope is taken; noise sees no finer one
_FLOOR = 1e-3  # of the median sensitivity of a node: what the samples did not show to matter matters a little


@dataclass(frozen=True, eq=False)
class Together:
    """Blocks of a node that are rounded in one go because their positions read the same; the blocks of an entry have the same weights."""

    blocks: tuple[Indices, ...]
    compensation: Compensation | None


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of a bounded graph: `sensitivity` [wires], and `values` [samples, wires + 1] (the last is the zero wire) where samples were
    given."""

    sensitivity: Reals
    values: NDArray[np.float32] | None
    # By first wire of a node: the same for every parameter set.
    _together: dict[int, list[Together]] = field(default_factory=dict)
    _moments: dict[int, tuple[Reals, Reals]] = field(default_factory=dict)

    def moved(self, centre: Reals, factor: Reals) -> Statistics:
        """Returns the statistics of the graph whose wires w are (w - centre) factor. Args: centre, factor: [wires + 1]."""
        values = None if self.values is None else ((self.values - centre) * factor).astype(np.float32)
        return Statistics(self.sensitivity / factor[:-1], values)

    def rounded_together(self, node: Linear) -> list[Together]:
        if node.first_wire not in self._together:
            self._together[node.first_wire] = self._groups(node)
        return self._together[node.first_wire]

    def _groups(self, node: Linear) -> list[Together]:
        alike: dict[bytes, list[int]] = {}
        for block in np.unique(node.block).tolist():
            alike.setdefault(node.weights[block].tobytes(), []).append(block)
        reading: dict[bytes, list[Indices]] = {}
        for blocks in alike.values():
            gather = node.gather[np.isin(node.block, blocks)]
            wide = self.values is not None and compensated(node.gather.shape[1])
            reading.setdefault(np.unique(gather, axis=0).tobytes() if wide else b"", []).append(np.array(blocks))
        return [
            Together(tuple(alike_blocks), self._compensation(node, np.concatenate(alike_blocks)))
            for alike_blocks in reading.values()
        ]

    def _compensation(self, node: Linear, blocks: Indices) -> Compensation | None:
        """Returns the compensation by what the columns of some blocks read, over samples and positions."""
        if self.values is None or not compensated(node.gather.shape[1]):
            return None
        gather = np.unique(node.gather[np.isin(node.block, blocks)], axis=0)
        samples, positions = len(self.values), len(gather)
        count = min(_MOST_READ, samples * positions)
        pick = np.random.default_rng(_SEED).choice(samples * positions, count, replace=False)
        seen = self.values[(pick // positions)[:, None], gather[pick % positions]].astype(np.float64)
        return Compensation.of(seen)

    def column_moments(self, graph: Graph, node: Linear) -> tuple[Reals, Reals]:
        """Returns mean and variance [G, K] of what the columns of a node's blocks read, over samples and positions. The same node, the same
        answer."""
        if node.first_wire not in self._moments:
            self._moments[node.first_wire] = self._column_moments(graph, node)
        return self._moments[node.first_wire]

    def _column_moments(self, graph: Graph, node: Linear) -> tuple[Reals, Reals]:
        mean, square = np.zeros((2, len(node.weights), node.gather.shape[1]))
        of_wires = _of_ranges(graph) if self.values is None else (self._mean, self._square)
        for block in np.unique(node.block):
            gather = node.gather[node.block == block]
            mean[block], square[block] = (moment[gather].mean(axis=0) for moment in of_wires)
        return mean, np.maximum(square - np.square(mean), 0.0)

    @cached_property
    def _mean(self) -> Reals:
        """[wires + 1]"""
        assert self.values is not None
        return np.asarray(self.values.mean(axis=0, dtype=np.float64))

    @cached_property
    def _square(self) -> Reals:
        """[wires + 1]"""
        assert self.values is not None
        return np.asarray(np.square(self.values.astype(np.float64)).mean(axis=0))

    def row_sensitivity(self, node: Linear) -> Reals:
        """Returns [G, R]: of all positions of a block together (root of the sum of squares)."""
        square = np.square(self.sensitivity[wires(node)]).reshape(len(node.gather), -1)
        total = np.zeros(node.bias.shape)
        np.add.at(total, node.block, square)
        return np.asarray(np.sqrt(total))


def statistics(graph: Graph, samples: Reals | None) -> Statistics:
    """Computes statistics of a graph.

    Args:
        graph: with ranges (bound_ranges).
        samples: [samples, ..], typical inputs; None: values are taken as spread evenly over their ranges, and as important as their ranges
            are narrow.
    """
    if samples is None:
        return Statistics(_by_ranges(graph), None)
    count = max(2, min(len(samples), _MOST_SAMPLES, _MOST_NUMBERS // graph.wire_count))
    chosen = np.random.default_rng(_SEED).permutation(len(samples))[:count]
    values = wire_values(graph, samples[np.sort(chosen)])
    return Statistics(_sensitivity(graph, values), values.astype(np.float32))


def _by_ranges(graph: Graph) -> Reals:
    assert graph.lower is not None and graph.upper is not None
    width = graph.upper - graph.lower
    result: Reals = 1.0 / np.where(width > 0, width, 1.0)
    return result


def _of_ranges(graph: Graph) -> tuple[Reals, Reals]:
    """Returns means and mean squares [wires + 1] of values spread evenly."""
    assert graph.lower is not None and graph.upper is not None
    low, high = np.append(graph.lower, 0.0), np.append(graph.upper, 0.0)
    return (low + high) / 2, (low**2 + low * high + high**2) / 3


def output_weights(graph: Graph, values: Reals) -> Reals:
    """Returns [numbers]: how much an error of an output counts. Each of several outputs in units of its own spread; 1 where there is one.

    Args:
        values: of the outputs [samples, numbers].
    """
    weights = np.ones(values.shape[1])
    for place in places(graph.outputs):
        spread = float(np.sqrt(values[:, place].var(axis=0).mean()))
        weights[place] = 1 / spread if spread > 0 else 1.0
    return weights


def _sensitivity(graph: Graph, values: Reals) -> Reals:
    """Returns [wires]: root mean square of the gradient of an output, by backward passes with random signs."""
    values = values[:_BACKWARD_SAMPLES]
    random = np.random.default_rng(_SEED)
    slope = {node.first_wire: slopes(graph, node, values).T for node in graph.lookups}
    backwards = [
        _Backward(node, slope.get(node.first_wire)) for node in graph.nodes if isinstance(node, Linear | Lookup)
    ]
    square = np.zeros(graph.wire_count)
    output = graph.output.reshape(-1)
    weights = output_weights(graph, values[:, output])
    gradient = np.empty((graph.wire_count + 1, len(values)))  # of every wire and sample; the last is the zero wire
    for _ in range(_PROBES):
        gradient[:] = 0.0
        np.add.at(gradient, output, weights[:, None] * random.choice([-1.0, 1.0], (len(output), len(values))))
        for backward in reversed(backwards):
            backward.run(gradient)
        square += np.square(gradient[:-1]).mean(axis=1)
    result = np.sqrt(square / _PROBES)
    for node in graph.nodes:
        sensitivity = result[wires(node)]
        used = sensitivity[sensitivity > 0]
        floor = _FLOOR * float(np.median(used)) if len(used) else 1.0
        result[wires(node)] = np.maximum(sensitivity, floor)
    return np.asarray(result)


class _Backward:
    """Backward propagation from the gradient [wires + 1, samples] of a node's results to that of its inputs."""

    def __init__(self, node: Linear | Lookup, slopes: Reals | None) -> None:
        """Args: slopes: [outputs, samples], of a look-up."""
        self._node, self._slopes = node, slopes
        gathers = [node.gather]
        if isinstance(node, Linear):
            self._positions = [np.flatnonzero(node.block == block) for block in range(len(node.weights))]
            gathers = [node.gather[positions] for positions in self._positions]
        self._added = [_Added(gather) for gather in gathers]

    def run(self, gradient: Reals) -> None:
        node = self._node
        arriving = gradient[wires(node)]
        if isinstance(node, Lookup):
            assert self._slopes is not None
            share = (arriving * self._slopes).reshape(len(node.gather), -1, gradient.shape[1]).sum(axis=1)
            self._added[0].to(gradient, share)
            return
        arriving = arriving.reshape(len(node.gather), -1, gradient.shape[1])
        for weights, positions, added in zip(node.weights, self._positions, self._added, strict=True):
            if len(positions):
                added.to(gradient, np.matmul(weights.T, arriving[positions]))


class _Added:
    """total[rows] += added, where rows repeat."""

    def __init__(self, rows: Indices) -> None:
        self._order = np.argsort(rows, axis=None, kind="stable")
        self._rows, self._starts = np.unique(rows.reshape(-1)[self._order], return_index=True)

    def to(self, total: Reals, added: Reals) -> None:
        """Adds to the gradient of wires. Args: added: [.., samples]"""
        flat = added.reshape(-1, added.shape[-1])
        total[self._rows] += np.add.reduceat(flat[self._order], self._starts, axis=0)


def slopes(graph: Graph, node: Lookup, values: NDArray[Any]) -> Reals:
    """Returns [samples, outputs] of the functions of a look-up without shifts, over a little of their range. Args: values: [samples, wires + 1]."""
    assert graph.lower is not None and graph.upper is not None
    step = np.maximum(_REACH * (graph.upper - graph.lower)[node.gather], 1e-12)
    x = values[:, node.gather]
    rise = apply_steps(node.steps, x + step, node.function) - apply_steps(node.steps, x - step, node.function)
    return np.asarray(np.nan_to_num(rise / (2 * step), posinf=0.0, neginf=0.0))
