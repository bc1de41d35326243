"""Integer weights, and the scale and offset at which every wire is encrypted.

The integer weights that act on phases are W S / s with S the scale of the row's result and s that of the wires it reads (row_scales). They
are rounded so that what a row reads makes the least of it (round_weights), and the bias takes what is left on average. Rows that are integers
already (integer_rows) stay what they are where the noise allows it.

Source: [NBBW19] bias correction. Ours: from what calibration data showed of the row's wires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.approximate.integer_rows import (
    LARGEST_WEIGHT,
    Compensation,
    IntegerScales,
    RowNoise,
    integer_scales,
    rounded,
)
from cloakwork.models.approximate.row_scales import (
    GUARD,
    LOOKUP_LIMIT,
    OUTPUT_LIMIT,
    choose_scales,
    extent,
    half_ranges,
    noise_behind,
    noise_room,
    source_room,
    source_variance,
)
from cloakwork.models.approximate.statistics import Statistics, statistics
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.criteria.noise_limits import NoiseLimits
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import Graph, Linear, check, source_nodes, wires
from cloakwork.models.graph.merge_equal import is_output, regroup

_WELL_FILLED = 0.75  # part of its range that a row has to fill for its integers to be better than 8 rounded bits
_SHARES_OF_LIMIT = (1.0, 0.5, 0.2, 0.1, 0.05)  # of the noise limit, tried for integers that are kept
_LEAST_GUARD = 3.9  # standard deviations between a row's range and the end of its table
_ALIKE = 1.25  # between scales of rows that share one
_TRIES = 6  # at rows whose integers bring more noise than their limit


@dataclass(frozen=True, eq=False)
class WeightPlan:
    """Scales under one parameter set, before any weight is rounded."""

    graph: Graph
    params: ParameterSet
    limits: NoiseLimits
    stats: Statistics
    # By position in the graph: scales of the input and of look-ups; of linear nodes what their columns read (column_sources), the scales [G, R] of
    # their rows, and of those that stay integers the source and its scales.
    sources: Mapping[int, float]
    columns: Mapping[int, Indices]
    rows: Mapping[int, Reals]
    given: Mapping[int, tuple[int, IntegerScales]]
    error: float  # variance of an output's error by noise and rounding, as far as rows that are rounded bring it

    def coarsest(self) -> tuple[float, str] | None:
        """Returns the largest weight in its integer steps, and name of the linear node where it is least. A row of one weight loses nothing, the
        scale takes it; neither do integers that are kept. None when there are no others."""
        strengths = []
        for i, node in enumerate(self.graph.nodes):
            if isinstance(node, Linear) and i not in self.given and node.gather.shape[1] > 1:
                strength = np.abs(node.weights) * self.rows[i][:, :, None] / self._column_scales(i)[:, None, :]
                strengths.append((float(strength.max()), node.origin))
        return min(strengths, default=None)

    def _column_scales(self, position: int) -> Reals:
        """Returns [G, K] of a linear node; inf where a column reads nothing."""
        scales = np.full(len(self.graph.nodes) + 1, np.inf)  # the last one is that of no source
        for number, source_scale in self.sources.items():
            scales[number] = source_scale
        return np.asarray(scales[self.columns[position]])

    def integers(self) -> Graph:
        """Returns the graph with rounded weights."""
        graph, rows = self.graph, dict(self.rows)
        assert graph.lower is not None and graph.upper is not None
        scale, offset = np.zeros(graph.wire_count), np.zeros(graph.wire_count)
        for number, source_scale in self.sources.items():
            scale[wires(graph.nodes[number])] = source_scale
        nodes = list(graph.nodes)
        for i, node in enumerate(graph.nodes):
            if not isinstance(node, Linear):
                continue
            node_wires, per_column = wires(node), self._column_scales(i)
            if i in self.given:
                nodes[i] = replace(node, weights=_nearest(node, rows[i], per_column))
            else:
                variance = np.where(
                    self.columns[i] == 0, source_variance(self.params, 0), source_variance(self.params, 1)
                )
                room = _room(graph, self.params, self.limits, node)
                nodes[i], rows[i] = _Rounding(graph, node, per_column, variance, room, self.stats).run(rows[i])
            scale[node_wires] = rows[i][node.block].reshape(-1)
            offset[node_wires] = (graph.upper[node_wires] + graph.lower[node_wires]) / 2
        return check(replace(graph, nodes=tuple(nodes), scale=scale, offset=offset))


def plan_scales(
    graph: Graph, params: ParameterSet, limits: NoiseLimits, least_bits: int, stats: Statistics | None = None
) -> WeightPlan:
    """Plans the scales of weights.

    Args:
        graph: with ranges (bound_ranges).
        limits: noise that look-ups (and the client) may see, by the names of linear nodes.
        least_bits: weights that would be rounded to less stay integers even where that leaves ranges half empty.
        stats: of typical inputs, for this graph; None: ranges have to do.

    Raises:
            PrecisionOverflowError: the noise of the set is above the limits.
    """
    graph = _one_source_per_column(graph)
    stats = statistics(graph, None) if stats is None else stats
    columns = {i: column_sources(graph, node) for i, node in enumerate(graph.nodes) if isinstance(node, Linear)}
    given = _given_integers(graph, params, limits, least_bits)
    fixed = {source: integers.source for source, integers in given.values()}
    chosen = choose_scales(graph, params, limits, stats, fixed, columns)
    sources = {**chosen.sources, **fixed}
    rows = {**chosen.rows, **{position: integers.rows for position, (_, integers) in given.items()}}
    return WeightPlan(graph, params, limits, stats, sources, columns, rows, given, chosen.error)


@dataclass(frozen=True, eq=False)
class _Room:
    """Room for rounded rows: variance, and with what comes behind them no more than their look-ups keep free beyond their ranges."""

    variance: float
    behind: float
    half: Reals  # [G, R], half ranges; 0 where there is no look-up

    def too_noisy(self, bringing: Reals, scale: Reals, half: Reals) -> Reals:
        """Returns [rows]: factor for the scale of each row; 1 where it is well."""
        factor = np.where(bringing > self.variance, 0.995 * np.sqrt(self.variance / np.maximum(bringing, 1e-300)), 1.0)
        deviation = np.sqrt(self.behind + bringing)
        left = LOOKUP_LIMIT - scale * half
        guarded = (LOOKUP_LIMIT - GUARD * deviation) / np.where(half > 0, scale * half, 1.0)
        narrow = (half > 0) & (left < _LEAST_GUARD * deviation) & (guarded > 0)
        return np.asarray(np.where(narrow, np.minimum(factor, guarded), factor))


def _room(graph: Graph, params: ParameterSet, limits: NoiseLimits, node: Linear) -> _Room:
    output = is_output(graph, node)
    half = half_ranges(graph, node)
    behind = noise_behind(params, output)
    return _Room(noise_room(params, limits.of(node), output), behind, np.zeros_like(half) if output else half)


@dataclass(frozen=True, eq=False)
class _BlockFacts:
    """Facts of blocks that are rounded together: scale and variance [blocks, K] of what the columns read, half ranges [blocks, R] of the rows."""

    scale: Reals
    variance: Reals
    half: Reals


def _of_one_scale(blocks: Indices, rows: Reals) -> list[Indices]:
    """Groups blocks of equal weights by rows of about one scale: they share the least, and would lose bits to a wider range. Args: rows [G, R]."""
    groups, left = [], blocks
    while len(left):
        ratio = rows[left] / rows[left[0]]
        near = ((ratio > 1 / _ALIKE) & (ratio < _ALIKE)).all(axis=1)
        groups.append(left[near])
        left = left[~near]
    return groups


class _Rounding:
    """The integers of one linear node."""

    def __init__(
        self, graph: Graph, node: Linear, scale: Reals, variance: Reals, room: _Room, stats: Statistics
    ) -> None:
        """Args: scale, variance: [G, K], of what a column reads; scale inf where it reads nothing."""
        self._graph, self._node, self._stats = graph, node, stats
        self._scale, self._variance, self._room = scale, variance, room

    def run(self, rows: Reals) -> tuple[Linear, Reals]:
        """Returns the node with integer weights and corrected biases, and its rows' scales [G, R], smaller where integers brought too much noise."""
        node, rows = self._node, rows.copy()
        weights = np.zeros(node.weights.shape, dtype=np.int64)
        for group in self._stats.rounded_together(node):
            together = [alike for blocks in group.blocks for alike in _of_one_scale(blocks, rows)]
            first = np.array([alike[0] for alike in together])
            # Blocks of equal weights differ in which columns read nothing (padding); what any of them reads has to have a step.
            scale = np.stack([self._scale[alike].min(axis=0) for alike in together])
            variance = np.stack([self._variance[alike].max(axis=0) for alike in together])
            half = np.stack([self._room.half[alike].max(axis=0) for alike in together])
            row_scales = np.stack([rows[alike].min(axis=0) for alike in together])
            integers, scales = self._rounded(first, row_scales, _BlockFacts(scale, variance, half), group.compensation)
            for i, alike in enumerate(together):
                weights[alike], rows[alike] = integers[i], scales[i]
        bias = node.bias + self._lost(weights, rows)
        return replace(node, weights=weights, bias=bias), rows

    def _rounded(
        self, blocks: Indices, rows: Reals, facts: _BlockFacts, compensation: Compensation | None
    ) -> tuple[Indices, Reals]:
        """Integers [blocks, R, K] and scales [blocks, R]."""
        shape = (len(blocks) * rows.shape[1], self._node.weights.shape[2])
        real = self._node.weights[blocks].reshape(shape)
        scale, variance = (np.repeat(fact, rows.shape[1], axis=0) for fact in (facts.scale, facts.variance))
        chosen, half = rows.reshape(-1).copy(), facts.half.reshape(-1)
        result = np.zeros(shape, dtype=np.int64)
        left = np.arange(len(real))
        for _ in range(_TRIES):
            result[left] = rounded(real[left], scale[left] / chosen[left, None], compensation)
            bringing = (np.square(result[left].astype(np.float64)) * variance[left]).sum(axis=1)
            factor = self._room.too_noisy(bringing, chosen[left], half[left])
            noisy = factor < 1
            if not noisy.any():
                break
            left = left[noisy]
            chosen[left] *= factor[noisy]
        return result.reshape(len(blocks), rows.shape[1], -1), chosen.reshape(rows.shape)

    def _lost(self, weights: Indices, rows: Reals) -> Reals:
        """Returns [G, R]: what rounding takes from a row on average."""
        if self._stats.values is None:
            return np.zeros(rows.shape)
        mean, _ = self._stats.column_moments(self._graph, self._node)
        kept = np.where(np.isfinite(self._scale), self._scale, 0.0)[:, None, :] * weights / rows[:, :, None]
        return np.asarray(np.einsum("grk,gk->gr", self._node.weights - kept, mean))


