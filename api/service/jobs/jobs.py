"""Jobs: accepted into the database, run by the engine, visible once."""

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
    ConflictError,
    DamagedObjectError,
    DeadlineError,
    GoneError,
    NotReadyError,
    StorageFullError,
    UnavailableError,
    UnknownModelError,
)
from cloakwork.api.service.clock import day_of, new_id, now
from cloakwork.api.service.jobs.events import JobEvents, JobProgress
from cloakwork.api.service.jobs.store import CANCELLED, DONE, FAILED, QUEUED, Job, JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import Scoring, ScoringRequest
from cloakwork.api.service.scoring.work import DEFAULT_PRIORITY
from cloakwork.api.service.storage.away import is_away
from cloakwork.api.service.storage.damage import Damage, has_digest
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.storage.write import write_file
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

    @property
    def job_node(self) -> str:
        """Returns the process that a job belongs to when it is accepted; none: the database hands out what waits."""

    @property
    def keeps_jobs(self) -> bool:
        """Whether a job stays with the process that accepted it."""

    async def job_waits(self) -> None: ...

    async def dropped(self, identity: str) -> None:
        """Reports that whoever has this job has to stop."""

    async def charge(self, job: Job, done: Done) -> None:
        """Charges what the run took beyond its estimate to its tenant."""

    def tell(self, job: str, progress: JobProgress | None) -> None:
        """Tells the others of a job's progress, or of a change of its state."""


@dataclass(frozen=True)
class JobOptions:
    """Options of a job that a client sends beside its ciphertexts."""

    priority: int = DEFAULT_PRIORITY
    deadline_seconds: float | None = None
    idempotency_key: str | None = None


