"""The server scores encrypted queries of one key against a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from cloakwork.fhe_core.arrays import Progress
from cloakwork.fhe_core.levelled.cell_products import CellTable
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.inner_products import InnerProductTable
from cloakwork.models.neighbours.cells import Cells
from cloakwork.models.neighbours.client import Integers, NeighbourClient
from cloakwork.models.neighbours.quantise import SmallIntegers, score_factor

_QUERIES_ON_DEVICE: Final = 16


class Scored(Protocol):
    """What of an index is scored."""

    @property
    def client(self) -> NeighbourClient: ...
    @property
    def integers(self) -> SmallIntegers: ...
    @property
    def offsets(self) -> Integers: ...


class NeighbourScorer:
    """Scores encrypted queries of one key. The table is prepared once, where it scores."""

    def __init__(
        self,
        index: Scored,
        keys: LevelledEvaluationKeys,
        threads: int = 1,
        device: str = "cpu",
        progress: Progress = None,
    ) -> None:
        client = index.client
        evaluator = LevelledEvaluator(client.parameters, keys, device=device, threads=threads)
        rows, offsets = score_factor(client.metric) * index.integers, index.offsets - client.score_offset
        self._table: InnerProductTable | CellTable
        if client.cells is None:
            self._table = InnerProductTable(
                evaluator, rows, offsets, level=client.level, answer_level=client.answer_level, progress=progress
            )
        else:
            rows, offsets = _in_blocks(client.cells, rows, offsets)
            self._table = CellTable(
                evaluator, client.cells.layout, client.cells.levels, rows, offsets, progress=progress
            )

    def score(
        self, query: SeededLevelledCiphertexts | LevelledCiphertexts, progress: Progress = None
    ) -> LevelledCiphertexts:
        """The scores of all rows, a ciphertext for each N of them; or of the cells that the query asks for, in one."""
        return self.score_all([query], progress)[0]

    def score_all(
        self, queries: Sequence[SeededLevelledCiphertexts | LevelledCiphertexts], progress: Progress = None
    ) -> list[LevelledCiphertexts]:
        """Of several queries of this key at once, which on a device is faster (`queries_at_once`)."""
        full = [each.expand() if isinstance(each, SeededLevelledCiphertexts) else each for each in queries]
        return [each.to_host() for each in self._table.products_of_all(full, progress)]


def queries_at_once(device: str) -> int:
    """A good number of queries to score together."""
    return 1 if device == "cpu" else _QUERIES_ON_DEVICE


def _in_blocks(cells: Cells, rows: SmallIntegers, offsets: Integers) -> tuple[SmallIntegers, Integers]:
    """Rows [rows, features] and offsets [rows] where blocks have them, with zeros where a cell has fewer than it could."""
    count = cells.layout.blocks * cells.layout.parameters.polynomial_size
    placed, added = np.zeros((count, rows.shape[1]), dtype=rows.dtype), np.zeros(count, dtype=np.int64)
    for cell in range(cells.layout.cells):
        numbers = cells.rows(cell)
        places = cells.layout.rows_of(cell, len(numbers))
        placed[places], added[places] = rows[numbers], offsets[numbers]
    return placed, added