def _nearest(node: Linear, rows: Reals, per_column: Reals) -> Indices:
    return np.rint(node.weights * rows[:, :, None] / per_column[:, None, :]).astype(np.int64)


def _given_integers(
    graph: Graph, params: ParameterSet, limits: NoiseLimits, least_bits: int
) -> dict[int, tuple[int, IntegerScales]]:
    """Returns the given integers by position of a linear node that is the only reader of its only source: that source, and scales that keep its
    integers."""
    owner = graph.owners()
    sources = {
        i: source_nodes(graph, node.gather, owner) for i, node in enumerate(graph.nodes) if isinstance(node, Linear)
    }
    readers = np.bincount([s for node_sources in sources.values() for s in node_sources], minlength=len(graph.nodes))
    result = {}
    for position, node_sources in sources.items():
        node = graph.nodes[position]
        if len(node_sources) != 1 or readers[node_sources[0]] != 1 or not isinstance(node, Linear):
            continue
        scales = _least_noise(graph, node, node_sources[0], params, limits.of(node))
        if scales is not None and (scales.full >= _WELL_FILLED or scales.rounded_bits < least_bits):
            result[position] = (node_sources[0], scales.kept)
    return result


@dataclass(frozen=True)
class _Kept:
    """Scales that keep a node's integers, the part of its range that the emptiest row fills, and the bits that rounding would leave."""

    kept: IntegerScales
    full: float
    rounded_bits: int


