"""The construction of an index: integers of a table, a set with room for their scores, and cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.levelled.neighbours.cells import CellLayout, CellLevels
from cloakwork.fhe_core.levelled.parameters import SETS
from cloakwork.fhe_core.words import Progress, report
from cloakwork.models.arrays import Reals
from cloakwork.models.errors import AccuracyWarning, CompileError, warn_user
from cloakwork.models.neighbours.cells import Cells
from cloakwork.models.neighbours.client import Integers, Metric, NeighbourClient, Weights, nearest_rows
from cloakwork.models.neighbours.clustering import clustered, means
from cloakwork.models.neighbours.quantise import Quantised, ScaledRows, quantised, row_ranges
from cloakwork.models.neighbours.sets import (
    CELL_SET,
    LARGE,
    MOST_BYTES,
    PROBES,
    SMALL,
    TRIED,
    cell_blocks,
    cell_set_for,
    full_answer_bytes,
    set_for,
)

# Agreement of a quantised table with unrounded distances, on its own rows.

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


CellCount = int | Literal["auto"] | None
MOST_BITS: Final = 12
MOST_PROBES: Final = 64
GOOD_AGREEMENT: Final = 0.99  # with unrounded distances: below it finer integers are looked for
LEAST_AGREEMENT: Final = 0.97  # below it a warning is given
LEAST_RECALL: Final = 0.9  # likewise


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Options of `NeighbourIndex.build`."""

    n_neighbors: int
    weights: Weights
    metric: Metric
    classify: bool
    input_bits: int | None
    cells: CellCount
    probes: int | None

    def check(self, values: NDArray[Any], targets: NDArray[Any]) -> None:
        """Checks the options against a table. Raises: CompileError: other shapes than [rows, features] and [rows], or a wish out of its range."""
        if values.dtype.kind not in "biuf":
            raise CompileError(f"table: expected numbers, got {values.dtype}")
        if values.ndim != 2 or 0 in values.shape or targets.shape != values.shape[:1]:
            raise CompileError(
                f"table, target: expected shapes [rows, features] and [rows], got {list(values.shape)} and {list(targets.shape)}"
            )
        if not 1 <= self.n_neighbors <= len(values):
            raise CompileError(
                f"n_neighbors: expected 1 to {len(values)}, as the table has rows, got {self.n_neighbors}"
            )
        if self.metric not in ("euclidean", "cosine") or self.weights not in ("uniform", "distance"):
            raise CompileError(
                f"metric, weights: expected euclidean or cosine, uniform or distance, got '{self.metric}', '{self.weights}'"
            )
        if self.input_bits is not None and not 2 <= self.input_bits <= MOST_BITS:
            raise CompileError(f"input_bits: expected 2 to {MOST_BITS}, got {self.input_bits}")
        if self.probes is not None and (
            self.cells is None or self.probes & (self.probes - 1) or not 1 <= self.probes <= MOST_PROBES
        ):
            raise CompileError(
                f"probes: expected a power of two up to {MOST_PROBES}, of a table in cells, got {self.probes}"
            )
        if isinstance(self.cells, str) and self.cells != "auto":
            raise CompileError(f"cells: expected a number, 'auto' or None, got '{self.cells}'")
        if self.cells not in (None, "auto"):
            self.probes_for(len(values))

    def ways(self, rows: int) -> tuple[bool, ...]:
        """Yields cell counts to try: cells or in cells, as they are to be tried."""
        if self.cells != "auto":
            return (self.cells is not None,)
        return (True, False) if full_answer_bytes("bgv12", rows, 1) > MOST_BYTES else (False, True)

    def probes_for(self, rows: int) -> list[int]:
        """Lists the numbers of probes to try, with which these cells have room for all rows. Raises: CompileError: there are none."""
        size, cells = SETS[CELL_SET].polynomial_size, None if self.cells == "auto" else self.cells
        tried = PROBES if self.probes is None else (self.probes,)
        fitting = [count for count in tried if cell_blocks(rows, cells, count, size) * size >= rows]
        if not fitting:
            least = -(-rows * min(tried) // size)
            raise CompileError(f"cells: expected at least {least} of {size // min(tried)} rows, got {self.cells}")
        return fitting


@dataclass(frozen=True, eq=False)
class Built:
    """A quantised table, and how it decides.

    Attributes:
        chosen: of a table in cells, how they lie and their levels.
    """

    client: NeighbourClient
    quantised: Quantised
    bits: int
    judged: Judged
    chosen: tuple[CellLayout, CellLevels] | None


def built(values: NDArray[Any], targets: NDArray[Any], options: IndexOptions, progress: Progress) -> Built:
    """Builds as finely as some set has room for. Raises: CompileError: numbers that are not finite, or no set for this many features or bits."""
    options.check(values, targets)
    rows = ScaledRows.of(values, options.metric)
    best: Built | None = None
    for in_cells in options.ways(len(values)):
        best = _finest(rows, targets, options, in_cells, progress) or best
        if best is not None and (best.chosen is not None or _answer_bytes(best.client) <= MOST_BYTES):
            break
    if best is None:
        raise CompileError(
            f"no set has room for scores of {values.shape[1]} features of {2 if options.input_bits is None else options.input_bits} bits"
            f"{' in cells' if isinstance(options.cells, int) else ''}: take fewer bits or fewer features (PCA)"
        )
    if best.judged.agreement < LEAST_AGREEMENT:
        _warn(
            f"neighbours by {best.bits} bits a feature decide as unrounded ones in {100 * best.judged.agreement:.1f} % of {JUDGED_ROWS} rows: "
            "one step serves all features, so scale them (StandardScaler), or take fewer (PCA)"
        )
    if best.chosen is None:
        return best
    layout, _ = best.chosen
    cells = _cells(best, *best.chosen, progress)
    if cells.recall < LEAST_RECALL:
        _warn(
            f"the {layout.probes} of {layout.cells} cells that a query asks for hold {100 * cells.recall:.1f} % of the nearest rows of "
            f"{JUDGED_ROWS} rows: fewer features (PCA) make better cells; without cells every row is scored"
        )
    return replace(best, client=replace(best.client, cells=cells))


def _finest(
    rows: ScaledRows, targets: NDArray[Any], options: IndexOptions, in_cells: bool, progress: Progress
) -> Built | None:
    """Builds with as many bits as decide well, or the best that some set has room for."""
    best: Built | None = None
    classes = np.unique(targets) if options.classify else None
    cells = None if options.cells in (None, "auto") else int(options.cells)
    for bits, sets in TRIED if options.input_bits is None else ((options.input_bits, SMALL + LARGE),):
        quantised_rows = quantised(rows, bits, progress)
        chosen = cell_set_for(quantised_rows, cells, options.probes_for(len(rows))) if in_cells else None
        if chosen is not None:
            parameters, level, answer_level = chosen[0].parameters, chosen[1].query, chosen[1].answer
        elif not in_cells and (set_and_levels := set_for(quantised_rows, sets)) is not None:
            parameters, level, answer_level = set_and_levels
        else:
            continue
        client = NeighbourClient(
            parameters=parameters, level=level, answer_level=answer_level, rows=len(rows), centre=rows.centre, step=quantised_rows.step,
            limit=quantised_rows.limit, metric=options.metric, target=targets, classes=classes, n_neighbors=options.n_neighbors,
            weights=options.weights, score_offset=quantised_rows.middle,
        )  # fmt: skip
        index = Built(client, quantised_rows, bits, judged(client, rows, quantised_rows, progress), chosen)
        if best is None or index.judged.agreement > best.judged.agreement:
            best = index
        if best.judged.agreement >= GOOD_AGREEMENT:
            break
    return best


def _cells(table: Built, layout: CellLayout, levels: CellLevels, progress: Progress) -> Cells:
    """Raises: CompileError: so few rows in cells that a query might find too few."""
    integers, client = table.quantised.integers, table.client
    cell_of = clustered(integers, layout.cells, layout.cell_rows, progress)
    nothing = np.zeros((layout.cells, layout.features), dtype=np.float32)
    centroids = np.rint(means(integers, cell_of, nothing)).astype(np.int64)
    cells = Cells(layout, levels, centroids, cell_of, 0.0)
    if cells.fewest_rows < client.n_neighbors:
        raise CompileError(
            f"n_neighbors: expected at most {cells.fewest_rows}, which {layout.probes} of {layout.cells} cells have for certain, got "
            f"{client.n_neighbors}; take fewer cells or more probes"
        )
    return replace(cells, recall=table.judged.recall(cells, integers))


def _answer_bytes(client: NeighbourClient) -> int:
    return full_answer_bytes(client.parameters.set.name, client.rows, client.answer_level)


def _warn(message: str) -> None:
    warn_user(message, AccuracyWarning)
