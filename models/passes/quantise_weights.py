"""Integer weights, and the scale and offset at which every wire is encrypted.

A row's result fills the part of the torus that a look-up reads: scale_out = limit / half its range. The integer weights that act on phases
are then W scale_out / s with s the scale of the wires they read, so s decides how fine they are. Smaller s: finer weights and, by their L2
norm, more noise. Each input and look-up gets the smallest s at which no weight on it has more than 8 bits and no reader more noise than
the parameter set leaves room for. Rows that are integers already (integer_rows) stay what they are where the noise allows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.errors import CompileError, PrecisionOverflowError
from cloakwork.models.ir import Graph, Indices, Linear, Node, Reals, check, source_nodes, wires
from cloakwork.models.passes.affine import is_output, regroup
from cloakwork.models.passes.integer_rows import LARGEST_WEIGHT, IntegerScales, integer_scales
from cloakwork.models.passes.noise_limits import NoiseLimits

INPUT_LIMIT = 0.25  # of the torus, either way, for what the client encrypts
OUTPUT_LIMIT = 0.375  # for what it decrypts
LOOKUP_OUTPUT_LIMIT = 2.0  # for what look-ups return; whole turns vanish under integer weights, a row's sum has to fit
_GUARD = 4.0  # standard deviations of noise kept free at the edge of a look-up's range
_SMALLEST_RANGE = 1e-9
_WELL_FILLED = 0.75  # part of its range that a row has to fill for its integers to be better than 8 rounded bits


@dataclass(frozen=True, eq=False)
class Quantised:
    graph: Graph
    exact: frozenset[int]  # first wires of linear nodes whose weights are what the model says, unrounded


def quantise_weights(graph: Graph, params: ParameterSet, limits: NoiseLimits, least_bits: int) -> Quantised:
    """Args:
    limits: noise that look-ups (and the client) may see, by the names of linear nodes.
    least_bits: weights that would be rounded to less stay integers even where that leaves ranges half empty.
    """
    graph = _one_source_per_column(graph)
    assert graph.lower is not None and graph.upper is not None
    half_range = (graph.upper - graph.lower) / 2
    half_range[half_range < _SMALLEST_RANGE] = 1.0  # constants: any scale does
    scale, offset = np.zeros(graph.wire_count), np.zeros(graph.wire_count)
    for node in graph.linears:
        limit = OUTPUT_LIMIT if is_output(graph, node) else lookup_limit(limits.of(node))
        scale[wires(node)] = limit / half_range[wires(node)]
        offset[wires(node)] = (graph.upper[wires(node)] + graph.lower[wires(node)]) / 2
    given = _given_integers(graph, scale, params, limits, least_bits)
    exact = frozenset(graph.nodes[position].first_wire for position in given)
    needed = np.zeros(len(graph.nodes))
    for node in graph.linears:
        if node.first_wire in exact:
            continue
        room = noise_room(params, limits.of(node), is_output(graph, node))
        for source, finest in _finest_scales(graph, node, scale, params, room).items():
            needed[source] = max(needed[source], finest)
    for position, (source, found) in given.items():
        scale[wires(graph.nodes[source])] = found.source
        scale[wires(graph.nodes[position])] = _spread_rows(graph.nodes[position], found.rows)
    fixed = {source for source, _ in given.values()}
    for source, reader in enumerate(graph.nodes):
        if not isinstance(reader, Linear) and source not in fixed:
            scale[wires(reader)] = _checked_scale(graph, source, float(needed[source]), params)
    quantised = [
        replace(node, weights=_integers(node, scale)) if isinstance(node, Linear) else node for node in graph.nodes
    ]
    return Quantised(check(replace(graph, nodes=tuple(quantised), scale=scale, offset=offset)), exact)


def _given_integers(
    graph: Graph, widest: Reals, params: ParameterSet, limits: NoiseLimits, least_bits: int
) -> dict[int, tuple[int, IntegerScales]]:
    """By position of a linear node that is the only reader of its only source: that source, and scales that keep its integers."""
    owner = graph.owners()
    sources = {
        i: source_nodes(graph, node.gather, owner) for i, node in enumerate(graph.nodes) if isinstance(node, Linear)
    }
    readers = np.bincount([s for found in sources.values() for s in found], minlength=len(graph.nodes))
    result = {}
    for position, found in sources.items():
        node = graph.nodes[position]
        if len(found) != 1 or readers[found[0]] != 1 or not isinstance(node, Linear):
            continue
        room = noise_room(params, limits.of(node), is_output(graph, node))
        if room <= 0:
            continue
        deviation = math.sqrt(room / _source_variance(params, found[0]))
        limit = _source_room(found[0]) / max(_extent(graph, found[0]), _SMALLEST_RANGE)
        wanted = _row_scales(node, widest)
        scales = integer_scales(node.weights, wanted, limit, deviation)
        if scales is None:
            continue
        finest = _finest_scales(graph, node, widest, params, room)[found[0]]
        rounded = int((np.abs(node.weights).max(axis=2) * wanted).max() / finest)
        if float((scales.rows / wanted).min()) >= _WELL_FILLED or rounded.bit_length() + 1 < least_bits:
            result[position] = (found[0], scales)
    return result


def _spread_rows(node: Node, rows: Reals) -> Reals:
    assert isinstance(node, Linear)
    return rows[node.block].reshape(-1)


def _source_variance(params: ParameterSet, source: int) -> float:
    return noise.fresh_variance(params) if source == 0 else noise.blind_rotation_variance(params)


def _source_room(source: int) -> float:
    return INPUT_LIMIT if source == 0 else LOOKUP_OUTPUT_LIMIT


def _extent(graph: Graph, source: int) -> float:
    """The largest magnitude of a node's values."""
    assert graph.lower is not None and graph.upper is not None
    own = wires(graph.nodes[source])
    return max(float(np.abs(graph.lower[own]).max()), float(np.abs(graph.upper[own]).max()))


