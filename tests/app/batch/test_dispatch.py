"""The dispatcher with a crew that is no Ray: lost workers, poisoned inputs, no room, a full disk, cancelling."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cloakwork.app.batch.crew import Event, News
from cloakwork.app.batch.dispatch import IN_FLIGHT, MOST_ATTEMPTS, Dispatcher
from cloakwork.app.batch.errors import BatchError
from cloakwork.app.batch.ledger import Ledger
from cloakwork.app.batch.pieces import Piece, PieceKind
from cloakwork.app.batch.plan import Planned
from cloakwork.app.batch.work import AGAIN, DONE, FAILED, UNWRITTEN
from cloakwork.fhe_core.errors import CancelledError

Behaviour = Callable[[int, Piece], Any]
"""The outcome of a piece at a worker, or None when the worker is lost by it."""


class FakeCrew:
    """Places at most `room` workers; what they do with a piece is `behaviour`."""

    def __init__(self, behaviour: Behaviour, room: int = 9, unfit: str = "") -> None:
        self._behaviour, self._room, self._unfit = behaviour, room, unfit
        self._numbers, self._events = itertools.count(), deque[Event]()
        self.tasks: dict[int, deque[tuple[Piece, ...]]] = {}
        self.most_in_flight = 0
        self.gone: set[int] = set()

    def start(self) -> int:
        number = next(self._numbers)
        if len(self.tasks) - len(self.gone & set(self.tasks)) < self._room:
            self.tasks[number] = deque()
            self._events.append(Event(News.PLACED, number))
            self._events.append(Event(News.UNFIT if self._unfit else News.READY, number, reason=self._unfit))
        return number

    def submit(self, worker: int, task: Sequence[Piece]) -> None:
        assert worker not in self.gone
        self.tasks[worker].append(tuple(task))
        self.most_in_flight = max(self.most_in_flight, len(self.tasks[worker]))

    def wait(self, seconds: float) -> list[Event]:
        if self._events:
            return [self._events.popleft()]
        for worker, tasks in self.tasks.items():
            if tasks:
                return self._worked(worker, tasks)
        return []

    def _worked(self, worker: int, tasks: deque[tuple[Piece, ...]]) -> list[Event]:
        outcomes = [self._behaviour(worker, piece) for piece in tasks[0]]
        if worker in self.gone or None in outcomes:
            lost = [Event(News.LOST, worker, task, reason="it ended") for task in tasks]
            tasks.clear()
            return lost
        return [Event(News.OUTCOMES, worker, tasks.popleft(), tuple(outcomes))]

    def dismiss(self, worker: int) -> None:
        self.gone.add(worker)


def done(piece: Piece) -> dict[str, Any]:
    return {"state": DONE, "samples": piece.samples, "seconds": 0.01, "digests": [piece.name.encode()], "failures": []}


def files(count: int) -> list[Planned]:
    return [Planned(f"{i:02d}", [Piece(PieceKind.FILE, f"{i:02d}", 1 + i % 3, 10)]) for i in range(count)]


def run(crew: FakeCrew, inputs: list[Planned], workers: int = 2, wait: float = 60.0, progress: Any = None) -> Ledger:
    ledger = Ledger()
    Dispatcher(crew, workers, wait, ledger, progress).run(inputs, 0, lambda name: None)
    return ledger


def test_all_is_done_once_with_two_tasks_in_flight():
    seen: list[str] = []

    def behaviour(worker: int, piece: Piece) -> dict[str, Any]:
        seen.append(piece.name)
        return done(piece)

    told: list[tuple[int, int]] = []
    crew = FakeCrew(behaviour)
    ledger = run(crew, files(40), progress=lambda *numbers: told.append(numbers))
    assert sorted(seen) == [f"{i:02d}" for i in range(40)] and ledger.files == 40 and ledger.failures == []
    assert crew.most_in_flight == IN_FLIGHT
    assert told[-1] == (ledger.samples, ledger.samples) and told == sorted(told)


def test_a_lost_workers_part_runs_elsewhere_and_the_worker_is_replaced():
    crew = FakeCrew(lambda worker, piece: None if worker == 0 else done(piece))
    ledger = run(crew, files(20))
    assert ledger.files == 20 and ledger.failures == [] and crew.gone >= {0} and len(crew.tasks) == 3


def test_the_last_tasks_of_the_only_worker_are_not_forgotten():
    crew = FakeCrew(lambda worker, piece: None if worker == 0 else done(piece))
    assert run(crew, files(2), workers=1).files == 2


def test_an_input_that_ends_workers_fails_alone_after_some_attempts():
    attempts = 0

    def behaviour(worker: int, piece: Piece) -> dict[str, Any] | None:
        nonlocal attempts
        if piece.name != "07":
            return done(piece)
        attempts += 1
        return None

    ledger = run(FakeCrew(behaviour), files(20))
    assert ledger.files == 19 and attempts == MOST_ATTEMPTS
    assert [failure["input"] for failure in ledger.failures] == ["07"]
    assert "its worker was lost: it ended (3 attempts)" in ledger.failures[0]["reason"]


def test_the_inputs_fault_is_not_tried_again_a_devices_is():
    tried: list[str] = []

    def behaviour(worker: int, piece: Piece) -> dict[str, Any]:
        tried.append(piece.name)
        if piece.name == "01":
            return {"state": FAILED, "reason": "damaged"}
        return {"state": AGAIN, "reason": "busy"} if piece.name == "02" and tried.count("02") < 3 else done(piece)

    ledger = run(FakeCrew(behaviour), files(4))
    assert ledger.failures == [{"input": "01", "reason": "damaged"}] and ledger.files == 3
    assert tried.count("01") == 1 and tried.count("02") == 3


def test_workers_that_are_unfit_end_the_batch_with_their_reason():
    with pytest.raises(BatchError, match="no worker is left: no GPU here"):
        run(FakeCrew(lambda worker, piece: done(piece), unfit="no GPU here"), files(3))


def test_no_room_is_not_waited_for_without_end():
    with pytest.raises(BatchError, match="no worker was given room within 0 s"):
        run(FakeCrew(lambda worker, piece: done(piece), room=0), files(3), wait=0.0)


def test_fewer_workers_than_asked_for_do_it_all():
    assert run(FakeCrew(lambda worker, piece: done(piece), room=1), files(9), workers=4).files == 9


def test_an_output_that_cannot_be_written_ends_the_batch():
    with pytest.raises(BatchError, match="results cannot be written: no space left"):
        run(FakeCrew(lambda worker, piece: {"state": UNWRITTEN, "reason": "no space left"}), files(3))


def test_a_progress_that_says_no_ends_it():
    with pytest.raises(CancelledError):
        run(FakeCrew(lambda worker, piece: done(piece)), files(30), progress=lambda done, total: done < 10)


def test_a_table_is_finished_after_its_parts():
    order: list[str] = []

    def behaviour(worker: int, piece: Piece) -> dict[str, Any]:
        order.append(piece.kind)
        return (
            done(piece) if piece.kind is PieceKind.ROWS else done(piece) | {"samples": 30, "failures": [(2, "damaged")]}
        )

    pieces = [Piece(PieceKind.ROWS, "t.parquet", 10, 1, 0, 10 * i, 10) for i in range(3)]
    ledger = run(FakeCrew(behaviour), [Planned("t.parquet", pieces, 10), Planned("e.parquet", [], 10)])
    assert (
        order[-1] == PieceKind.FINISH and order.count(PieceKind.FINISH) == 2 and order.index(PieceKind.FINISH) in (0, 3)
    )
    assert ledger.files == 2 and {"input": "t.parquet", "row": 2, "reason": "damaged"} in ledger.failures


def test_the_digest_is_in_order_of_names_and_leaves_failures_out():
    one, other = Ledger(), Ledger()
    for ledger, names in ((one, "abc"), (other, "cab")):
        for name in names:
            ledger.done(name, 1, [name.encode() * 32], [])
    other.failed("0", "damaged")
    assert one.sha256() == other.sha256() and other.record()["failed"] == 1 and other.record()["samples"] == 3
