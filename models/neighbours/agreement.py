"""Agreement of a quantised table with unrounded distances, on its own rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.words import Progress, report
from cloakwork.models.arrays import Reals
from cloakwork.models.neighbours.cells import Cells
from cloakwork.models.neighbours.client import Integers, NeighbourClient, nearest_rows
from cloakwork.models.neighbours.quantise import Quantised, ScaledRows, row_ranges

JUDGED_ROWS: Final = 400


@dataclass(frozen=True, eq=False)
class Judged:
    """Agreement of some rows with all others.

    Attributes:
        rows: numbers of them, [judged].
        nearest: the rows nearest to each by the integers, [judged, n_neighbors]; none of a table that has no more rows than that.
        agreement: share of them that are decided as by unrounded distances; of a regressor, within a hundredth of the values' spread.
    """

    rows: Integers
    nearest: Integers
    agreement: float

    def recall(self, cells: Cells, table: NDArray[np.int16]) -> float:
        """Returns the share of their nearest rows that lie in the cells that each asks for."""
        if self.nearest.size == 0:
            return 1.0
        scored = [
            cells.scored(table[row].astype(np.int64))[near] for row, near in zip(self.rows, self.nearest, strict=True)
        ]
        return float(np.mean(scored))


def judged(client: NeighbourClient, rows: ScaledRows, quantised_rows: Quantised, progress: Progress) -> Judged:
    """Compares each of 400 rows at most against all others, by integers and by what they round."""
    if len(rows) <= client.n_neighbors:
        return Judged(np.empty(0, dtype=np.int64), np.empty((0, client.n_neighbors), dtype=np.int64), 1.0)
    numbers = np.unique(np.linspace(0, len(rows) - 1, JUDGED_ROWS).astype(int))
    by_integers = _Nearest(numbers, quantised_rows.integers[numbers].astype(np.float64), client.n_neighbors)
    by_reals = _Nearest(numbers, rows.at(numbers) / quantised_rows.step, client.n_neighbors)
    for part in row_ranges(quantised_rows.integers.shape):
        by_integers.take(
            part, quantised_rows.integers[part].astype(np.float64), quantised_rows.factor, quantised_rows.offsets[part]
        )
        reals = rows.at(part) / quantised_rows.step  # of the integers' size, whatever the table's is
        by_reals.take(
            part, reals, quantised_rows.factor, -np.square(reals).sum(axis=1) if client.metric == "euclidean" else 0.0
        )
        report(progress, len(rows) + part.stop, 2 * len(rows))
    decided = [client.of_rows(each.rows, np.ones(each.rows.shape)) for each in (by_integers, by_reals)]
    return Judged(numbers, by_integers.rows, _agreement(client, *decided))


def _agreement(client: NeighbourClient, by_integers: NDArray[Any], by_reals: NDArray[Any]) -> float:
    if client.classes is not None:
        return float((by_integers == by_reals).mean())
    spread = float(np.std(client.target)) or 1.0
    return float((np.abs(by_integers - by_reals) <= 0.01 * spread).mean())


class _Nearest:
    """The rows nearest to some of them but for themselves, as the table goes by."""

    def __init__(self, judged: NDArray[np.int64], queries: Reals, count: int) -> None:
        self._judged, self._queries, self._count = judged, queries, count
        self._scores = np.empty((len(judged), 0))
        self.rows = np.empty((len(judged), 0), dtype=np.int64)

    def take(self, part: slice, table: Reals, factor: int, offsets: Reals | Integers | float) -> None:
        scores = factor * (self._queries @ table.T) + offsets
        numbers = np.arange(part.start, part.stop)
        judged_places = self._judged - part.start
        inside = (judged_places >= 0) & (judged_places < len(numbers))
        scores[np.flatnonzero(inside), judged_places[inside]] = -np.inf
        scores = np.concatenate([self._scores, scores], axis=1)  # those before come first, as equal ones do
        rows = np.concatenate([self.rows, np.broadcast_to(numbers, (len(judged_places), len(numbers)))], axis=1)
        kept = np.stack([nearest_rows(each, min(self._count, scores.shape[1])) for each in scores])
        self._scores = np.take_along_axis(scores, kept, axis=1)
        self.rows = np.take_along_axis(rows, kept, axis=1)
