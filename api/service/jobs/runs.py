"""Jobs that this process runs: queued for its engines, watched, recorded when they end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from cloakwork.api.engine.messages import Done, Event, Failed, Lost, Progressed, Started
from cloakwork.api.errors import (
    DamagedObjectError,
    GoneError,
    StorageFullError,
    UnavailableError,
    UnknownModelError,
)
from cloakwork.api.service.clock import day_of, now
from cloakwork.api.service.jobs.store import CANCELLED, QUEUED, Job, JobEvents, JobProgress, JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import Scoring, ScoringRequest
from cloakwork.api.service.storage.disk import Disk, is_away, is_full
from cloakwork.api.service.storage.objects import Damage, Storage
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.service.tenants.usage import DayWork, Usage
from cloakwork.fhe_core.errors import FheError

_RECORD_SECONDS: Final = 600.0  # that the result of a job is kept while it cannot be recorded
_RECORD_AGAIN_SECONDS: Final = 0.5
_RECORD_AGAIN_MOST: Final = 8.0

_NOT_THE_INPUT: Final = (CANCELLED, "gone", "key_required", "out_of_memory", "storage_full", "engine_lost")
"""Codes of failures that say nothing about the ciphertexts."""

_log = logging.getLogger("cloakwork.jobs")


@dataclass
class _Attempt:
    """The attempt of a job: whoever ends the job names its number."""

    number: int


class Peers(Protocol):
    """The fleet (`fleet/`), as jobs need it."""

    job_node: str  # that a job belongs to when it is accepted; none: the database hands out what waits
    keeps_jobs: bool  # whether a job stays with the process that accepted it

    async def job_waits(self) -> None: ...

    async def dropped(self, identity: str) -> None:
        """Reports that whoever has this job has to stop."""

    async def charge(self, job: Job, done: Done) -> None:
        """Charges what the run took beyond its estimate to its tenant."""

    def tell(self, job: str, progress: JobProgress | None) -> None:
        """Tells the others of a job's progress, or of a change of its state."""


