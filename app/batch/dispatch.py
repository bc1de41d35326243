"""Hands out pieces to workers until all are done: two tasks each, so that one is read while the other is computed.

A worker that is lost is replaced. Its pieces go out again, each at most `MOST_ATTEMPTS` times and alone on a worker: one that ends workers takes no
other with it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from cloakwork.app.batch.crew import Crew, Event, News
from cloakwork.app.batch.errors import BatchError
from cloakwork.app.batch.ledger import Ledger
from cloakwork.app.batch.pieces import Piece, PieceKind
from cloakwork.app.batch.plan import Planned
from cloakwork.app.batch.queue import WorkQueue
from cloakwork.app.batch.work import DONE, FAILED, UNWRITTEN
from cloakwork.fhe_core.errors import CancelledError
from cloakwork.fhe_core.words import Progress

IN_FLIGHT: Final = 2
MOST_ATTEMPTS: Final = 3
MOST_REPLACED: Final = 3  # for each worker
_TICK_SECONDS: Final = 0.5


class Dispatcher:
    def __init__(self, crew: Crew, workers: int, wait_seconds: float, ledger: Ledger, progress: Progress) -> None:
        self._crew, self._workers, self._wait_seconds = crew, workers, wait_seconds
        self._ledger, self._progress = ledger, progress
        self._queue = WorkQueue()
        self._tables: dict[str, int] = {}  # rows of a part
        self._open: Counter[str] = Counter()  # parts that a table still waits for
        self._total = self._done = 0
        self._flying: Counter[int] = Counter()  # places taken at each worker that is ready, of IN_FLIGHT
        self._starting: set[int] = set()
        self._placed: set[int] = set()
        self._out = 0  # tasks that nothing has been heard of, also of workers that were lost
        self._replaced, self._unfit = 0, ""
        self.ready_at: float | None = None  # time.perf_counter of the first worker that was
        self.computed: set[int] = set()  # workers that gave a result
        self.engine_seconds = 0.0

    def run(self, inputs: list[Planned], done: int, finished: Callable[[str], None]) -> None:
        """Scores what has pieces, tells the ledger, and `finished` the name of every table.

        Args:
            done: samples that the progress begins with.

        Raises:
            BatchError: no worker can be had, or the output cannot be written.
            CancelledError: the progress said so.
        """
        self._finished, self._done = finished, done
        self._total = done + sum(planned.samples for planned in inputs)
        self._queue = WorkQueue(piece for planned in inputs for piece in planned.pieces)
        for planned in inputs:
            if planned.rows_per_part:
                self._tables[planned.name], self._open[planned.name] = planned.rows_per_part, len(planned.pieces)
                self._finish_if_complete(planned.name)
        for _ in range(self._workers):
            self._starting.add(self._crew.start())
        alone_since = time.monotonic()
        while self._queue or self._out:
            self._hand_out()
            for event in self._crew.wait(_TICK_SECONDS):
                self._heard(event)
            self._tell()
            if self._flying or self._placed:
                alone_since = time.monotonic()
            self._check(time.monotonic() - alone_since)

    # --- handing out ---

    def _hand_out(self) -> None:
        """To the least busy first."""
        while self._queue and self._flying:
            worker = min(self._flying, key=lambda each: (self._flying[each], each))
            if self._flying[worker] + _places(self._queue.first) > IN_FLIGHT:
                return
            task = self._queue.take(len(self._flying))
            self._flying[worker] += _places(task[0])
            self._out += 1
            self._crew.submit(worker, task)

    def _finish_if_complete(self, name: str) -> None:
        if self._open[name] == 0:
            self._queue.put(Piece(PieceKind.FINISH, name, 0, 0, count=self._tables[name]))

    # --- what is heard of workers ---

    def _heard(self, event: Event) -> None:
        worker = event.worker
        if event.news is News.PLACED:
            self._placed.add(worker)
        elif event.news is News.READY:
            self._starting.discard(worker)
            self._placed.discard(worker)
            self._flying[worker] = 0
            if self.ready_at is None:
                self.ready_at = time.perf_counter()
        elif event.news is News.UNFIT:
            self._unfit = event.reason
            self._forget(worker)
        elif event.news is News.LOST:
            self._lost(event)
        else:
            self._flying[worker] -= _places(event.task[0])
            self._out -= 1
            for piece, outcome in zip(event.task, event.outcomes, strict=True):
                self._became(worker, piece, outcome)

    def _lost(self, event: Event) -> None:
        known = event.worker in self._flying or event.worker in self._starting
        self._forget(event.worker)
        if known and self._replaced < MOST_REPLACED * self._workers:
            self._replaced += 1
            self._starting.add(self._crew.start())
        self._unfit = event.reason or self._unfit
        self._out -= bool(event.task)
        for piece in event.task:
            self._again(piece, f"its worker was lost: {event.reason}")

    def _forget(self, worker: int) -> None:
        self._starting.discard(worker)
        self._placed.discard(worker)
        if worker in self._flying:
            del self._flying[worker]
        self._crew.dismiss(worker)

    def _check(self, alone_seconds: float) -> None:
        """Checks that somebody computes, or is about to."""
        if self._flying or self._out or not self._queue:
            return
        if not self._starting:
            raise BatchError(f"no worker is left: {self._unfit}; results so far stay, and the same command goes on")
        if alone_seconds > self._wait_seconds:
            raise BatchError(
                f"no worker was given room within {self._wait_seconds:.0f} s: the cluster is busy, or lost the machines that had it; results so "
                "far stay, and the same command goes on"
            )

    # --- what became of pieces ---

    def _became(self, worker: int, piece: Piece, outcome: dict[str, Any]) -> None:
        if outcome["state"] == DONE:
            self.computed.add(worker)
            self._settle(piece, outcome)
        elif outcome["state"] == FAILED:
            self._ledger.failed(piece.name, outcome["reason"])
            self._done += piece.samples
        elif outcome["state"] == UNWRITTEN and piece.attempts + 1 >= MOST_ATTEMPTS:
            raise BatchError(f"results cannot be written: {outcome['reason']}; results so far stay")
        else:
            self._again(piece, outcome["reason"])

    def _settle(self, piece: Piece, outcome: dict[str, Any]) -> None:
        self.engine_seconds += outcome["seconds"]
        self._queue.measured(piece.samples, outcome["seconds"])
        self._done += piece.samples
        if piece.kind is PieceKind.ROWS:
            self._open[piece.name] -= 1
            self._finish_if_complete(piece.name)
            return
        self._ledger.done(piece.name, outcome["samples"], outcome["digests"], outcome["failures"])
        if piece.kind is PieceKind.FINISH:
            self._finished(piece.name)

    def _again(self, piece: Piece, reason: str) -> None:
        following = piece.again()
        if following.attempts >= MOST_ATTEMPTS:
            self._ledger.failed(piece.name, f"{reason} ({MOST_ATTEMPTS} attempts)")
            self._done += piece.samples
        else:
            self._queue.put(following)

    def _tell(self) -> None:
        if self._progress is not None and self._progress(min(self._done, self._total), self._total) is False:
            raise CancelledError("batch: cancelled; results so far stay, and the same command goes on")


def _places(piece: Piece) -> int:
    """That the task which begins with it takes of a worker's."""
    return IN_FLIGHT if piece.attempts else 1
