"""Rows of a table in cells of rows near each other, none with more than a limit: k-means.

Centroids are Lloyd's, of a sample; then every row goes to the nearest that has room, where rows that would lose most by another cell come first
(each is offered to its next cell when one that loses more comes). Centroids become the means of their cells, and rows go to cells again.

Source: [Llo82] the means; [AV07] where they start; [GS62] deferred acceptance, cells as places that prefer rows which would lose more elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.words import Progress, report
from cloakwork.models.neighbours.client import Integers
from cloakwork.models.neighbours.quantise import SmallIntegers

Distances: TypeAlias = NDArray[np.float32]
_SEED: Final = 20  # the same table has the same cells
_SAMPLE_OF_A_CELL: Final = 128  # rows that centroids are found from
_STARTS_OF_A_CELL: Final = 8  # rows of them that first centroids are chosen from
_ITERATIONS: Final = 10
_PASSES: Final = 4  # of all rows: with two, cells that were full have bad centroids (recall 0.66, with three 0.84)
_CANDIDATES: Final = 16  # nearest cells that a row is offered to before others are looked for
_DISTANCES_AT_ONCE: Final = 1 << 22


def clustered(integers: SmallIntegers, cells: int, capacity: int, progress: Progress = None) -> Integers:
    """Returns the cell of every row, [rows].

    Args:
        integers: [rows, features].
        cells: how many, at least rows / capacity; some may stay empty.
        capacity: the most rows of one.
        progress: called with rows done and in all.
    """
    rows = len(integers)
    assert cells * capacity >= rows
    sample = _sample(integers, min(rows, cells * _SAMPLE_OF_A_CELL))
    total = _ITERATIONS * len(sample) + _PASSES * rows
    centroids = _lloyd(sample, cells, total, progress)
    cell_of = np.zeros(rows, dtype=np.int64)
    for number in range(_PASSES):
        done = _ITERATIONS * len(sample) + number * rows
        cell_of = _with_room(integers, centroids, capacity, _later(progress, done, total))
        centroids = means(integers, cell_of, centroids)
    return _in_a_chain(centroids)[cell_of]


def means(integers: SmallIntegers, cell_of: Integers, others: Distances) -> Distances:
    """Returns the means of the rows of every cell, [cells, features]; of an empty one what `others` has."""
    cells = len(others)
    sums, counts = np.zeros(others.shape), np.bincount(cell_of, minlength=cells)
    for part in _parts(len(integers), integers.shape[1]):
        order = np.argsort(cell_of[part], kind="stable")
        numbers, first = np.unique(cell_of[part][order], return_index=True)
        sums[numbers] += np.add.reduceat(integers[part][order].astype(np.float64), first, axis=0)
    centroids: Distances = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], others).astype(
        np.float32
    )
    return centroids


def _sample(integers: SmallIntegers, count: int) -> Distances:
    """Returns [count, features], each row once."""
    chosen = np.random.default_rng(_SEED).choice(len(integers), count, replace=False)
    return integers[chosen].astype(np.float32)


def _lloyd(sample: Distances, cells: int, total: int, progress: Progress) -> Distances:
    """Returns centroids of a sample, from `_spread_out` ones on."""
    centroids = _spread_out(sample[: cells * _STARTS_OF_A_CELL], cells)
    numbers = np.zeros(len(sample), dtype=np.int64)
    for iteration in range(_ITERATIONS):
        for part in _parts(len(sample), cells):
            numbers[part] = _far(sample[part], centroids).argmin(axis=1)
        order = np.argsort(numbers, kind="stable")
        used, first, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        centroids[used] = np.add.reduceat(sample[order], first, axis=0) / counts[:, None]
        report(progress, (iteration + 1) * len(sample), total)
    return centroids


def _spread_out(rows: Distances, cells: int) -> Distances:
    """Returns rows, each taken with a chance as the square of its distance from those before: k-means++. [cells, features]"""
    rng = np.random.default_rng(_SEED)
    chosen = np.empty((cells, rows.shape[1]), dtype=np.float32)
    far = np.full(len(rows), np.inf)
    number = 0
    for cell in range(cells):
        chosen[cell] = rows[number]
        far = np.minimum(far, np.square(rows - chosen[cell]).sum(axis=1, dtype=np.float64))
        sums = np.cumsum(far)
        number = min(int(np.searchsorted(sums, rng.random() * sums[-1], side="right")), len(rows) - 1)
    return chosen


def _far(rows: Distances, centroids: Distances) -> Distances:
    """Returns squared distances less the rows' own squares, [rows, cells]."""
    distances: Distances = np.square(centroids).sum(axis=1) - 2 * (rows @ centroids.T)
    return distances


