"""The scale of every wire: phase = value * scale.

A row that reads wires x_k of scale s_k with weights W_k and is itself of scale S has integers q_k = W_k S / s_k. Its error, in the units of its
value, has the variance

    K / S^2  +  sum_k sigma_k^2 W_k^2 / s_k^2  +  sum_k (s_k^2 / S^2) Var(x_k) / 12

from what comes behind the row (keyswitch and modulus switch, or the re-randomisation of answers), from the noise of what it reads, and from the
rounding of q. S is as large as the row's range, the noise limit and 8-bit integers allow: a row of small range does not take the bits of the
others, it just fills less of its table. The scales s, one for each input or group of look-ups, are chosen where the errors of all rows, weighed
by their effect on the output, are least together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.approximate.integer_rows import LARGEST_WEIGHT
from cloakwork.models.approximate.statistics import Statistics
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.criteria.noise_limits import NoiseLimits
from cloakwork.models.errors import PrecisionOverflowError
from cloakwork.models.graph.ir import Graph, Linear, wires
from cloakwork.models.graph.merge_equal import is_output

INPUT_LIMIT = 0.25  # of the torus, either way, for what the client encrypts
OUTPUT_LIMIT = 0.375  # for what it decrypts
LOOKUP_LIMIT = 0.25  # for what a look-up reads, its noise included
LOOKUP_OUTPUT_LIMIT = 2.0  # for what look-ups return; whole turns vanish under integer weights, a row's sum has to fit
GUARD = 4.0  # standard deviations of noise kept free at the edge of a look-up's range
SMALLEST_RANGE = 1e-9
_OCTAVES = 24  # below the largest scale that are searched
_STEPS = 4  # in each
_SWEEPS = 4
_NUMBERS_AT_ONCE = 1 << 20


def source_variance(params: ParameterSet, source: int) -> float:
    """Returns the variance of one wire of a node; the first node is the input."""
    return noise.fresh_variance(params) if source == 0 else noise.blind_rotation_variance(params)


def source_room(source: int) -> float:
    return INPUT_LIMIT if source == 0 else LOOKUP_OUTPUT_LIMIT


def extent(graph: Graph, source: int) -> float:
    """Returns the largest magnitude of a node's values."""
    assert graph.lower is not None and graph.upper is not None
    node_wires = wires(graph.nodes[source])
    return max(
        float(np.abs(graph.lower[node_wires]).max()), float(np.abs(graph.upper[node_wires]).max()), SMALLEST_RANGE
    )


def noise_behind(params: ParameterSet, output: bool) -> float:
    """Returns variance that comes after a linear node: switching, or re-randomisation."""
    if output:
        return noise.rerandomisation_variance(params)
    return noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)


def noise_room(params: ParameterSet, noise_percent: float, output: bool) -> float:
    """Returns variance that a linear node may bring: the limit less what comes after it. Negative when the set is too noisy."""
    return (noise_percent / 200) ** 2 - noise_behind(params, output)


def half_ranges(graph: Graph, node: Linear) -> Reals:
    """Returns [G, R]: half the range of a row's values, equal for all positions of a block; 0 of constants."""
    assert graph.lower is not None and graph.upper is not None
    half = (graph.upper[wires(node)] - graph.lower[wires(node)]) / 2
    result = np.zeros(node.bias.shape)
    np.maximum.at(result, node.block, half.reshape(len(node.gather), -1))
    return np.where(result < SMALLEST_RANGE, 0.0, result)


@dataclass(frozen=True, eq=False)
class _Source:
    """Contribution of one source to a row: sum of squares and largest of its weights [G, R], sum of variances that are rounded against [G, 1]."""

    squares: Reals
    largest: Reals
    load: Reals


# Scales by source: numbers, or several [T, 1, 1] to be looked at together; what follows from them is then [T, G, R].
_Tried: TypeAlias = Mapping[int, float | Reals]


@dataclass(frozen=True, eq=False)
class _Reader:
    """A linear node whose scales are to be chosen."""

    half: Reals  # [G, R]
    weight: Reals  # [G, R], squared effect of an error
    behind: float
    room: float
    output: bool
    sources: Mapping[int, _Source]

    def row_scales(self, scale: _Tried, variance: Mapping[int, float]) -> Reals:
        """Returns [G, R]; 0 where there is no room."""
        return self._row_scales(scale, self._arriving(scale, variance))

    def errors(self, scale: _Tried, variance: Mapping[int, float]) -> Reals:
        """Returns [T] (or a number), inf where there is no room."""
        arriving = self._arriving(scale, variance)
        rows = self._row_scales(scale, arriving)
        rounding = sum(np.square(scale[number]) * source.load / 12 for number, source in self.sources.items())
        with np.errstate(divide="ignore", invalid="ignore"):
            total = self.weight * ((self.behind + rounding) / np.square(rows) + arriving)
        fits = (rows > 0).all(axis=(-2, -1))
        return np.asarray(np.where(fits, total.sum(axis=(-2, -1)), np.inf))

    def _arriving(self, scale: _Tried, variance: Mapping[int, float]) -> Reals:
        return np.asarray(
            sum(variance[number] / np.square(scale[number]) * source.squares for number, source in self.sources.items())
        )

    def _row_scales(self, scale: _Tried, arriving: Reals) -> Reals:
        with np.errstate(divide="ignore", invalid="ignore"):
            result = self._by_range(arriving)
            result = np.minimum(result, np.where(arriving > 0, np.sqrt(self.room / arriving), np.inf))
            for number, source in self.sources.items():
                most = LARGEST_WEIGHT * scale[number] / source.largest
                result = np.minimum(result, np.where(source.largest > 0, most, np.inf))
        return np.asarray(np.where(np.isfinite(result), result, 1.0))  # constants: any scale does

    def _by_range(self, arriving: Reals) -> Reals:
        """Returns the largest S with S half + GUARD sqrt(behind + S^2 arriving) at most LOOKUP_LIMIT; of outputs S half at most OUTPUT_LIMIT."""
        if self.output:
            return np.asarray(OUTPUT_LIMIT / self.half)
        left = LOOKUP_LIMIT**2 - GUARD**2 * self.behind
        if left <= 0:
            return np.zeros_like(self.half)
        b = LOOKUP_LIMIT * self.half
        root = np.sqrt(np.maximum(b**2 - (self.half**2 - GUARD**2 * arriving) * left, 0.0))
        return np.asarray(left / (b + root))


