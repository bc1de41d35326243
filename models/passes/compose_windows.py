"""One linear node for a wide one on others (a convolution on an average pool), position by position: weights stay shared.

Every position reads the windows of what it read, each wire once; positions whose windows overlap in the same way share a block. Where no windows
overlap all wires stay in their places, so that positions at a border, which read zeros, share the block of those inside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import ZERO_WIRE, Linear
from cloakwork.models.graph.merge_equal import MAX_WEIGHTS

# Rows that read different rows of the same positions, as those of a residual sum do, as rows of one position.
#
# An addition has a position for each of its numbers. Put together with a convolution, each would gather the whole window for itself: the sixteen
# channels of a pixel read it once where they are rows of one position, which reads beside it what the sixteen add.

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


_MOST_READ = 1 << 25  # wires, repeated ones counted, that are looked at
_MOST_ADDED = 1 << 24  # products that are added one by one


def composed_windows(node: Linear, sources: list[Linear], most_weights: int) -> Linear | None:
    """Returns the node after its sources, with its own wires; None when that takes more multiplications than `most_weights`."""
    windows = _Windows.of(node, sources)
    if windows is None:
        return None
    names, slots = _distinct(windows.read)
    rows = node.weights.shape[1]
    count = int((names >= 0).sum())
    if count * rows > most_weights:
        return None
    keys = [node.block[:, None], windows.kind, windows.start]
    first, block = _distinct_rows(np.concatenate([*keys, slots, names[:, :1] < 0], axis=1))
    if count == int((windows.read >= 0).sum()):
        kept = _distinct_rows(np.concatenate(keys, axis=1))
        if len(kept[0]) < len(first):
            first, block = kept
            names, slots = windows.read, np.broadcast_to(np.arange(windows.read.shape[1]), windows.read.shape)
    if len(first) * rows * names.shape[1] > MAX_WEIGHTS:
        return None
    weights = np.zeros((len(first), names.shape[1], rows))
    bias = np.empty((len(first), rows))
    for group, position in enumerate(first.tolist()):
        block_weights, kind = node.weights[node.block[position]], windows.kind[position]
        place = slots[position][windows.start[position, :, None] + np.arange(windows.factors.shape[1])]
        row, column = np.nonzero(block_weights)
        if row.size * place.shape[1] > _MOST_ADDED:
            spread = np.zeros((len(place), names.shape[1]))
            np.add.at(spread, (np.arange(len(place))[:, None], place), windows.factors[kind])
            weights[group] = spread.T @ block_weights.T
        else:
            added = block_weights[row, column, None] * windows.factors[kind[column]]
            np.add.at(weights[group], (place[column], row[:, None]), added)
        if names is not windows.read:
            weights[group, names[position] < 0] = 0.0
        bias[group] = node.bias[node.block[position]] + block_weights @ windows.bias[kind]
    used = np.flatnonzero((names >= 0).any(axis=0))
    used = used if len(used) else np.zeros(1, dtype=np.int64)
    return replace(
        node,
        gather=np.ascontiguousarray(names[:, used]),
        block=block,
        weights=np.ascontiguousarray(weights[:, used].transpose(0, 2, 1)),
        bias=bias,
    )


@dataclass(frozen=True, eq=False)
class _Windows:
    """Windows that the columns of a node read: wires [P, W], where in them the window of each column begins [P, K], and which row of weights that
    is [P, K] of factors [kinds, width]. Columns that read rows of one position of a source share a window."""

    read: Indices
    start: Indices
    kind: Indices
    factors: Reals
    bias: Reals

    @classmethod
    def of(cls, node: Linear, sources: list[Linear]) -> _Windows | None:
        """Puts wires of no source behind the windows; they read nothing of what follows them. None where there is too much to read."""
        width = max(source.weights.shape[2] for source in sources)
        rank, leads = _ranked(source_positions(node, sources))
        behind, alone = width * (int(rank.max()) + 1), rank < 0
        start = np.where(alone, behind + np.cumsum(alone, axis=1) - 1, width * rank)
        if len(start) * (int(start.max()) + width) > _MOST_READ:
            return None
        read = np.full((len(start), int(start.max()) + width), ZERO_WIRE, dtype=np.int64)
        line, column = np.nonzero(alone)
        read[line, start[line, column]] = node.gather[line, column]
        kind, own_factors = np.zeros_like(node.gather), np.zeros((1, width))
        own_factors[0, 0] = 1.0
        factors, bias, count = [own_factors], [np.zeros(1)], 1
        for source in sources:
            blocks, rows, columns = source.weights.shape
            inside = (node.gather >= source.first_wire) & (node.gather < source.first_wire + source.size)
            position, row = np.divmod(node.gather[inside] - source.first_wire, rows)
            kind[inside] = count + source.block[position] * rows + row
            line, column = np.nonzero(inside & leads)
            places = start[line, column, None] + np.arange(columns)
            read[line[:, None], places] = source.gather[(node.gather[line, column] - source.first_wire) // rows]
            factors.append(np.pad(source.weights.reshape(-1, columns), ((0, 0), (0, width - columns))))
            bias.append(source.bias.reshape(-1))
            count += blocks * rows
        return cls(read, start, kind, np.concatenate(factors), np.concatenate(bias))


def _ranked(numbers: Indices) -> tuple[Indices, NDArray[np.bool_]]:
    """Returns [P, K]: the rank of a number among the different ones of its line, -1 of -1; and whether it is the first of its equals there."""
    order = np.argsort(numbers, axis=1, kind="stable")
    ordered = np.take_along_axis(numbers, order, axis=1)
    fresh = np.ones(numbers.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    rank, leads = np.empty_like(numbers), np.empty_like(fresh)
    np.put_along_axis(rank, order, np.cumsum(fresh, axis=1) - 1 - (ordered[:, :1] < 0), axis=1)
    np.put_along_axis(leads, order, fresh, axis=1)
    return rank, leads


def _distinct_rows(keys: Indices) -> tuple[Indices, Indices]:
    """Returns the first of every kind of rows, in ascending order of what they hold, and of which kind each is; long rows are compared by their
    bytes."""
    known: dict[bytes, int] = {}
    kind = np.array([known.setdefault(row.tobytes(), len(known)) for row in keys])
    _, first = np.unique(kind, return_index=True)
    order = np.array(sorted(range(len(first)), key=lambda i: keys[first[i]].tolist()))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[kind]


def _distinct(read: Indices) -> tuple[Indices, Indices]:
    """Returns every wire of a row once, in ascending order, and the place [P, columns] of each column among them."""
    order = np.argsort(read, axis=1, kind="stable")
    ordered = np.take_along_axis(read, order, axis=1)
    fresh = np.ones(read.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = np.cumsum(fresh, axis=1) - 1
    slots = np.empty_like(place)
    np.put_along_axis(slots, order, place, axis=1)
    names = np.full((len(read), int(place.max()) + 1), ZERO_WIRE, dtype=np.int64)
    np.put_along_axis(names, place, ordered, axis=1)
    return names, slots