def _later(progress: Progress, done: int, total: int) -> Progress:
    """For a part of the work, after so much of it."""
    return None if progress is None else lambda rows, _: progress(done + rows, total)


def _with_room(integers: SmallIntegers, centroids: Distances, capacity: int, progress: Progress) -> Integers:
    """Returns the cell of every row, [rows]."""
    cell_of = np.full(len(integers), -1, dtype=np.int64)
    left = np.arange(len(integers))
    free = np.full(len(centroids), capacity, dtype=np.int64)
    while len(left):  # each time all are placed, or at least `_CANDIDATES` cells filled
        open_cells = np.flatnonzero(free)
        candidates, far = _candidates(integers, left, centroids, open_cells, progress)
        progress = None  # the rows that are left are few
        placed = _accepted(candidates, far, free)
        cell_of[left] = placed
        free -= np.bincount(placed[placed >= 0], minlength=len(free))
        left = left[placed < 0]
    return cell_of


def _candidates(
    integers: SmallIntegers, rows: Integers, centroids: Distances, cells: Integers, progress: Progress
) -> tuple[Integers, Distances]:
    """The nearest of some cells and how far they are, the nearest first: [rows, candidates] each."""
    count = min(_CANDIDATES, len(cells))
    numbers, far = np.empty((len(rows), count), dtype=np.int64), np.empty((len(rows), count), dtype=np.float32)
    for part in _parts(len(rows), max(len(cells), integers.shape[1])):
        every = _far(integers[rows[part]].astype(np.float32), centroids[cells])
        near = np.argpartition(every, count - 1, axis=1)[:, :count]
        distances = np.take_along_axis(every, near, axis=1)
        order = np.argsort(distances, axis=1, kind="stable")
        numbers[part] = cells[np.take_along_axis(near, order, axis=1)]
        far[part] = np.take_along_axis(distances, order, axis=1)
        report(progress, part.stop, len(rows))
    return numbers, far


def _accepted(candidates: Integers, far: Distances, free: Integers) -> Integers:
    """Returns the cell of every row, -1 where all of its candidates are full of rows that would lose more, [rows]."""
    rows, count = candidates.shape
    # What a row loses by its next candidate; by those after the last, more than by any other.
    loss = np.diff(far, axis=1, append=np.float32(np.inf))
    choice, cell_of = np.zeros(rows, dtype=np.int64), candidates[:, 0].copy()
    contested = np.ones(len(free) + 1, dtype=bool)  # cells that more rows want; the last stands for none
    while contested.any():
        asking = np.flatnonzero(contested[cell_of])
        cells = cell_of[asking]
        order = np.lexsort((-loss[asking, choice[asking]], cells))
        sorted_cells = cells[order]
        rank = np.arange(len(order)) - np.searchsorted(sorted_cells, sorted_cells)
        beyond = asking[order[rank >= free[sorted_cells]]]
        choice[beyond] += 1
        again = beyond[choice[beyond] < count]
        cell_of[beyond] = -1
        cell_of[again] = candidates[again, choice[again]]
        contested[:] = False
        contested[cell_of[again]] = True
    return cell_of


def _in_a_chain(centroids: Distances) -> Integers:
    """New numbers of cells, each next to one that is near it: an answer has places for few of one class of numbers. [cells]"""
    numbers, left = np.empty(len(centroids), dtype=np.int64), np.ones(len(centroids), dtype=bool)
    cell = 0
    for number in range(len(centroids)):
        numbers[cell], left[cell] = number, False
        far = np.square(centroids - centroids[cell]).sum(axis=1)
        cell = int(np.where(left, far, np.inf).argmin())
    return numbers


def _parts(rows: int, width: int) -> Iterator[slice]:
    """Yields the parts of a table [rows, width], about `_DISTANCES_AT_ONCE` numbers each."""
    step = max(1, _DISTANCES_AT_ONCE // width)
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))
