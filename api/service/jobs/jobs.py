"""Jobs: accepted into the database, visible once, cancelled, forgotten; `runs.py` runs them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from cloakwork.api.errors import (
    ConflictError,
    DamagedObjectError,
    DeadlineError,
    GoneError,
    NotReadyError,
    UnavailableError,
)
from cloakwork.api.service.clock import new_id, now
from cloakwork.api.service.jobs.runs import JobRuns, Peers, charged, request_digest
from cloakwork.api.service.jobs.store import CANCELLED, DONE, FAILED, QUEUED, Job, JobStore
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import ScoringRequest
from cloakwork.api.service.scoring.waiting import Estimates
from cloakwork.api.service.scoring.work import DEFAULT_PRIORITY
from cloakwork.api.service.storage.data_folder import write_file
from cloakwork.api.service.storage.disk import Disk, is_away, is_full
from cloakwork.api.service.storage.objects import Damage, Storage, has_digest
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.fhe_core.errors import FheError

_log = logging.getLogger("cloakwork.jobs")


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
        estimates: Estimates,
        dispatcher: Dispatcher,
        usage: Usage,
        disk: Disk,
        damage: Damage,
        runs: JobRuns,
        peers: Peers,
    ) -> None:
        self._store, self._storage, self._disk, self._damage = store, storage, disk, damage
        self._estimates, self._dispatcher, self._usage = estimates, dispatcher, usage
        self._runs, self._peers = runs, peers
        self.events = runs.events

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
            seconds=self._estimates.seconds(request.model, request.samples),
        )
        if not await self._add(job, request):
            await self._storage.delete(job.input_name)
            first = await self.known(request.tenant, options)
            if first is None:
                raise UnavailableError("the job could not be stored; try again", retry_after=1)
            return same_request(first, job.request_sha256)
        if self._peers.keeps_jobs:
            try:
                await self._runs.enqueue(job, request)
            except Exception as error:
                if not is_away(error):
                    raise
                _log.warning("job %s begins when the storage answers (%s)", job.id, error)  # housekeeping sees to it
                self._runs.over(job.id)
        else:
            await self._peers.job_waits()
        return job

    async def _add(self, job: Job, request: ScoringRequest) -> bool:
        """The row, while the tenant's limits allow it; False when there is one with its idempotency key."""
        day = await self._usage.charge(request.tenant, charged(job))
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
                self._usage.refund(job.tenant, day, charged(job))

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
            self._runs.refund(job)
        await self._storage.delete(job.input_name)
        self._runs.over(job.id)

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


def same_request(first: Job, digest: str) -> Job:
    if first.request_sha256 != digest:
        raise ConflictError("this idempotency key was used for another request; take a new one for each request")
    return first
