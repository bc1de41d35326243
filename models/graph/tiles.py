"""A level in tiles: some positions of its linear nodes, and the look-ups that read these, at a time.

Of results of linear nodes, which look-ups read and nobody else, a machine then holds those of a tile alone; and positions that lie near each other
read what lies near each other, so that the tiles of the level before are free as soon as the last of their neighbours is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.ir import Linear, Lookup, Product, wires

Computed: TypeAlias = Sequence[Linear | Product]


def tiles(computed: Computed, looked_up: Sequence[Lookup], most: int) -> Iterator[tuple[Computed, Sequence[Lookup]]]:
    """Yields what is computed before look-ups and the look-ups, in tiles of about `most` look-ups; levels with shifts, with products in them, or with
    linear nodes on linear nodes, as one.

    Nodes keep their wires: those of a tile are some positions of a linear node, some rows where it has one position, some elements of a look-up.
    """
    linears = [node for node in computed if isinstance(node, Linear)]
    count = -(-sum(len(node.gather) for node in looked_up) // max(1, most))
    whole = len(linears) < len(computed) or _read_each_other(linears)
    if count < 2 or whole or any(node.shifts is not None for node in looked_up):
        yield computed, looked_up
        return
    end = max([*map(_end, linears), *map(_end, looked_up)])
    tile = np.full(1 + end, count - 1, dtype=np.int64)
    parts: list[list[Linear]] = [[] for _ in range(count)]
    for node in linears:
        for number, part in _cut(node, count):
            parts[number].append(part)
            tile[wires(part)] = number
    for number, part_of_linears in enumerate(parts):
        yield part_of_linears, [part for node in looked_up for part in _elements(node, tile[node.gather] == number)]


def _read_each_other(linears: Sequence[Linear]) -> bool:
    is_result = np.zeros(1 + max(map(_end, linears), default=0), dtype=bool)
    for node in linears:
        is_result[wires(node)] = True
    return any(bool(is_result[node.gather].any()) for node in linears)


def _end(node: Linear | Lookup) -> int:
    """Behind all wires that it has or reads."""
    return max(node.first_wire + node.size, int(node.gather.max()) + 1)


def _cut(node: Linear, count: int) -> Iterator[tuple[int, Linear]]:
    """Yields the parts of a node, and in which tile each is."""
    positions, rows = len(node.gather), node.weights.shape[1]
    if positions == 1:
        for number, (first, end) in _bounds(rows, count):
            weights, bias = node.weights[:, first:end], node.bias[:, first:end]
            yield number, replace(node, first_wire=node.first_wire + first, weights=weights, bias=bias)
        return
    for number, (first, end) in _bounds(positions, count):
        gather, block = node.gather[first:end], node.block[first:end]
        yield number, replace(node, first_wire=node.first_wire + first * rows, gather=gather, block=block)


def _bounds(size: int, count: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields first and end of each part of `count` things, without the empty ones, by its tile."""
    for number in range(count):
        first, end = size * number // count, size * (number + 1) // count
        if first < end:
            yield number, (first, end)


def _elements(node: Lookup, chosen: NDArray[np.bool_]) -> list[Lookup]:
    """Returns look-ups of the elements that are chosen, one for each run of them: a node has wires that follow each other."""
    inside: Indices = np.flatnonzero(chosen)
    if not len(inside):
        return []
    runs = np.split(inside, np.flatnonzero(np.diff(inside) > 1) + 1)
    return [
        replace(
            node,
            first_wire=node.first_wire + int(run[0]),
            gather=node.gather[run[0] : run[-1] + 1],
            function=node.function[run[0] : run[-1] + 1],
        )
        for run in runs
    ]