@dataclass(frozen=True, eq=False)
class Scales:
    """Scales of input and look-ups, and of rows [G, R], by position of their node; the variance of an output's error that they leave."""

    sources: dict[int, float]
    rows: dict[int, Reals]
    error: float


def choose_scales(
    graph: Graph,
    params: ParameterSet,
    limits: NoiseLimits,
    stats: Statistics,
    fixed: Mapping[int, float],
    columns: Mapping[int, Indices],
) -> Scales:
    """Chooses the scales of rows.

    Args:
        limits: by the names of linear nodes.
        fixed: scales of sources that are given already; their readers are left out.
        columns: by position, the node [G, K] that each column of a linear node reads, -1 for none.

    Raises:
            PrecisionOverflowError: no scale fits.
    """
    readers = {
        i: _reader(graph, node, params, limits, stats, columns[i])
        for i, node in enumerate(graph.nodes)
        if isinstance(node, Linear) and not any(int(s) in fixed for s in np.unique(columns[i]))
    }
    sources = sorted({number for reader in readers.values() for number in reader.sources})
    largest = {number: source_room(number) / extent(graph, number) for number in sources}
    variance = {number: source_variance(params, number) for number in sources}
    scale = {number: value / 16 for number, value in largest.items()}
    for _ in range(_SWEEPS):
        before = dict(scale)
        for number in sources:
            reading = [reader for reader in readers.values() if number in reader.sources]
            tried = largest[number] * 2.0 ** (-np.arange(_OCTAVES * _STEPS + 1) / _STEPS)
            scale[number] = float(tried[int(np.argmin(_costs(reading, scale, variance, number, tried)))])
        if scale == before:
            break
    rows = {i: reader.row_scales(scale, variance) for i, reader in readers.items()}
    for i, row_scales in rows.items():
        if not bool((row_scales > 0).all()):
            raise PrecisionOverflowError(
                f"'{graph.nodes[i].origin}': noise of parameter set '{params.name}' leaves no room for its look-ups; use a set with less noise"
            )
    for number, node in enumerate(graph.nodes):
        if not isinstance(node, Linear) and number not in fixed:
            scale.setdefault(
                number, source_room(number) / extent(graph, number)
            )  # read by nobody, or with weights of 0
    return Scales(scale, rows, float(sum(reader.errors(scale, variance) for reader in readers.values())))


def _costs(
    reading: list[_Reader], scale: dict[int, float], variance: Mapping[int, float], number: int, tried: Reals
) -> Reals:
    """Returns [T]: error of all readers for every tried scale of one source."""
    total = np.zeros(len(tried))
    for reader in reading:
        size = max(1, _NUMBERS_AT_ONCE // reader.half.size)
        for start in range(0, len(tried), size):
            part = slice(start, start + size)
            total[part] += reader.errors({**scale, number: tried[part, None, None]}, variance)
    return total


def _reader(
    graph: Graph, node: Linear, params: ParameterSet, limits: NoiseLimits, stats: Statistics, columns: Indices
) -> _Reader:
    output = is_output(graph, node)
    room = noise_room(params, limits.of(node), output)
    if room <= 0:
        alone = 200 * math.sqrt(noise_behind(params, output))
        raise PrecisionOverflowError(
            f"layer '{node.origin}' may have noise of {limits.of(node):.3g} % of the half torus, and parameter set '{params.name}' alone brings "
            f"{alone:.3g} %; use a set with less noise"
        )
    _, variance = stats.column_moments(graph, node)
    sources = {}
    for number in np.unique(columns[columns >= 0]).tolist():
        source_weights = np.where((columns == number)[:, None, :], node.weights, 0.0)
        if not source_weights.any():
            continue
        used = (source_weights != 0).any(axis=1)
        sources[number] = _Source(
            np.square(source_weights).sum(axis=2),
            np.abs(source_weights).max(axis=2),
            (variance * used).sum(axis=1)[:, None],
        )
    weight = np.square(stats.row_sensitivity(node))
    return _Reader(half_ranges(graph, node), weight, noise_behind(params, output), room, output, sources)