class Jobs:
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
        self._store = store
        self._storage = storage
        self._scoring = scoring
        self._dispatcher = dispatcher
        self._models = models
        self._keys = keys
        self._usage = usage
        self._disk = disk
        self._damage = damage
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._waiting: set[str] = set()  # jobs whose model cannot be served
        self._ending = asyncio.Event()
        self._peers = peers
        self.events = JobEvents()

    # --- accepting ---

    async def take(self, request: ScoringRequest, body: bytes, options: JobOptions) -> Job:
        """Accepts a job, or finds the one that the same idempotency key has made before."""
        digest = hashlib.sha256(body).hexdigest()
        first = await self.known(request.tenant, options)
        if first is not None:
            return same_request(first, request_digest(request, digest))
        size = len(body) + request.model.output_bytes(request.samples)
        await self._usage.require_bytes(request.tenant, size)
        identity = new_id()
        name = f"inputs/{identity}"
        with self._disk.writing(name, size):
            await asyncio.to_thread(write_file, self._storage.place(name), body)
            try:
                await self._storage.keep(name)
            except OSError:
                await self._storage.drop_copy(name)
                raise
            return await self.accept(request, identity, digest, len(body), options)

    async def known(self, tenant: Tenant, options: JobOptions) -> Job | None:
        """Returns the job that this idempotency key has made before."""
        if options.idempotency_key is None:
            return None
        return await self._store.by_idempotency_key(tenant.name, options.idempotency_key)

    async def accept(self, request: ScoringRequest, identity: str, digest: str, size: int, options: JobOptions) -> Job:
        """Accepts a job, which is not lost from here on. its input lies in the storage as `inputs/<identity>`; a repeated request gets the first
        job."""
        job = Job(
            id=identity,
            tenant=request.tenant.name,
            model=request.model.name,
            version=request.model.version,
            program_digest=request.model.digest,
            evaluation_key=request.key.id,
            state=QUEUED,
            priority=options.priority,
            samples=request.samples,
            bootstraps=request.bootstraps,
            input_bytes=size,
            expected_bytes=request.model.output_bytes(request.samples),
            idempotency_key=options.idempotency_key,
            request_sha256=request_digest(request, digest),
            node=self._peers.job_node,
            attempts=0,
            created_at=now(),
            deadline_at=None if options.deadline_seconds is None else now() + options.deadline_seconds,
            seconds=self._scoring.estimates.seconds(request.model, request.samples),
        )
        if not await self._add(job, request):
            await self._storage.delete(job.input_name)
            first = await self.known(request.tenant, options)
            if first is None:
                raise UnavailableError("the job could not be stored; try again", retry_after=1)
            return same_request(first, job.request_sha256)
        if self._peers.keeps_jobs:
            try:
                await self._enqueue(job, request)
            except Exception as error:
                if not is_away(error):
                    raise
                _log.warning("job %s begins when the storage answers (%s)", job.id, error)  # housekeeping sees to it
                self._over(job.id)
        else:
            await self._peers.job_waits()
        return job

    async def _add(self, job: Job, request: ScoringRequest) -> bool:
        """The row, while the tenant's limits allow it; False when there is one with its idempotency key."""
        day = await self._usage.charge(request.tenant, _charged(job))
        added = False
        try:
            added = await self._store.add(
                job, self._usage.admission(request.tenant, job.input_bytes + job.expected_bytes)
            )
            return added
        except Exception as error:
            if isinstance(error, FheError) or is_full(error):  # else the row may be there, and housekeeping will see
                await self._storage.delete(job.input_name)
            raise
        finally:
            if not added:
                self._usage.refund(job.tenant, day, _charged(job))

    async def _enqueue(self, job: Job, request: ScoringRequest) -> None:
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
                self._over(job.id)
            return claimed

        return claim

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
        self._over(job.id)

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
                self._refund(job)
            if failed or self._peers.keeps_jobs:  # else another process may have the job now, and need it
                await self._storage.delete(job.input_name)
        self._over(job.id)

    def _over(self, identity: str) -> None:
        self._disk.release(identity)
        self._changed(identity, over=True)

    def _changed(self, identity: str, *, over: bool = False) -> None:
        """Tells of a change of the job's state in the database."""
        self.events.heard(identity, None, over=over)
        self._peers.tell(identity, None)

    def _report(self, identity: str, progress: JobProgress) -> None:
        self.events.heard(identity, progress)
        self._peers.tell(identity, progress)

    def _refund(self, job: Job) -> None:
        """Its bootstraps and answers, on the day that they were counted."""
        self._usage.refund(job.tenant, day_of(job.created_at), _charged(job))

    # --- asking and ending ---

    async def get(self, tenant: Tenant, identity: str) -> Job:
        return await self._store.get(tenant.name, identity)

    async def of_tenant(self, tenant: Tenant, limit: int) -> list[Job]:
        return await self._store.of_tenant(tenant.name, limit)

    async def result(self, tenant: Tenant, identity: str) -> tuple[Job, Path]:
        job = await self.get(tenant, identity)
        if job.state == FAILED:
            raise GoneError(f"the job failed ({job.error_code}): {job.error_message}")
        if job.state == CANCELLED:
            raise GoneError("the job was cancelled; there is no result")
        if job.state != DONE or job.result_name is None:
            raise NotReadyError(f"the job is {job.state}; watch it at /v2/jobs/{identity}/events", retry_after=1)
        path = await self._damage.intact(
            job.result_name, lambda path: has_digest(path, job.result_bytes, job.result_sha256)
        )
        if path is None:
            await self.get(tenant, identity)  # unless it was deleted meanwhile
            raise DamagedObjectError("the storage has lost or damaged the result; send the job again")
        return job, path

    async def cancel_or_forget(self, tenant: Tenant, identity: str) -> None:
        """Cancels what has not ended, deletes what has."""
        job = await self.get(tenant, identity)
        with self._disk.relieved():
            if not job.over and await self._store.cancel(identity):
                await self.drop(job)
                return
        await self.forget(await self.get(tenant, identity))

    async def cancel(self, identity: str) -> Job:
        """Cancels a job, whosever it is; its owner sees it as cancelled.

        Raises:
            UnknownJobError.
            ConflictError: it is over.
        """
        job = await self._store.find(identity)
        with self._disk.relieved():
            if not await self._store.cancel(identity):
                raise ConflictError(f"job '{identity}' is over; there is nothing to cancel")
            await self.drop(job)
        return job

    async def drop(self, job: Job) -> None:
        """Drops a job whose row says that it is over: nothing runs it any more, and its input goes."""
        self._dispatcher.cancel(job.id)
        await self._peers.dropped(job.id)
        if job.state == QUEUED:
            self._refund(job)
        await self._storage.delete(job.input_name)
        self._over(job.id)

    async def forget(self, job: Job) -> None:
        """Deletes the row first, then what it names."""
        with self._disk.relieved():
            await self._store.delete(job.id)
            if job.result_name is not None:
                await self._storage.delete(job.result_name)
            await self._storage.delete(job.input_name)

    async def expire(self, job: Job) -> None:
        """Expires a job whose deadline has passed."""
        text = "the deadline passed before the job was done"
        if await self._store.fail(job.id, DeadlineError.code, text, of_this_node=self._peers.keeps_jobs):
            await self.drop(job)

    async def abandon(self) -> None:
        """Cancels what waits or runs here although its row does not say so: cancelled through another service, or removed with its tenant."""
        here = self._dispatcher.jobs()
        for identity in set(here) - await self._store.mine(here):
            self._dispatcher.cancel(identity)
            self._over(identity)

    def let_go(self, identities: Iterable[str]) -> None:
        """Lets jobs go that another process has now."""
        for identity in identities:
            self._over(identity)

    # --- after a restart ---

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
            await self._enqueue(
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
        self._over(job.id)

    async def gave_up(self, job: Job) -> None:
        """Fails a job: the processes that ran it died, as its row says."""
        self._refund(job)
        await self._storage.delete(job.input_name)
        self._over(job.id)

    async def drain(self) -> None:
        """Waits for results that are being recorded; one that cannot be now is computed again."""
        self._ending.set()
        while self._tasks:
            with contextlib.suppress(Exception):
                await asyncio.gather(*self._tasks)


def request_digest(request: ScoringRequest, body_digest: str) -> str:
    """Digests what makes two requests the same: program, key and ciphertexts."""
    return hashlib.sha256(f"{request.model.digest} {request.key.id} {body_digest}".encode()).hexdigest()


def same_request(first: Job, digest: str) -> Job:
    if first.request_sha256 != digest:
        raise ConflictError("this idempotency key was used for another request; take a new one for each request")
    return first


def _charged(job: Job) -> DayWork:
    """Of the tenant's day."""
    return DayWork(job.model, job.bootstraps, job.samples)


def _result_name(job: Job) -> str:
    # A name of its own for each acceptance by a service: one that was taken for dead cannot write over another's.
    return f"results/{job.id}-{job.node[:8]}"


def _progress(progress: Progressed, seconds: float) -> JobProgress:
    done, total = progress.done, progress.total
    return JobProgress(done, total, seconds * (total - done) / done if done else None)
