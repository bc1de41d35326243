"""Execution of a task by a worker: reads, evaluates, writes. Everything that comes and goes is bytes and plain types."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from cloakwork.app.batch.errors import BatchError, StoreError, one_line
from cloakwork.app.batch.evaluator import Evaluator
from cloakwork.app.batch.pieces import PieceKind, Plain, part_name, result_name
from cloakwork.app.batch.store import Store
from cloakwork.app.batch.tables import RowResults, Table
from cloakwork.fhe_core.errors import DeviceError

DONE: Final = "done"
FAILED: Final = "failed"  # the input's fault: nobody else need try
AGAIN: Final = "again"  # the device's or a store's: somebody else may
UNWRITTEN: Final = "unwritten"  # the target's fault: the same, and if it stays so the batch ends
_TRANSFERS: Final = 8  # at a time, so that small objects of a task do not wait for one another

Outcome = dict[str, Any]
"""`state`; `reason` unless it is done; of what is done `samples`, `seconds` of the engine, `digests` (SHA-256 of each result) and
`failures` (rows with their reasons)."""


class Desk:
    """One evaluator between two stores."""

    def __init__(self, evaluator: Evaluator, source: str, target: str, column: str | None) -> None:
        self._evaluator = evaluator
        self._source, self._target, self._column = Store(source), Store(target), column
        self._transfers = ThreadPoolExecutor(_TRANSFERS, thread_name_prefix="transfer")
        self._last = threading.local()  # each thread's last table, whose row group is kept

    def carry_out(self, task: Sequence[Plain]) -> list[Outcome]:
        """Executes a task and returns an outcome for each piece."""
        files = [name for kind, name, *_ in task if kind == PieceKind.FILE]
        reading = dict(zip(files, [self._transfers.submit(self._source.read, name) for name in files], strict=True))
        pairs = [self._guarded(piece, reading) for piece in task]
        return [_settled(outcome, writing) for outcome, writing in pairs]

    def _guarded(self, piece: Plain, reading: dict[str, Future[bytes]]) -> tuple[Outcome, Future[None] | None]:
        kind, name, group, first, count = piece
        try:
            if kind == PieceKind.FILE:
                return self._file(name, reading.pop(name).result())
            if kind == PieceKind.ROWS:
                return self._rows(name, group, first, count)
            return self._finish(name, count), None
        except FileNotFoundError as error:
            return {"state": FAILED, "reason": one_line(error)}, None
        except (StoreError, DeviceError) as error:
            return {"state": AGAIN, "reason": one_line(error)}, None
        except Exception as error:  # whatever bytes of strangers lead to: this input fails, the others do not
            return {"state": FAILED, "reason": one_line(error)}, None

    def _file(self, name: str, data: bytes) -> tuple[Outcome, Future[None]]:
        answer = self._evaluator.answer(data)
        digest = hashlib.sha256(answer.body).digest()
        writing = self._transfers.submit(self._target.write, result_name(name), answer.body)
        return _done(answer.samples, answer.seconds, [digest]), writing

    def _rows(self, name: str, group: int, first: int, count: int) -> tuple[Outcome, Future[None]]:
        row_results, seconds = RowResults(), 0.0
        for data in self._opened(name).objects(group, first, count):
            try:
                if data is None:
                    raise BatchError("the row has no ciphertexts")
                answer = self._evaluator.answer(data)
            except DeviceError:
                raise
            except Exception as error:  # as of files: this row alone
                row_results.add(None, one_line(error), 0)
                continue
            seconds += answer.seconds
            row_results.add(answer.body, None, answer.samples)
        writing = self._transfers.submit(self._target.write, part_name(name, group, first), row_results.to_bytes())
        return _done(sum(row_results.samples), seconds, []), writing

    def _finish(self, name: str, rows_per_part: int) -> Outcome:
        summary = self._opened(name).finish(self._target, rows_per_part)
        return _done(summary.samples, 0.0, summary.digests, summary.failures)

    def _opened(self, name: str) -> Table:
        assert self._column is not None
        table: Table | None = getattr(self._last, "table", None)
        if table is None or table.name != name:
            table = self._last.table = Table(self._source, name, self._column)
        return table


def _done(samples: int, seconds: float, digests: list[bytes], failures: Sequence[tuple[int, str]] = ()) -> Outcome:
    return {"state": DONE, "samples": samples, "seconds": seconds, "digests": digests, "failures": list(failures)}


def _settled(outcome: Outcome, writing: Future[None] | None) -> Outcome:
    """A result counts when it lies in the store."""
    try:
        if writing is not None:
            writing.result()
    except StoreError as error:
        return {"state": UNWRITTEN, "reason": one_line(error)}
    return outcome
