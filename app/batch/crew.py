"""The protocol of workers that the dispatcher needs: Ray's actors, or something else in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from cloakwork.app.batch.pieces import Piece


class News(StrEnum):
    PLACED = "placed"  # it has its CPUs, and begins to expand the key
    READY = "ready"
    UNFIT = "unfit"  # it cannot expand the key: the reason
    OUTCOMES = "outcomes"  # of a task
    LOST = "lost"  # with a task or without


@dataclass(frozen=True)
class Event:
    """Progress of a task. task: what the worker had; outcomes: one for each of its pieces (work.py)."""

    news: News
    worker: int
    task: tuple[Piece, ...] = ()
    outcomes: tuple[dict[str, Any], ...] = ()
    reason: str = ""


class Crew(Protocol):
    def start(self) -> int:
        """Asks for one more worker, and gives its number; `wait` says what becomes of it."""

    def submit(self, worker: int, task: Sequence[Piece]) -> None: ...

    def wait(self, seconds: float) -> list[Event]:
        """Returns the events since the last call, at the latest after a number of seconds."""

    def dismiss(self, worker: int) -> None:
        """Ends a worker that was lost or is not needed; nothing more is heard of it but the tasks it had."""
