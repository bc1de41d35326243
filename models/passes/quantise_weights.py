"""Integer weights, and the scale and offset at which every wire is encrypted.

A row's result fills the part of the torus that a look-up reads: scale_out = limit / half its range. The integer weights that act on phases
are then W scale_out / s with s the scale of the wires they read, so s decides how fine they are: it is chosen for each input and look-up
as the one at which the largest of its weights is 2^(bits-1) - 1. Smaller s: finer weights and, by their L2 norm, more noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.errors import CompileError, PrecisionOverflowError
from cloakwork.models.ir import Graph, Indices, Linear, Reals, check, wires
from cloakwork.models.passes.affine import is_output, regroup

MINIMUM_BITS, MAXIMUM_BITS = 2, 8
INPUT_LIMIT = 0.25  # of the torus, either way, for what the client encrypts
OUTPUT_LIMIT = 0.375  # for what it decrypts
_GUARD = 4.0  # standard deviations of noise kept free at the edge of a look-up's range
_SMALLEST_RANGE = 1e-9


def quantise_weights(graph: Graph, bits: int, noise_percent: float) -> Graph:
    """Args: bits of signed weights, 2 .. 8; noise_percent: standard deviation that look-ups may see, per cent of the half torus."""
    if not MINIMUM_BITS <= bits <= MAXIMUM_BITS:
        raise CompileError(f"weight_bits: expected {MINIMUM_BITS} to {MAXIMUM_BITS}, got {bits}")
    assert graph.lower is not None and graph.upper is not None
    graph = _one_source_per_column(graph)
    assert graph.lower is not None and graph.upper is not None
    largest = (1 << (bits - 1)) - 1
    half_range = np.maximum((graph.upper - graph.lower) / 2, _SMALLEST_RANGE)
    scale, offset = np.zeros(graph.wire_count), np.zeros(graph.wire_count)
    for node in graph.linears:
        limit = OUTPUT_LIMIT if is_output(graph, node) else lookup_limit(noise_percent)
        scale[wires(node)] = limit / half_range[wires(node)]
        offset[wires(node)] = (graph.upper[wires(node)] + graph.lower[wires(node)]) / 2
    for source, reader in enumerate(graph.nodes):
        if not isinstance(reader, Linear):
            scale[wires(reader)] = _source_scale(graph, source, scale, largest)
    quantised = [
        replace(node, weights=_integers(node, scale)) if isinstance(node, Linear) else node for node in graph.nodes
    ]
    return check(replace(graph, nodes=tuple(quantised), scale=scale, offset=offset))


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


def _source_scale(graph: Graph, source: int, scale: Reals, largest: int) -> float:
    """The smallest scale of an input or look-up at which no weight on it exceeds `largest`."""
    assert graph.lower is not None and graph.upper is not None
    needed = 0.0
    for node in graph.linears:
        columns = column_sources(graph, node) == source
        if columns.any():
            strength = np.abs(node.weights) * _row_scales(node, scale)[:, :, None] * columns[:, None, :]
            needed = max(needed, float(strength.max()) / largest)
    owner = graph.nodes[source]
    extent = max(float(np.abs(graph.lower[wires(owner)]).max()), float(np.abs(graph.upper[wires(owner)]).max()))
    room = INPUT_LIMIT if source == 0 else 0.5
    if needed * extent > room:
        raise PrecisionOverflowError(
            f"'{owner.origin}': its values reach {needed * extent:.2f} of the torus with weights up to {largest}, {room} is the most; "
            "use more weight_bits"
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