def _least_noise(graph: Graph, node: Linear, source: int, params: ParameterSet, limit_percent: float) -> _Kept | None:
    """Tries several limits up to the one given: less noise needs less of a table's end for itself."""
    output = is_output(graph, node)
    half = half_ranges(graph, node)
    source_limit = source_room(source) / extent(graph, source)
    best: _Kept | None = None
    for share in _SHARES_OF_LIMIT:
        room = noise_room(params, share * limit_percent, output)
        if room <= 0:
            break
        end = OUTPUT_LIMIT if output else lookup_limit(share * limit_percent)
        row_noise = RowNoise(source_variance(params, source), noise_behind(params, output), room)
        scales = integer_scales(node.weights, half, end, source_limit, row_noise)
        if scales is None or (best is not None and scales.error >= best.kept.error):
            continue
        widest = end / np.where(half > 0, half, 1.0)
        strength = float((np.abs(node.weights).max(axis=2) * widest).max())
        norm = float(np.sqrt(np.square(node.weights).sum(axis=2)).max() * widest.max())
        step = max(norm * math.sqrt(row_noise.source / room), strength / LARGEST_WEIGHT)
        best = _Kept(scales, float((scales.rows / widest).min()), int(strength / step).bit_length() + 1)
    return best


def weight_bits(node: Linear) -> int:
    """Returns bits of the largest integer weight, sign included."""
    return int(np.abs(node.weights).max()).bit_length() + 1