class JobRuns:
    def __init__(
        self,
        store: JobStore,
        storage: Storage,
        scoring: Scoring,
        dispatcher: Dispatcher,
        models: Models,
        keys: Keys,
        usage: Usage,
        disk: Disk,
        damage: Damage,
        peers: Peers,
    ) -> None:
        self._store, self._storage, self._disk, self._damage = store, storage, disk, damage
        self._scoring, self._dispatcher, self._models, self._keys = scoring, dispatcher, models, keys
        self._usage, self._peers = usage, peers
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._waiting: set[str] = set()  # jobs whose model cannot be served
        self._ending = asyncio.Event()
        self.events = JobEvents()

    # --- queued ---

    async def enqueue(self, job: Job, request: ScoringRequest) -> None:
        self._disk.promise(job.id, job.expected_bytes)
        attempt = _Attempt(job.attempts)
        work = await self._scoring.work(request, job.id, job.priority, self._listener(job, request, attempt))
        work.input = str(await self._storage.local(job.input_name))
        work.output, work.progress = str(self._storage.place(_result_name(job))), True
        work.claim = self._claim(job, attempt)
        work.alone = job.attempts > 0
        work.queued_at -= max(0.0, now() - job.created_at)
        self._dispatcher.submit(work)

    def _claim(self, job: Job, attempt: _Attempt) -> Callable[[], Coroutine[Any, Any, bool]]:
        async def claim() -> bool:
            with self._disk.relieved():
                claimed = await self._store.claim(job.id, attempt.number)
            if claimed:
                attempt.number += 1
                self._changed(job.id)
            else:
                self.over(job.id)
            return claimed

        return claim

    def in_hand(self, job: Job) -> bool:
        """Whether it waits, runs, or its result is being recorded here."""
        return self._dispatcher.knows(job.id) or job.id in self._tasks.values()

    async def resume(self, job: Job) -> None:
        """Queues a job that was accepted before, perhaps by another service.

        Raises:
            OSError, SQLAlchemyError: what it needs is away.
        """
        try:
            model = self._models.accepted(job.model, job.version)
            if model.digest != job.program_digest:
                raise GoneError(
                    f"version '{job.version}' of model '{job.model}' is another program now; send the job again"
                )
            key = await self._keys.get(job.tenant, job.evaluation_key)
            self._waiting.discard(job.id)
            await self.enqueue(
                replace(job, state=QUEUED), ScoringRequest(Tenant(job.tenant, frozenset()), model, key, job.samples)
            )
        except FileNotFoundError:
            self._damage.report(job.input_name)
            await self._failed(job, DamagedObjectError.code, "the storage has lost the input; send the job again")
        except (UnavailableError, UnknownModelError) as error:
            await self._wait_for_model(job, job.attempts, job.attempts, str(error))
        except FheError as error:
            await self._failed(job, error.code, str(error))

    async def _wait_for_model(self, job: Job, attempts: int, counted: int, why: str) -> None:
        """The job is accepted, and its model may be repaired; one that is removed ends it."""
        if job.id in self._waiting and job.state == QUEUED and counted == job.attempts:
            return  # as it was when it was looked at before
        await self._store.wait(job.id, attempts, counted, self._peers.job_node)
        if job.id not in self._waiting:
            self._waiting.add(job.id)
            _log.warning("a job waits for its model", extra={"job": job.id, "model": job.model, "why": why})
        self.over(job.id)

    # --- while it runs ---

    def _listener(self, job: Job, request: ScoringRequest, attempt: _Attempt) -> Callable[[Event], None]:
        started = queued_at = time.monotonic() - max(0.0, now() - job.created_at)

        def listen(event: Event) -> None:
            nonlocal started
            match event:
                case Started():
                    started = time.monotonic()
                case Progressed():
                    self._report(job.id, _progress(event, time.monotonic() - started))
                case Lost():  # with its engine: it begins again
                    self._changed(job.id, over=True)
                case Done():
                    self._background(job, self._done(job, request, event, attempt, max(0.0, started - queued_at)))
                case Failed():
                    self._background(job, self._broken(job, request, event, attempt))

        return listen

    def _background(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = job.id
        task.add_done_callback(self._tasks.pop)

    async def _done(self, job: Job, request: ScoringRequest, done: Done, attempt: _Attempt, waited: float) -> None:
        """The result is durable before the row says that it is there. While the storage or the database is away it is kept, not computed again."""
        try:
            name = _result_name(job)
            end, pause = time.monotonic() + _RECORD_SECONDS, _RECORD_AGAIN_SECONDS
            while True:
                try:
                    finished = await self._recorded(job, done, attempt, name)
                    break
                except Exception as error:
                    if not is_away(error) or self._ending.is_set() or time.monotonic() > end:
                        raise
                    _log.warning("the result of job %s waits to be recorded (%s)", job.id, type(error).__name__)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._ending.wait()
                pause = min(2 * pause, _RECORD_AGAIN_MOST)
            if finished:
                self._scoring.account(request, done, waited)
                await self._peers.charge(job, done)
                await self._storage.delete(job.input_name)
            else:  # cancelled, adopted, or removed with its tenant meanwhile
                await self._storage.delete(name)
        except Exception as error:
            self._not_recorded(job, error)
        self.over(job.id)

    async def _recorded(self, job: Job, done: Done, attempt: _Attempt, name: str) -> bool:
        """False when the row is another one's. A database that wrote it and could not say so is asked the second time."""
        await self._storage.keep(name)
        with self._disk.relieved():
            if await self._store.finish(
                job.id,
                attempt.number,
                run_seconds=done.seconds,
                result_name=name,
                result_bytes=done.answer_bytes,
                result_sha256=done.sha256,
            ):
                return True
        return await self._store.has_result(job.id, name)

    async def _broken(self, job: Job, request: ScoringRequest, failed: Failed, attempt: _Attempt) -> None:
        try:
            code, text = failed.code, failed.message
            if failed.model_damaged:
                await self._scoring.look_after(request.key, failed)
                await self._wait_for_model(job, attempt.number, max(0, attempt.number - 1), text)
                return
            if code not in _NOT_THE_INPUT and await self._input_is_damaged(job, request):
                code, text = DamagedObjectError.code, "the storage has damaged the input; send the job again"
            await self._failed(job, code, text, attempt.number)
            await self._scoring.look_after(request.key, failed)
        except Exception as error:
            self._not_recorded(job, error)

    async def _input_is_damaged(self, job: Job, request: ScoringRequest) -> bool:
        """An error of the ciphertexts is the client's only when they are those that it sent."""

        def is_intact(path: Path) -> bool:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return request_digest(request, digest) == job.request_sha256

        with contextlib.suppress(OSError):
            return await self._damage.intact(job.input_name, is_intact) is None
        return False

    def _not_recorded(self, job: Job, error: Exception) -> None:
        if is_full(error):
            self._disk.report(error)
        else:
            _log.error("the end of job %s could not be recorded; it is run again", job.id, exc_info=error)

    async def _failed(self, job: Job, code: str, message: str, attempts: int | None = None) -> None:
        if code == StorageFullError.code:
            self._disk.report(StorageFullError(message))
        with self._disk.relieved():
            failed = code != CANCELLED and await self._store.fail(job.id, code, message, attempts=attempts)
            if failed:
                self.refund(job)
            if failed or self._peers.keeps_jobs:  # else another process may have the job now, and need it
                await self._storage.delete(job.input_name)
        self.over(job.id)

    # --- when it is over ---

    def over(self, identity: str) -> None:
        """Gives up the room that was promised to a job, which has ended here."""
        self._disk.release(identity)
        self._changed(identity, over=True)

    def _changed(self, identity: str, *, over: bool = False) -> None:
        """Tells of a change of the job's state in the database."""
        self.events.heard(identity, None, over=over)
        self._peers.tell(identity, None)

    def _report(self, identity: str, progress: JobProgress) -> None:
        self.events.heard(identity, progress)
        self._peers.tell(identity, progress)

    def refund(self, job: Job) -> None:
        """Gives its bootstraps and answers back, on the day that they were counted."""
        self._usage.refund(job.tenant, day_of(job.created_at), charged(job))

    async def abandon(self) -> None:
        """Cancels what waits or runs here although its row does not say so: cancelled through another service, or removed with its tenant."""
        here = self._dispatcher.jobs()
        for identity in set(here) - await self._store.mine(here):
            self._dispatcher.cancel(identity)
            self.over(identity)

    def let_go(self, identities: Iterable[str]) -> None:
        """Lets jobs go that another process has now."""
        for identity in identities:
            self.over(identity)

    async def gave_up(self, job: Job) -> None:
        """Fails a job: the processes that ran it died, as its row says."""
        self.refund(job)
        await self._storage.delete(job.input_name)
        self.over(job.id)

    async def drain(self) -> None:
        """Waits for results that are being recorded; one that cannot be now is computed again."""
        self._ending.set()
        while self._tasks:
            with contextlib.suppress(Exception):
                await asyncio.gather(*self._tasks)


def request_digest(request: ScoringRequest, body_digest: str) -> str:
    """Digests what makes two requests the same: program, key and ciphertexts."""
    return hashlib.sha256(f"{request.model.digest} {request.key.id} {body_digest}".encode()).hexdigest()


def charged(job: Job) -> DayWork:
    """Returns what a job is charged of its tenant's day."""
    return DayWork(job.model, job.bootstraps, job.samples)


def _result_name(job: Job) -> str:
    # A name of its own for each acceptance by a service: one that was taken for dead cannot write over another's.
    return f"results/{job.id}-{job.node[:8]}"


def _progress(progress: Progressed, seconds: float) -> JobProgress:
    done, total = progress.done, progress.total
    return JobProgress(done, total, seconds * (total - done) / done if done else None)
