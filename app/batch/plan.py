"""The plan of a batch: its inputs, the work of each, and the pieces that it is cut into; inputs that cannot be scored, with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cloakwork.app.batch.errors import BatchCallError, BatchError, one_line
from cloakwork.app.batch.headers import PREFIX_BYTES, input_samples
from cloakwork.app.batch.pieces import RESERVED, Piece, PieceKind, is_table
from cloakwork.app.batch.store import Entry, Store, shown
from cloakwork.app.batch.tables import Table
from cloakwork.fhe_core.errors import FheError, ParameterError
from cloakwork.models.program import Program

_READERS: Final = 32  # headers read at a time
PIECE_BOOTSTRAPS: Final = 256  # of the rows of one piece: about two seconds of a CPU thread
PIECE_BYTES: Final = 16 << 20


@dataclass
class Planned:
    """One input: its pieces, of tables also the rows of each part, or why it has none."""

    name: str
    pieces: list[Piece] = field(default_factory=list)
    rows_per_part: int = 0
    reason: str | None = None

    @property
    def samples(self) -> int:
        return sum(piece.samples for piece in self.pieces)


@dataclass(frozen=True)
class Planner:
    """Plans inputs. key_id: of the evaluation keys, None when they do not say it. column: of tables, that of the ciphertexts."""

    source: Store
    program: Program
    key_id: bytes | None
    column: str | None

    def plan(self, entries: Iterable[Entry]) -> list[Planned]:
        """Plans inputs in order of the entries; reads the beginning of every file and the footer of every table."""
        with ThreadPoolExecutor(_READERS, thread_name_prefix="header") as pool:
            return list(pool.map(self._planned, entries))

    def _planned(self, entry: Entry) -> Planned:
        try:
            return self._table(entry.name) if is_table(entry.name) else self._file(entry)
        except (FheError, OSError) as error:
            return Planned(entry.name, reason=one_line(error))

    def _samples(self, start: bytes, byte_count: int) -> int:
        return input_samples(start, byte_count, self.program, self.key_id)

    def _file(self, entry: Entry) -> Planned:
        if entry.byte_count == 0:
            raise BatchError("expected ciphertexts, got an empty file")
        start = self.source.read_start(entry.name, min(entry.byte_count, PREFIX_BYTES))
        samples = self._samples(start, entry.byte_count)
        return Planned(entry.name, [Piece(PieceKind.FILE, entry.name, samples, entry.byte_count)])

    def _table(self, name: str) -> Planned:
        assert self.column is not None
        table = Table(self.source, name, self.column)
        row_samples, row_bytes = self._row(table)
        work = max(1, row_samples * self.program.bootstraps)
        rows_per_part = max(1, min(PIECE_BOOTSTRAPS // work, PIECE_BYTES // row_bytes))
        piece = partial(Piece, PieceKind.ROWS, name)
        pieces = []
        for group, (rows, byte_count) in enumerate(table.groups):
            each = max(1, byte_count // max(1, rows))
            for first in range(0, rows, rows_per_part):
                count = min(rows_per_part, rows - first)
                samples = max(1, row_samples * count * each // row_bytes)
                pieces.append(piece(samples, count * each, group, first, count))
        return Planned(name, pieces, rows_per_part)

    def _row(self, table: Table) -> tuple[int, int]:
        """Returns samples and bytes of a row, by the first: an estimate for the others."""
        data = table.first_object()
        if not data:
            return 1, 1
        try:
            return max(1, self._samples(data[:PREFIX_BYTES], len(data))), len(data)
        except FheError:  # it fails alone, when its turn comes
            return 1, len(data)


def inputs_in(source: Store, column: str | None) -> list[Entry]:
    """Lists inputs: all objects but hidden names and our own.

    Raises:
        BatchCallError: there is nothing.
        ParameterError: there are tables, and no column was named.
    """
    entries = [entry for entry in source.entries() if not _hidden(entry.name)]
    if not entries:
        raise BatchCallError(
            f"{shown(source.place)}: expected ciphertext files or Parquet files, got none: the place is empty or missing"
        )
    tables = [entry.name for entry in entries if is_table(entry.name)]
    if tables and column is None:
        raise ParameterError(f"{tables[0]} is a Parquet file: name its column of ciphertexts with --column")
    return entries


def _hidden(name: str) -> bool:
    parts = name.split("/")
    return parts[0].startswith(RESERVED) or any(part.startswith(".") for part in parts)
