"""The fleet: the processes on one database, and what this one has to do with the others. Alone on its database it has nothing to do with any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from cloakwork.api.engine.messages import Done
from cloakwork.api.service.clock import now
from cloakwork.api.service.fleet.members import Member
from cloakwork.api.service.jobs.runs import JobRuns, Peers
from cloakwork.api.service.jobs.store import Job, JobProgress, JobStore
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import Scoring
from cloakwork.api.service.scoring.waiting import RequestLine
from cloakwork.api.service.storage.disk import Disk, is_away
from cloakwork.api.settings import Settings

Chore: TypeAlias = tuple[Callable[[], Awaitable[None]], float]
"""What is done again and again, and after how many seconds."""

HEARTBEATS: Final = 6  # in the time after which a silent service is dead
_LOST_SECONDS: Final = 30.0  # after which an accepted job that is nowhere is queued again

_log = logging.getLogger("cloakwork.housekeeping")


class Fleet(Peers, Protocol):
    """The one interface to the other processes; `Alone` and `Shared` implement it."""

    @property
    def scoring(self) -> Scoring:
        """Returns how requests are scored whose clients wait."""

    @property
    def line(self) -> RequestLine:
        """Returns where these requests wait."""

    async def begin(self, runs: JobRuns) -> None:
        """Begins: what an earlier process of this name had accepted and not finished is queued again."""

    def chores(self) -> Sequence[Chore]: ...

    async def sweep(self) -> None:
        """Deletes what the database keeps of processes and tenants that are long gone."""

    def stop_taking(self) -> None:
        """Stops taking work after a signal: what runs is finished, nothing new begins."""

    async def drain(self, until: float, hurried: asyncio.Event) -> None:
        """Finishes what runs, until that moment or until somebody hurries."""

    async def end(self) -> None: ...

    async def beat(self) -> None:
        """Says that this process lives."""

    def require_worker(self) -> None:
        """Requires somebody who computes.

        Raises:
            UnavailableError.
        """

    async def requests_waiting(self) -> int: ...

    async def existing_calls(self, identities: list[str]) -> set[str]:
        """Returns those of the identities that are requests on their way to a worker."""

    async def members(self) -> list[Member]: ...


class Alone:
    """This process alone runs what it accepts. Another one on the same database is heard of only after it has died."""

    job_node: str
    keeps_jobs = True

    def __init__(
        self, settings: Settings, store: JobStore, dispatcher: Dispatcher, scoring: Scoring, disk: Disk
    ) -> None:
        self._settings, self._store, self._disk = settings, store, disk
        self.job_node = store.node
        self.line, self.scoring = dispatcher, scoring
        self._runs: JobRuns

    async def begin(self, runs: JobRuns) -> None:
        self._runs = runs
        with self._disk.relieved():
            await self._store.heartbeat()
        for job in await self._store.own_unfinished():
            await self._resume(job)

    def chores(self) -> Sequence[Chore]:
        return [(self._neighbours, self._settings.takeover_seconds / HEARTBEATS)]

    async def _neighbours(self) -> None:
        await self._store.heartbeat()
        lost = [job for job in await self._store.own_unfinished() if job.created_at < now() - _LOST_SECONDS]
        for job in lost:
            if not self._runs.in_hand(job):  # the database failed when its end was to be recorded
                await self._resume(job)
        for job in await self._store.adopt(self._settings.takeover_seconds):
            _log.warning("job taken over from a service that is gone", extra={"job": job.id})
            await self._resume(job)

    async def _resume(self, job: Job) -> None:
        """What needs an object that cannot be had now begins later, and holds up no other."""
        try:
            await self._runs.resume(job)
        except Exception as error:
            if not is_away(error):
                raise
            _log.warning("job %s begins when the storage answers (%s)", job.id, error)

    async def beat(self) -> None:
        await self._store.heartbeat()

    async def requests_waiting(self) -> int:
        return self.line.requests_waiting

    async def existing_calls(self, identities: list[str]) -> set[str]:
        return set()

    async def members(self) -> list[Member]:
        return []

    # --- nobody has to hear ---

    async def job_waits(self) -> None: ...

    async def dropped(self, identity: str) -> None: ...

    async def charge(self, job: Job, done: Done) -> None: ...

    def tell(self, job: str, progress: JobProgress | None) -> None: ...

    async def sweep(self) -> None: ...

    def stop_taking(self) -> None: ...

    async def drain(self, until: float, hurried: asyncio.Event) -> None: ...

    async def end(self) -> None: ...

    def require_worker(self) -> None: ...