def noise_room(params: ParameterSet, noise_percent: float, is_output: bool) -> float:
    """Variance that a linear node may bring: the limit less what comes after it, switching or re-randomisation. Negative when the set is
    too noisy."""
    switching = noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)
    return (noise_percent / 200) ** 2 - (noise.rerandomisation_variance(params) if is_output else switching)


def weight_bits(node: Linear) -> int:
    """Bits of the largest integer weight, sign included."""
    return int(np.abs(node.weights).max()).bit_length() + 1


def lookup_limit(noise_percent: float) -> float:
    """Largest phase of a value at a look-up: a quarter turn less room for its noise."""
    return 0.25 - _GUARD * noise_percent / 100 / 2


def column_sources(graph: Graph, node: Linear) -> Indices:
    """[G, K]: the node that each column of each block reads, -1 where it reads zero alone."""
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


def _finest_scales(graph: Graph, node: Linear, scale: Reals, params: ParameterSet, room: float) -> dict[int, float]:
    """For each node that this one reads: the smallest scale that its weights and its noise allow; inf when none does.

    Rounding adds 1/12 to the square of every weight; the room is shared equally.
    """
    strength = np.abs(node.weights) * _row_scales(node, scale)[:, :, None]
    columns = column_sources(graph, node)
    sources = [int(source) for source in np.unique(columns[columns >= 0])]
    result = {}
    for source in sources:
        own = strength * (columns == source)[:, None, :]
        variance = _source_variance(params, source)
        rounding = variance * float(np.count_nonzero(own, axis=2).max()) / 12
        left = room / len(sources) - rounding
        by_noise = float(np.sqrt((own**2).sum(axis=2).max()) * math.sqrt(variance / left)) if left > 0 else math.inf
        result[source] = max(by_noise, float(own.max()) / LARGEST_WEIGHT)
    return result


def _checked_scale(graph: Graph, source: int, needed: float, params: ParameterSet) -> float:
    """The scale itself, when the values fit the torus at it."""
    owner, extent, room = graph.nodes[source], _extent(graph, source), _source_room(source)
    if needed * extent > room:
        raise PrecisionOverflowError(
            f"'{owner.origin}': the layer that reads it would need weights below one bit under the noise of parameter set '{params.name}'; "
            "use a set with less noise, or a narrower layer"
        )
    return needed if needed > 0 else room / max(extent, _SMALLEST_RANGE)


def _row_scales(node: Linear, scale: Reals) -> Reals:
    """[G, R]: scale of the results; equal for all positions of a block, because their ranges are."""
    shape = (len(node.gather), node.weights.shape[1])
    result = np.ones((len(node.weights), shape[1]))
    result[node.block] = scale[wires(node)].reshape(shape)
    return result


def _integers(node: Linear, scale: Reals) -> np.ndarray:
    """round(W scale_out / s) for each block."""
    padded = np.append(scale, 0.0)
    source_scale = np.zeros((len(node.weights), node.gather.shape[1]))
    np.maximum.at(source_scale, node.block, padded[node.gather])
    source_scale[source_scale == 0] = np.inf  # columns of zeros
    real = node.weights * _row_scales(node, scale)[:, :, None] / source_scale[:, None, :]
    return np.rint(real).astype(np.int64)
