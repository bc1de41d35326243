"""A large table in cells: the client finds the few nearest to its query by their centroids, and asks for the scores of these alone.

Source: [JDS11] an inverted file with probes; [HDCZ23] the client chooses the cells, the server does not learn which. Ours: cells of one size, so that
answers have one size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.levelled.neighbours.cells import EMPTY, CellLayout, CellLevels
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

UNSEEN: Final = -(1 << 62)  # in place of the score of a row whose cell was not asked for, and below every score
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a table; public, part of the client's specification.

    Attributes:
        layout: where they lie in blocks.
        levels: of queries and answers.
        centroids: means of their rows, as queries are quantised, [cells, features].
        cell_of: the cell of every row, [rows].
        recall: of 400 rows of the table at most, the share of their nearest rows that lie in the cells that each asks for.
    """

    layout: CellLayout
    levels: CellLevels
    centroids: Integers
    cell_of: Integers
    recall: float

    def __post_init__(self) -> None:
        """Raises: ValueError: parts that do not fit each other."""
        layout, cells = self.layout, self.layout.cells
        if self.centroids.dtype.kind != "i" or self.centroids.shape != (cells, layout.features):
            raise ValueError(f"expected centroids of {cells} cells and {layout.features} features")
        if self.cell_of.dtype.kind != "i" or self.cell_of.ndim != 1 or len(self.cell_of) == 0:
            raise ValueError("expected the cell of every row")
        if not (0 <= self.cell_of.min() and self.cell_of.max() < cells and self.sizes.max() <= layout.cell_rows):
            raise ValueError(f"expected {cells} cells of at most {layout.cell_rows} rows")
        if self.levels.query > layout.parameters.levels or not 0 <= self.recall <= 1:
            raise ValueError("expected levels of the set and a recall of 0 to 1")

    @cached_property
    def sizes(self) -> Integers:
        """Rows of every cell, [cells]."""
        return np.bincount(self.cell_of, minlength=self.layout.cells)

    @cached_property
    def fewest_rows(self) -> int:
        """Counts the rows of the cells of any query: the smallest that fill as many places as there are cells for."""
        used = np.flatnonzero(self.sizes)
        places = int((self.layout.place(used.tolist()) != EMPTY).sum())
        return int(np.sort(self.sizes[used])[:places].sum())

    def rows(self, cell: int) -> Integers:
        """Returns numbers of a cell's rows, in the order in which they are scored."""
        end = self._ends[cell]
        return self._order[end - self.sizes[cell] : end]

    def places(self, query: Integers) -> Integers:
        """Returns the cells nearest to a query [features] in the places of its answer, [probes]."""
        far = np.square(self._reals).sum(axis=1) - 2 * (self._reals @ query.astype(np.float64))
        order = np.argsort(far, kind="stable")
        return self.layout.place(order[self.sizes[order] > 0].tolist())

    def scored(self, query: Integers) -> NDArray[np.bool_]:
        """Finds which rows a query asks for, [rows]."""
        is_probed = np.zeros(self.layout.cells, dtype=bool)
        places = self.places(query)
        is_probed[places[places != EMPTY]] = True
        return is_probed[self.cell_of]

    def spread(self, answer: Integers, query: Integers) -> Integers:
        """Spreads a decrypted answer [N] as scores of all rows, `UNSEEN` where it has none: [rows]."""
        places = self.places(query)
        row_scores = np.full(len(self.cell_of), UNSEEN, dtype=np.int64)
        for cell, scores in zip(places, self.layout.scores(answer, places), strict=True):
            if cell != EMPTY:
                rows = self.rows(int(cell))
                row_scores[rows] = scores[: len(rows)]
        return row_scores

    @cached_property
    def _order(self) -> Integers:
        return np.argsort(self.cell_of, kind="stable")

    @cached_property
    def _ends(self) -> Integers:
        return np.cumsum(self.sizes)

    @cached_property
    def _reals(self) -> NDArray[np.float64]:
        return self.centroids.astype(np.float64)

    # --- files ---

    def fields(self) -> dict[str, Any]:
        """Returns the fields for JSON."""
        levels = self.levels
        return {
            "blocks": self.layout.blocks,
            "probes": self.layout.probes,
            "levels": [levels.query, levels.product, levels.joined, levels.answer],
            "dropped_bits": [levels.query_bits, levels.answer_bits],
            "centroids": self.centroids.tolist(),
            "cell_of": self.cell_of.tolist(),
            "recall": self.recall,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], parameters: LevelledParameters, features: int) -> Cells:
        """Parses cells. Raises: KeyError, TypeError, ValueError, FheError: not what `fields` gave."""
        query, product, joined, answer = map(int, fields["levels"])
        query_bits, answer_bits = map(int, fields["dropped_bits"])
        return cls(
            layout=CellLayout(parameters, features, int(fields["blocks"]), int(fields["probes"])),
            levels=CellLevels(query, product, joined, answer, query_bits, answer_bits),
            centroids=np.array(fields["centroids"]),
            cell_of=np.array(fields["cell_of"]),
            recall=float(fields["recall"]),
        )
