"""The fleet: this process among the others on its database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final

from cloakwork.api.database.connection import Database
from cloakwork.api.engine.messages import Done
from cloakwork.api.errors import UnavailableError
from cloakwork.api.release import release
from cloakwork.api.service.fleet.front import Front
from cloakwork.api.service.fleet.members import MemberFacts, Members
from cloakwork.api.service.fleet.notices import DROPPED, JOBS, WORK, Heard, JobNotice, Notices, answers, notify
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.fleet.worker import Worker
from cloakwork.api.service.jobs.events import JobEvents, JobProgress
from cloakwork.api.service.jobs.store import Job
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.settings import Settings

_PROGRESS_SECONDS: Final = 1.0  # between two notices of one job's progress

_log = logging.getLogger("cloakwork.fleet")


class Fleet:
    def __init__(
        self,
        settings: Settings,
        database: Database,
        node: str,
        storage: Storage,
        models: Models,
        dispatcher: Dispatcher,
    ) -> None:
        self._settings, self._database, self._dispatcher = settings, database, dispatcher
        self.queue = WorkQueue(database, node, settings.takeover_seconds, settings.max_attempts)
        self.members = Members(database, node, settings.takeover_seconds)
        self.front = Front(
            settings, self.queue, self.members, storage, lambda name, version: models.accepted(name, version).digest
        )
        self.worker: Worker | None = None
        self._events: JobEvents | None = None
        self._notices: Notices | None = None
        self._told: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._publishing: asyncio.Task[None] | None = None
        self.draining = False

    def attach(self, events: JobEvents, worker: Worker | None) -> None:
        self._events, self.worker = events, worker
        if worker is not None:
            events.tell = self._tell

    async def begin(self) -> None:
        """Begins: work is taken and answered from here on; what an earlier process of this name had waits again."""
        await self.members.arrive(self.facts())
        await self.queue.recover(of_this_node=True)
        channels: dict[str, Heard] = {}
        if self._settings.serves:
            channels |= {answers(self.members.node): self.front.heard, JOBS: self._heard_of_job}
            await self.front.start()
        if self.worker is not None:
            channels |= {WORK: self.worker.wake, DROPPED: self.worker.dropped}
            self.worker.start()
        self._notices = Notices(self._database, channels, self._missed)
        self._notices.start()

    def facts(self) -> MemberFacts:
        role, dispatcher = self._settings.role, self._dispatcher
        if self.worker is None:
            return MemberFacts(role, release(), draining=self.draining)
        engines = dispatcher.engines
        workers = engines.workers if engines.up else 0
        return MemberFacts(role, release(), " ".join(engines.devices), workers, dispatcher.running, self.draining)

    async def beat(self) -> None:
        await self.members.beat(self.facts())
        if self.worker is not None and (self._publishing is None or self._publishing.done()):
            # Beside the beat: an engine that is slow to say what it holds is none that has died.
            self._publishing = asyncio.create_task(self._quietly(self.worker.publish()))

    def stop_taking(self) -> None:
        """Stops taking work after a signal: what runs is finished, nothing new begins."""
        self.draining = True
        if self.worker is not None:
            self.worker.stop_taking()

    async def drain(self, until: float, hurried: asyncio.Event) -> None:
        self.stop_taking()
        try:
            async with asyncio.timeout(1.0):
                await self.members.beat(self.facts())
        except Exception as error:
            _log.warning("the database does not hear that this process ends (%s)", type(error).__name__)
        if self.worker is not None:
            await self.worker.drain(lambda: hurried.is_set() or time.monotonic() > until)

    async def end(self) -> None:
        """Ends the fleet after the dispatcher has ended and results are recorded: what is left waits for others."""
        await self.front.stop()
        if self._notices is not None:
            await self._notices.stop()
        for task in [*self._tasks, *([self._publishing] if self._publishing else [])]:
            task.cancel()
        try:
            async with asyncio.timeout(5.0):
                await self.queue.recover(of_this_node=True)
                await self.members.leave()
        except Exception as error:
            _log.warning("the database does not hear that this process ended (%s)", type(error).__name__)

    def require_worker(self) -> None:
        if not self.front.workers:
            raise UnavailableError("no worker is there to run requests; jobs are taken and wait", retry_after=5)

    # --- for jobs ---

    async def job_waits(self) -> None:
        await self._quietly(self.queue.job_waits())

    async def dropped(self, identity: str) -> None:
        await self._quietly(self.queue.dropped(identity))

    async def charge(self, job: Job, done: Done) -> None:
        await self._quietly(self.queue.charge(job.priority, job.tenant, done.beyond(job.seconds)))

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        """The row is there: a notice that is lost costs a second, a charge a turn, keys that nobody knows of an expansion."""
        try:
            await work
        except Exception as error:
            _log.warning("the database was not told something (%s)", type(error).__name__)

    def _tell(self, job: str, progress: JobProgress | None) -> None:
        now = time.monotonic()
        if progress is None:
            self._told.pop(job, None)
        else:
            if now - self._told.get(job, 0.0) < _PROGRESS_SECONDS:
                return
            self._told[job] = now
        task = asyncio.create_task(self._quietly(self._send(JobNotice(self.members.node, job, progress))))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, notice: JobNotice) -> None:
        async with self._database.write() as connection:
            await notify(connection, JOBS, notice.to_text())

    def _heard_of_job(self, payload: str) -> None:
        notice = JobNotice.from_text(payload)
        if self._events is not None and notice.node != self.members.node:
            self._events.heard(notice.job, notice.progress, over=notice.progress is None)

    def _missed(self) -> None:
        self.front.look()
        self.members.forget_published()
        if self.worker is not None:
            self.worker.wake()
