"""A table's rows as integers, a part of it at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.words import Progress, report
from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.client import Integers, Metric, scaled

SmallIntegers: TypeAlias = NDArray[np.int16]
_NUMBERS_AT_ONCE: Final = 1 << 21  # as reals of 64 bits


def score_factor(metric: Metric) -> int:
    """Returns the factor of inner products in scores."""
    return 2 if metric == "euclidean" else 1


def row_ranges(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yields parts of a table [rows, features]."""
    step = max(1, _NUMBERS_AT_ONCE // shape[1])
    for first in range(0, shape[0], step):
        yield slice(first, min(first + step, shape[0]))


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Rows as distances are taken of them: about a centre, or of length 1.

    Attributes:
        largest: absolute value of all numbers.
        whole: whether all are integers.
    """

    values: NDArray[Any]
    centre: Reals
    metric: Metric
    largest: float
    whole: bool

    @classmethod
    def of(cls, values: NDArray[Any], metric: Metric) -> ScaledRows:
        """Scales rows. Args: values: [rows, features]. Raises: CompileError: a number that is not finite."""
        whole = True
        low, high = np.full(values.shape[1], np.inf), np.full(values.shape[1], -np.inf)
        for part in row_ranges(values.shape):
            reals = values[part].astype(np.float64)
            if not np.isfinite(reals).all():
                raise CompileError("table: expected finite numbers, found one that is not")
            whole = whole and np.array_equal(reals, np.rint(reals))
            low, high = np.minimum(low, reals.min(axis=0)), np.maximum(high, reals.max(axis=0))
        centre = low / 2 + high / 2 if metric == "euclidean" else np.zeros(values.shape[1])
        if whole:
            centre = np.floor(centre)  # whole numbers stay whole
        rows = cls(values, centre, metric, 0.0, whole)
        largest = 0.0
        for part in row_ranges(values.shape):
            moved = rows.at(part)
            largest = max(largest, float(np.abs(moved).max()))
            whole = whole and np.array_equal(moved, np.rint(moved))
        return cls(values, centre, metric, largest, whole)

    def __len__(self) -> int:
        return len(self.values)

    def at(self, which: slice | NDArray[np.int64]) -> Reals:
        return scaled(self.values[which].astype(np.float64), self.centre, self.metric)


@dataclass(frozen=True, eq=False)
class Quantised:
    """Integers of a table and what sets are chosen by.

    Attributes:
        integers: [rows, features] int16.
        offsets: [rows], added to inner products.
        absolute, squares: sums of every row, [rows].
        middle, span: scores are within middle +- span.
    """

    integers: SmallIntegers
    offsets: Integers
    absolute: Integers
    squares: Integers
    step: float
    limit: int
    middle: int
    span: int
    factor: int


def quantised(rows: ScaledRows, bits: int, progress: Progress = None) -> Quantised:
    """Quantises rows. Args: bits: of a number, with its sign, at most 16. progress: of twice the rows."""
    limit = (1 << (bits - 1)) - 1
    step = rows.largest / limit if rows.largest > 0 else 1.0
    if rows.largest <= limit and rows.whole:
        step = 1.0  # whole numbers that fit are not rounded
    integers = np.empty(rows.values.shape, dtype=np.int16)
    for part in row_ranges(integers.shape):
        integers[part] = np.rint(rows.at(part) / step)
        report(progress, part.stop, 2 * len(rows))
    limit = max(1, -int(integers.min()), int(integers.max()))
    factor = score_factor(rows.metric)
    absolute, squares = row_sums(integers)
    offsets = row_offsets(squares, rows.metric)
    # |<w, x>| of queries within the limit; of cosines also by the lengths of both
    reach = factor * limit * absolute
    if rows.metric == "cosine":
        longest = 1 / step + math.sqrt(rows.values.shape[1]) / 2  # of a query of length 1, rounded
        reach = np.minimum(reach, np.ceil(np.sqrt(squares) * longest).astype(np.int64))
    low, high = int((offsets - reach).min()), int((offsets + reach).max())
    middle = (low + high) // 2
    return Quantised(
        integers, offsets, absolute, squares, step, limit, middle, max(high - middle, middle - low), factor
    )


def row_sums(integers: SmallIntegers) -> tuple[Integers, Integers]:
    """Sums absolute values and squares, [rows] each."""
    absolute = np.empty(len(integers), dtype=np.int64)
    squares = np.empty_like(absolute)
    for part in row_ranges(integers.shape):
        wide = np.abs(integers[part].astype(np.float64))  # sums below 2^53 are exact
        absolute[part], squares[part] = wide.sum(axis=1), np.einsum("ij,ij->i", wide, wide)
    return absolute, squares


def row_offsets(squares: Integers, metric: Metric) -> Integers:
    """Returns what is added to the inner products of every row, [rows]."""
    return -squares if metric == "euclidean" else np.zeros_like(squares)
