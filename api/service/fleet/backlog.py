"""Backlog of the fleet: work that waits in the database and that workers have, as a web process last read it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cloakwork.api.service.clock import now
from cloakwork.api.service.fleet.members import Member
from cloakwork.api.service.scoring.waiting import Line, WorkerPlace, ahead_of, wait_seconds
from cloakwork.api.service.scoring.work import MOST_SECONDS, MOST_TOGETHER


@dataclass(frozen=True)
class Out:
    """A row that a worker has."""

    id: str
    node: str
    kin: tuple[object, ...]  # what rows have in common that one run can answer
    seconds: float
    started_at: float | None  # of a job, by the clock of its worker's host


@dataclass
class _Run:
    seconds: float
    had: float
    rows: int = 1


@dataclass
class Backlog:
    """`seen`: when each row that is out was first seen there, by the monotonic clock: no host's clock decides what is left of a run."""

    lines: Sequence[Line] = ()
    out: Sequence[Out] = ()
    members: Sequence[Member] = ()
    seen: dict[str, float] = field(default_factory=dict)

    def after(self, lines: Sequence[Line], out: Sequence[Out], members: Sequence[Member]) -> Backlog:
        """Returns the next one."""
        moment = time.monotonic()
        seen = {row.id: self.seen.get(row.id, moment - _had(row)) for row in out}
        return Backlog(lines, sorted(out, key=lambda row: seen[row.id]), members, seen)

    @property
    def workers(self) -> int:
        """Runs at a time, of all processes that take work. One whose engine is about to start counts where no other is."""
        able = [member.workers for member in self.members if member.takes_work]
        return sum(able) or len(able)

    @property
    def waiting(self) -> int:
        return sum(line.count for line in self.lines)

    def waiting_of(self, tenant: str) -> int:
        return sum(line.count for line in self.lines if line.tenant == tenant)

    def seconds(self, long_seconds: float) -> float:
        """Estimates the seconds until the workers are free, about."""
        left = sum(place.seconds for place in self._places(long_seconds)) + sum(line.seconds for line in self.lines)
        return left / max(1, self.workers)

    def wait_seconds(self, tenant: str, seconds: float, long_seconds: float) -> float:
        """Estimates the wait as the dispatcher's; without end while no worker is there, so that a request becomes a job."""
        if not self.workers:
            return float("inf")
        ahead = ahead_of(tenant, seconds, self.lines)
        return wait_seconds(self.workers, self._places(long_seconds), ahead, seconds > long_seconds)

    def _places(self, long_seconds: float) -> list[WorkerPlace]:
        """Returns the places of runs on workers, then of those that wait there for one."""
        moment = time.monotonic()
        on: list[WorkerPlace] = []
        ahead: list[WorkerPlace] = []
        for member in self.members:
            runs: dict[object, _Run] = {}
            for row in self.out:
                if row.node == member.id:
                    _join(runs, row, moment - self.seen[row.id])
            for number, run in enumerate(runs.values()):
                begun = number < max(1, member.workers)
                place = WorkerPlace.of_run(run.seconds, run.had if begun else 0.0, run.seconds > long_seconds)
                (on if begun else ahead).append(place)
        return on + ahead


def _join(runs: dict[object, _Run], row: Out, had: float) -> None:
    """As a worker does it."""
    run = runs.get(row.kin)
    if run is not None and run.rows < MOST_TOGETHER and run.seconds + row.seconds <= MOST_SECONDS:
        run.seconds += row.seconds
        run.rows += 1
        return
    if run is not None:
        runs[row.id] = run  # full: the next one begins
        del runs[row.kin]
    runs[row.kin] = _Run(row.seconds, had)


def _had(row: Out) -> float:
    """Of a job that ran before this process began; its worker's clock is another."""
    return 0.0 if row.started_at is None else min(row.seconds, max(0.0, now() - row.started_at))
