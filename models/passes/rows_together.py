"""Rows that read different rows of the same positions, as those of a residual sum do, as rows of one position.

An addition has a position for each of its numbers. Put together with a convolution, each would gather the whole window for itself: the sixteen
channels of a pixel read it once where they are rows of one position, which reads beside it what the sixteen add.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.affine import MAX_WEIGHTS
from cloakwork.models.graph.ir import Linear

_DENSE = 0.5  # part of the weights that are not zero, from which rows are better together


def rows_together(node: Linear, sources: list[Linear]) -> tuple[Linear, Indices] | None:
    """Returns the node with a position for each combination of its sources' positions, and the wire (from the node's first) that each of its rows
    has there; None where that is nothing new, or too much."""
    count, rows, width = len(node.gather), node.weights.shape[1], node.weights.shape[2]
    if rows > 1:
        return None
    read, group = np.unique(source_positions(node, sources), axis=0, return_inverse=True)
    size, rest = divmod(count, len(read))
    group = group.reshape(-1)
    if size < 2 or rest or bool((np.bincount(group) != size).any()):
        return None
    order = np.argsort(group, kind="stable")
    blocks, block = np.unique(node.block[order].reshape(-1, size), axis=0, return_inverse=True)
    if len(blocks) * size * size * width > MAX_WEIGHTS:
        return None
    weights, row = np.zeros((len(blocks), size, size, width)), np.arange(size)
    weights[:, row, row] = node.weights[blocks, 0]
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    together = replace(
        node,
        gather=node.gather[order].reshape(-1, size * width),
        block=block.reshape(-1).astype(np.int64),
        weights=weights.reshape(len(blocks), size, size * width),
        bias=node.bias[blocks, 0],
    )
    return together, place


def is_dense(node: Linear) -> bool:
    """Whether rows share most of what their positions read."""
    used = np.count_nonzero(node.weights, axis=(1, 2))[node.block]
    return bool(used.sum() >= _DENSE * len(node.gather) * node.weights[0].size)


def source_positions(node: Linear, sources: list[Linear]) -> Indices:
    """Returns [P, K]: a number for the position of a source that is read, -1 for what is no source's."""
    result, count = np.full(node.gather.shape, -1, dtype=np.int64), 0
    for source in sources:
        inside = (node.gather >= source.first_wire) & (node.gather < source.first_wire + source.size)
        result[inside] = count + (node.gather[inside] - source.first_wire) // source.weights.shape[1]
        count += len(source.gather)
    return result
