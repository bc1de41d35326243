"""A fleet of several processes: requests and jobs are rows of the database, which workers lease."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from cloakwork.api.database.connection import Database
from cloakwork.api.engine.messages import Done
from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.fleet.fleet import HEARTBEATS, Chore
from cloakwork.api.service.fleet.front import Front
from cloakwork.api.service.fleet.members import Member, MemberFacts, Members
from cloakwork.api.service.fleet.notices import DROPPED, JOBS, WORK, Heard, JobNotice, Notices, answers, notify
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.fleet.worker import Worker
from cloakwork.api.service.jobs.runs import JobRuns
from cloakwork.api.service.jobs.store import Job, JobProgress, JobStore
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import Scoring
from cloakwork.api.service.storage.disk import Disk
from cloakwork.api.settings import Settings, release

_PROGRESS_SECONDS: Final = 1.0  # between two notices of one job's progress
_SILENT_SECONDS: Final = 0.5  # until the work of one that is silent waits again
_WORKER_SECONDS: Final = 1.0  # until others know which keys the engine holds, and a worker that it lost a call

_log = logging.getLogger("cloakwork.fleet")
_chore_log = logging.getLogger("cloakwork.housekeeping")


class Shared:
    """This process among the others. `worker_of`: makes its worker, if it computes."""

    job_node = ""
    keeps_jobs = False

    def __init__(
        self,
        settings: Settings,
        database: Database,
        store: JobStore,
        queue: WorkQueue,
        members: Members,
        front: Front,
        scoring: Scoring,
        dispatcher: Dispatcher,
        disk: Disk,
        worker_of: Callable[[JobRuns], Worker] | None,
    ) -> None:
        self._settings, self._database, self._store = settings, database, store
        self._queue, self._members = queue, members
        self.line, self.scoring = front, scoring
        self._dispatcher, self._disk, self._worker_of = dispatcher, disk, worker_of
        self._runs: JobRuns
        self._work: Worker | None = None
        self._notices: Notices | None = None
        self._missing: set[str] = set()  # jobs of this process that were nowhere in it when it last looked
        self._told: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._publishing: asyncio.Task[None] | None = None
        self._draining = False

    async def begin(self, runs: JobRuns) -> None:
        """Begins: work is taken and answered from here on; what an earlier process of this name had waits again."""
        self._runs = runs
        self._work = self._worker_of(runs) if self._worker_of is not None else None
        with self._disk.relieved():
            await self._members.arrive(self._facts())
            await self._queue.recover(of_this_node=True)
            channels: dict[str, Heard] = {}
            if self._settings.serves:
                channels |= {answers(self._members.node): self.line.heard, JOBS: self._heard_of_job}
                await self.line.start()
            if self._work is not None:
                channels |= {WORK: self._work.wake, DROPPED: self._work.dropped}
                self._work.start()
            self._notices = Notices(self._database, channels, self._missed)
            self._notices.start()

    def _facts(self) -> MemberFacts:
        role, dispatcher = self._settings.role, self._dispatcher
        if not self._settings.computes:
            return MemberFacts(role, release(), draining=self._draining)
        engines = dispatcher.engines
        workers = engines.workers if engines.up else 0
        return MemberFacts(role, release(), " ".join(engines.devices), workers, dispatcher.running, self._draining)

    async def beat(self) -> None:
        await self._members.beat(self._facts())

    # --- chores ---

    def chores(self) -> Sequence[Chore]:
        others = self._others, self._settings.takeover_seconds / HEARTBEATS
        return [others, (self._silent, _SILENT_SECONDS), (self._worker, _WORKER_SECONDS)]

    async def _others(self) -> None:
        await self.beat()
        worker = self._work
        if worker is None:
            return
        if self._publishing is None or self._publishing.done():
            # Beside the beat: an engine that is slow to say what it holds is none that has died.
            self._publishing = asyncio.create_task(self._quietly(worker.publish()))
        if worker.draining:
            return
        mine = [job for job in await self._store.own_unfinished() if not worker.starts(job.id)]
        missing = {job.id for job in mine if not self._runs.in_hand(job)}
        for job in mine:
            if job.id in missing & self._missing:  # the database failed when its end was to be recorded
                await self._runs.resume(job)
        self._missing = missing - self._missing

    async def _silent(self) -> None:
        """What another process had that is not heard of any more."""
        heard = await self._members.heard()
        if not await self._queue.anything_lost(heard):
            return
        count, failed = await self._queue.recover(heard)
        if count:
            _chore_log.warning("work of a process that is gone waits again", extra={"rows": count})
        for job in failed:
            await self._runs.gave_up(job)

    async def _worker(self) -> None:
        if self._work is not None:
            await self._work.publish()
            await self._work.abandon()

    async def sweep(self) -> None:
        await self._members.sweep()
        await self._queue.sweep()

    # --- the end ---

    def stop_taking(self) -> None:
        self._draining = True
        if self._work is not None:
            self._work.stop_taking()

    async def drain(self, until: float, hurried: asyncio.Event) -> None:
        self.stop_taking()
        try:
            async with asyncio.timeout(1.0):
                await self.beat()
        except Exception as error:
            _log.warning("the database does not hear that this process ends (%s)", type(error).__name__)
        if self._work is not None:
            await self._work.drain(lambda: hurried.is_set() or time.monotonic() > until)
        await self._runs.drain()

    async def end(self) -> None:
        """Ends the fleet after the dispatcher has ended and results are recorded: what is left waits for others."""
        await self.line.stop()
        if self._notices is not None:
            await self._notices.stop()
        for task in [*self._tasks, *([self._publishing] if self._publishing else [])]:
            task.cancel()
        try:
            async with asyncio.timeout(5.0):
                await self._queue.recover(of_this_node=True)
                await self._members.leave()
        except Exception as error:
            _log.warning("the database does not hear that this process ended (%s)", type(error).__name__)

    # --- who is there, and what waits ---

    def require_worker(self) -> None:
        if not self.line.workers:
            raise UnavailableError("no worker is there to run requests; jobs are taken and wait", retry_after=5)

    async def requests_waiting(self) -> int:
        return await self._queue.calls_waiting()

    async def existing_calls(self, identities: list[str]) -> set[str]:
        return await self._queue.existing(identities)

    async def members(self) -> list[Member]:
        return await self._members.alive()

    # --- for jobs ---

    async def job_waits(self) -> None:
        await self._quietly(self._queue.job_waits())

    async def dropped(self, identity: str) -> None:
        await self._quietly(self._queue.dropped(identity))

    async def charge(self, job: Job, done: Done) -> None:
        await self._quietly(self._queue.charge(job.priority, job.tenant, done.beyond(job.seconds)))

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        """The row is there: a notice that is lost costs a second, a charge a turn, keys that nobody knows of an expansion."""
        try:
            await work
        except Exception as error:
            _log.warning("the database was not told something (%s)", type(error).__name__)

    def tell(self, job: str, progress: JobProgress | None) -> None:
        if not self._settings.computes:
            return
        now = time.monotonic()
        if progress is None:
            self._told.pop(job, None)
        else:
            if now - self._told.get(job, 0.0) < _PROGRESS_SECONDS:
                return
            self._told[job] = now
        task = asyncio.create_task(self._quietly(self._send(JobNotice(self._members.node, job, progress))))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, notice: JobNotice) -> None:
        async with self._database.write() as connection:
            await notify(connection, JOBS, notice.to_text())

    def _heard_of_job(self, payload: str) -> None:
        notice = JobNotice.from_text(payload)
        if notice.node != self._members.node:
            self._runs.events.heard(notice.job, notice.progress, over=notice.progress is None)

    def _missed(self) -> None:
        self.line.look()
        self._members.forget_published()
        if self._work is not None:
            self._work.wake()
