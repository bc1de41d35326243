"""Columns (channels) of the input that differ much in size get an offset and a scale of their own, which the client applies before encryption.

    u = (x - offset) scale in [-1, 1],   W x = (W / scale) u + W offset

One scale for all would leave the small ones below the noise and the weights of the large ones with a bit or two. Inputs whose columns are alike,
such as the pixels of an image, keep one range for all: that says less of the data that the model was calibrated with.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.client_steps import Rescale
from cloakwork.models.ir import Graph, Linear, Node, Reals, check, wires
from cloakwork.models.passes.equalise_lookups import undone
from cloakwork.models.passes.tails import largest, tail_end

_ALIKE = 4.0  # ranges within this factor of each other are left alone
_SPARSE = 0.8  # of the samples with one value make a column that says nothing of its range
RESCALED = (-1.0, 1.0)  # the range of rescaled inputs
_LEAST_SHARE = 1 / 64  # of the median range, for columns that are constant


def rescale_input(graph: Graph, samples: Reals) -> tuple[Graph, Rescale | None]:
    """The graph on rescaled inputs, and the client's step; itself and None where the columns are alike.

    Args:
        graph: levelled.
        samples: [samples, *shape of the input].
    """
    shape = graph.input.shape
    channels = samples.reshape(len(samples), shape[0], -1) if len(shape) > 1 else samples.reshape(len(samples), -1, 1)
    values = np.moveaxis(channels, 1, -1).reshape(-1, channels.shape[1])  # [samples and positions, columns]
    low, high = values.min(axis=0), values.max(axis=0)
    known = (high > low) & ~_sparse(values, low, high)
    if known.sum() < 2 or _alike(low[known], high[known]):
        return graph, None
    low, high = _widened(values, low, high)
    if len(shape) > 1:  # padding is zero, and stays it
        offset, half = np.zeros_like(low), np.maximum(np.abs(low), np.abs(high))
    else:
        offset, half = (low + high) / 2, (high - low) / 2
    floor = _LEAST_SHARE * float(np.median(half[half > 0]))
    constant = half <= 0
    half = np.where(constant, np.maximum(np.abs(low) / 2, floor), half)
    low, high = np.where(constant, offset - half, low), np.where(constant, offset + half, high)
    own = (-1, *[1] * (len(shape) - 1))
    step = Rescale(*(np.ascontiguousarray(facts.reshape(own)) for facts in (low, high, offset, 1 / half)))
    return _on_rescaled(graph, step), step


def _sparse(values: Reals, low: Reals, high: Reals) -> np.ndarray:
    """Columns of which most values are one of the ends: a pixel at the border, one category of many."""
    return np.asarray(((values == low).mean(axis=0) > _SPARSE) | ((values == high).mean(axis=0) > _SPARSE))


def _alike(low: Reals, high: Reals) -> bool:
    reach = np.maximum(np.abs(low), np.abs(high))
    width = high - low
    return bool(reach.max() <= _ALIKE * width.min() and width.max() <= _ALIKE * width.min())


def _widened(values: Reals, low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """As far as fitted tails reach, and the extremes at least."""
    width = high - low
    above = tail_end(largest(values), len(values), width)
    below = -tail_end(largest(-values), len(values), width)
    varies = width > 0
    return np.where(varies, np.minimum(low, below), low), np.where(varies, np.maximum(high, above), high)


def _on_rescaled(graph: Graph, step: Rescale) -> Graph:
    own, shape = wires(graph.input), graph.input.shape
    centre, factor = np.zeros(graph.wire_count + 1), np.ones(graph.wire_count + 1)
    centre[own] = np.broadcast_to(step.offset, shape).reshape(-1)
    factor[own] = np.broadcast_to(step.scale, shape).reshape(-1)
    nodes: list[Node] = [graph.input]
    for node in graph.nodes[1:]:
        moved = undone(node, centre, factor) if isinstance(node, Linear) else node
        assert moved is not None  # without padding, or without an offset, there is one bias for a block
        nodes.append(moved)
    return check(replace(graph, nodes=tuple(nodes)))
