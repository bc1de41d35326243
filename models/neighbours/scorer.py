"""The server scores encrypted queries of one key against a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cloakwork.fhe_core.errors import FheError, KeyMismatchError
from cloakwork.fhe_core.levelled.ciphertexts import (
    ExpandedLevelledKeys,
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
    require_same_key,
)
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.neighbours.cell_products import CellTable
from cloakwork.fhe_core.levelled.neighbours.inner_products import InnerProductTable
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.words import Progress
from cloakwork.models.audit.audit_file import AuditFile
from cloakwork.models.audit.replay import Replayed
from cloakwork.models.neighbours.cells import Cells
from cloakwork.models.neighbours.client import Integers, NeighbourClient
from cloakwork.models.neighbours.quantise import SmallIntegers, score_factor

# A table of rows where it scores: prepared once, for queries of any client.


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


# Computes the answers of an index in an audit file again; `cloakwork.models.audit.replay` does those of programs.

_NOISE_TOLERANCE = 1e-9


def require_index(file: AuditFile, digest: str) -> None:
    """Requires the index of an audit. Args: digest: SHA-256 of the index's file. Raises: KeyMismatchError: the audit is about another one."""
    if file.manifest.program != digest:
        raise KeyMismatchError(
            f"audit: another index or model: the file is about {file.manifest.program[:16]}, this is {digest[:16]}, another version or another model"
        )


def replay_index(
    file: AuditFile, scorer: NeighbourScorer, key_id: bytes, progress: Progress = None
) -> Iterator[Replayed]:
    """Yields each answer once more; nothing of them is random.

    Args:
        scorer: with the file's evaluation keys, which are `key_id`'s.

    Raises:
        KeyMismatchError, SerializationError: a request of another key or set, or none.
    """
    for number in range(len(file.manifest.exchanges)):
        query = SeededLevelledCiphertexts.from_bytes(file.request(number))
        require_same_key(key_id, query.key_id)
        answer, recorded = scorer.score(query, progress).to_bytes(), file.answer(number)
        yield Replayed(1, hashlib.sha256(answer).hexdigest(), answer == recorded, _difference(answer, recorded))


def _difference(computed: bytes, recorded: bytes) -> str | None:
    if computed == recorded:
        return None
    ours = LevelledCiphertexts.from_bytes(computed)
    try:
        theirs = LevelledCiphertexts.from_bytes(recorded)
    except FheError as error:
        return f"it is no sound object: {error}"
    if ours.words.shape != theirs.words.shape:
        return f"expected {len(ours)} ciphertexts of level {ours.level}, it has {len(theirs)} of level {theirs.level}"
    different = int((ours.words != theirs.words).any(axis=(1, 2, 3)).sum())
    if different:
        return f"{different} of its {len(ours)} ciphertexts are other ones"
    same = replace(theirs, noise=ours.noise).to_bytes() == computed and _is_close(ours.noise, theirs.noise)
    return None if same else "its ciphertexts are the same, its header is another one"


def _is_close(ours: Noise, theirs: Noise) -> bool:
    """But for the last digits, which machines may round each in its way."""
    numbers = [(each.bound, *each.variances) for each in (ours, theirs)]
    return len(numbers[0]) == len(numbers[1]) and bool(
        np.allclose(numbers[0], numbers[1], rtol=_NOISE_TOLERANCE, atol=0.0)
    )