@dataclass(frozen=True)
class RowBits:
    """Bits of the largest weight of a row, sign included: the median row, the worst, and how many rows have no weights at all."""

    median: int
    worst: int
    empty: int


def row_bits(node: Linear) -> RowBits:
    """Counts the bits of the integer weights of a node; rows of blocks that positions use."""
    largest = np.abs(node.weights[np.unique(node.block)]).max(axis=2).reshape(-1)
    bits = np.floor(np.log2(np.maximum(largest, 1))).astype(np.int64) + 2
    used = bits[largest > 0]
    empty = int((largest == 0).sum())
    return RowBits(int(np.median(used)), int(used.min()), empty) if len(used) else RowBits(0, 0, empty)


def lookup_limit(noise_percent: float) -> float:
    """Returns largest phase of a value at a look-up: a quarter turn less room for its noise."""
    return LOOKUP_LIMIT - GUARD * noise_percent / 100 / 2


def column_sources(graph: Graph, node: Linear) -> Indices:
    """Returns [G, K]: the node that each column of each block reads, -1 where it reads zero alone."""
    owner = graph.owners()[node.gather]
    result = np.full((len(node.weights), node.gather.shape[1]), -1, dtype=np.int64)
    np.maximum.at(result, node.block, owner)
    return result


def _one_source_per_column(graph: Graph) -> Graph:
    """Splits blocks until every column of a block reads one node (and zeros)."""
    owner = graph.owners()
    nodes = list(graph.nodes)
    for position, node in enumerate(nodes):
        if not isinstance(node, Linear):
            continue
        sources = owner[node.gather]
        if bool(((sources == column_sources(graph, node)[node.block]) | (sources < 0)).all()):
            continue
        groups = regroup(node, sources.astype(np.float64))
        if groups is None:
            raise CompileError(
                f"linear '{node.origin}': reads too many mixtures of tensors; concatenate along channels"
            )
        first, block = groups
        old = node.block[first]
        nodes[position] = replace(node, weights=node.weights[old], bias=node.bias[old], block=block)
    return replace(graph, nodes=tuple(nodes))
