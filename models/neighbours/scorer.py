"""The server scores encrypted queries of one key against a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.expanded_keys import ExpandedLevelledKeys
from cloakwork.fhe_core.words import Progress
from cloakwork.models.neighbours.prepared import PreparedTable

_QUERIES_ON_DEVICE: Final = 16


class NeighbourScorer:
    """Scores encrypted queries of one key.

    Args:
        table: where it scores, on `device`.
        keys: of the client.
    """

    def __init__(
        self, table: PreparedTable, keys: LevelledEvaluationKeys, threads: int = 1, device: str = "cpu"
    ) -> None:
        self._table, self._threads = table, threads
        self._keys = ExpandedLevelledKeys.of(keys, device, threads)

    def score(
        self, query: SeededLevelledCiphertexts | LevelledCiphertexts, progress: Progress = None
    ) -> LevelledCiphertexts:
        """Returns the scores of all rows, a ciphertext for each N of them; or of the cells that the query asks for, in one."""
        return self.score_all([query], progress)[0]

    def score_all(
        self, queries: Sequence[SeededLevelledCiphertexts | LevelledCiphertexts], progress: Progress = None
    ) -> list[LevelledCiphertexts]:
        """Answers several queries of this key at once, which on a device is faster (`queries_at_once`)."""
        return self._table.score_all(self._keys, queries, self._threads, progress)


def queries_at_once(device: str) -> int:
    """Returns a good number of queries to score together."""
    return 1 if device == "cpu" else _QUERIES_ON_DEVICE
