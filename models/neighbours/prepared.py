"""A table of rows where it scores: prepared once, for queries of any client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.expanded_keys import ExpandedLevelledKeys
from cloakwork.fhe_core.levelled.neighbours.cell_products import CellTable
from cloakwork.fhe_core.levelled.neighbours.inner_products import InnerProductTable
from cloakwork.fhe_core.words import Progress
from cloakwork.models.neighbours.cells import Cells
from cloakwork.models.neighbours.client import Integers, NeighbourClient
from cloakwork.models.neighbours.quantise import SmallIntegers, score_factor


class PreparedTable:
    """Scores encrypted queries of one client after another's.

    Args:
        integers, offsets: of the index.
        threads: that prepare it; of the CPU.
        device: that it is on, and that scores.
    """

    def __init__(
        self,
        client: NeighbourClient,
        integers: SmallIntegers,
        offsets: Integers,
        threads: int = 1,
        device: str = "cpu",
        progress: Progress = None,
    ) -> None:
        self._client, self._device = client, device
        evaluator = self._evaluator(None, threads)
        rows, added = score_factor(client.metric) * integers, offsets - client.score_offset
        self._products: InnerProductTable | CellTable
        if client.cells is None:
            self._products = InnerProductTable(
                evaluator, rows, added, level=client.level, answer_level=client.answer_level, progress=progress
            )
        else:
            rows, added = _in_blocks(client.cells, rows, added)
            self._products = CellTable(
                evaluator, client.cells.layout, client.cells.levels, rows, added, progress=progress
            )

    @property
    def nbytes(self) -> int:
        return self._products.nbytes

    def score_all(
        self,
        keys: ExpandedLevelledKeys,
        queries: Sequence[SeededLevelledCiphertexts | LevelledCiphertexts],
        threads: int = 1,
        progress: Progress = None,
    ) -> list[LevelledCiphertexts]:
        """Scores scores of all rows, a ciphertext for each N of them; or of the cells that it asks for, in one."""
        full = [each.expand() if isinstance(each, SeededLevelledCiphertexts) else each for each in queries]
        products = self._products.used_by(self._evaluator(keys, threads))
        return [each.to_host() for each in products.products_of_all(full, progress)]

    def _evaluator(self, keys: ExpandedLevelledKeys | None, threads: int) -> LevelledEvaluator:
        return LevelledEvaluator(self._client.parameters, keys, device=self._device, threads=threads)


def _in_blocks(cells: Cells, rows: SmallIntegers, offsets: Integers) -> tuple[SmallIntegers, Integers]:
    """Returns rows [rows, features] and offsets [rows] where blocks have them, with zeros where a cell has fewer than it could."""
    count = cells.layout.blocks * cells.layout.parameters.polynomial_size
    placed, added = np.zeros((count, rows.shape[1]), dtype=rows.dtype), np.zeros(count, dtype=np.int64)
    for cell in range(cells.layout.cells):
        numbers = cells.rows(cell)
        places = cells.layout.rows_of(cell, len(numbers))
        placed[places], added[places] = rows[numbers], offsets[numbers]
    return placed, added
