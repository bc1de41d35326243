"""One linear node for a wide one on others (a convolution on an average pool), position by position: weights stay shared.

Every position reads the windows of what it read, each wire once; positions whose windows overlap in the same way share a block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.affine import MAX_WEIGHTS
from cloakwork.models.graph.ir import ZERO_WIRE, Linear

_MOST_READ = 1 << 25  # wires, repeated ones counted, that are looked at


def composed_windows(node: Linear, sources: list[Linear], most_weights: int) -> Linear | None:
    """The node after its sources, with its own wires; None when that takes more multiplications than `most_weights`."""
    width = max(source.weights.shape[2] for source in sources)
    if node.gather.size * width > _MOST_READ:
        return None
    windows = _Windows.of(node, sources, width)
    names, slots = _distinct(windows.read.reshape(len(node.gather), -1))
    rows = node.weights.shape[1]
    if int((names >= 0).sum()) * rows > most_weights:
        return None
    keys = np.concatenate([node.block[:, None], windows.kind, slots, names[:, :1] < 0], axis=1)
    _, first, block = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    if len(first) * rows * names.shape[1] > MAX_WEIGHTS:
        return None
    weights = np.zeros((len(first), names.shape[1], rows))
    bias = np.empty((len(first), rows))
    for group, position in enumerate(first.tolist()):
        own, kind = node.weights[node.block[position]], windows.kind[position]
        np.add.at(weights[group], slots[position], (own[:, :, None] * windows.factors[kind]).reshape(rows, -1).T)
        weights[group, names[position] < 0] = 0.0
        bias[group] = node.bias[node.block[position]] + own @ windows.bias[kind]
    return replace(
        node,
        gather=names,
        block=block.reshape(-1).astype(np.int64),
        weights=np.ascontiguousarray(weights.transpose(0, 2, 1)),
        bias=bias,
    )


@dataclass(frozen=True, eq=False)
class _Windows:
    """What each column of a node reads: wires [P, K, width], and which row of weights that is [P, K] of factors [kinds, width]."""

    read: Indices
    kind: Indices
    factors: Reals
    bias: Reals

    @classmethod
    def of(cls, node: Linear, sources: list[Linear], width: int) -> _Windows:
        """Wires of no source are windows of one."""
        read = np.full((*node.gather.shape, width), ZERO_WIRE, dtype=np.int64)
        read[..., 0] = node.gather
        kind = np.zeros_like(node.gather)
        alone = np.zeros((1, width))
        alone[0, 0] = 1.0
        factors, bias, count = [alone], [np.zeros(1)], 1
        for source in sources:
            blocks, rows, own = source.weights.shape
            inside = (node.gather >= source.first_wire) & (node.gather < source.first_wire + source.size)
            position, row = np.divmod(node.gather[inside] - source.first_wire, rows)
            kind[inside] = count + source.block[position] * rows + row
            read[inside] = ZERO_WIRE
            read[inside, :own] = source.gather[position]
            factors.append(np.pad(source.weights.reshape(-1, own), ((0, 0), (0, width - own))))
            bias.append(source.bias.reshape(-1))
            count += blocks * rows
        return cls(read, kind, np.concatenate(factors), np.concatenate(bias))


def _distinct(read: Indices) -> tuple[Indices, Indices]:
    """Every wire of a row once, in ascending order, and the place [P, columns] of each column among them."""
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
