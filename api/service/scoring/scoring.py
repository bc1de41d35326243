"""Inference: a request is checked, then run at once or accepted as a job."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cloakwork.api.engine.messages import Done, End, Event, Failed, KeyPlace, ModelPlace
from cloakwork.api.errors import (
    AWAY_SECONDS,
    BusyError,
    KeyRequiredError,
    TooLongError,
    UnavailableError,
    WrongParametersError,
)
from cloakwork.api.metrics import Metrics
from cloakwork.api.service.clock import new_id
from cloakwork.api.service.keys.keys import KeyRecord, Keys
from cloakwork.api.service.keys.uploads import Uploads
from cloakwork.api.service.models.model import Model, RequestHeader
from cloakwork.api.service.scoring.waiting import Estimates, RequestLine
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY, Subject, Work
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.service.tenants.usage import DayWork, Usage
from cloakwork.api.settings import Settings
from cloakwork.fhe_core.errors import FheError


@dataclass(frozen=True)
class ScoringRequest:
    """One that can be run: its sizes, parameter set and key fit the model."""

    tenant: Tenant
    model: Model
    key: KeyRecord
    samples: int

    @property
    def bootstraps(self) -> int:
        return self.model.bootstraps * self.samples

    @property
    def charged(self) -> DayWork:
        """Returns what was charged of the tenant's day."""
        return DayWork(self.model.name, self.bootstraps, self.samples)


@dataclass(frozen=True)
class Answer:
    body: bytes
    run_seconds: float
    queue_seconds: float


class RemoteError(FheError):
    """An error that the engine reported; `code` and `http_status` are those of its class."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.code = failed.code  # type: ignore[misc]
        self.http_status = failed.http_status  # type: ignore[misc]
        self.retry_after = AWAY_SECONDS if self.code == UnavailableError.code else None


class Scoring:
    """`damaged`: called when a run says that its model's file is damaged."""

    def __init__(
        self,
        settings: Settings,
        line: RequestLine,
        keys: Keys,
        uploads: Uploads,
        storage: Storage,
        usage: Usage,
        metrics: Metrics,
        estimates: Estimates,
        damaged: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._line = line
        self._keys = keys
        self._uploads = uploads
        self._storage = storage
        self._usage = usage
        self._metrics = metrics
        self.estimates = estimates
        self._damaged = damaged

    # --- checks, before the body is read and after its first bytes ---

    def largest_batch(self, model: Model) -> int:
        return min(self._settings.max_samples, int(model.facts["largest_batch"]))

    def check_length(self, model: Model, length: int) -> None:
        """Checks that some number of samples has this size."""
        model.check_length(length, self.largest_batch(model))

    def check_header(self, model: Model, start: bytes, length: int) -> RequestHeader:
        """Checks that the object claims to be what the model takes."""
        return model.check_header(start, length, self.largest_batch(model))

    async def admit(
        self, tenant: Tenant, model: Model, header: RequestHeader, wanted_key: str | None
    ) -> ScoringRequest:
        """Checks the key, the quota, and room in the queue."""
        secret_id = header.key_id.hex()
        key = await self._keys.choose(tenant.name, model.parameter_digest, wanted_key, secret_id)
        if key.secret_id != secret_id:
            raise WrongParametersError(
                f"the ciphertexts belong to key {secret_id[:8]}.., the evaluation keys '{key.id}' to key {(key.secret_id or '')[:8]}..; "
                "they come from different secret keys"
            )
        request = ScoringRequest(tenant, model, key, header.samples)
        self._line.require_room(tenant.name, self._usage.max_queue(tenant))
        await self._usage.require(tenant, request.charged)
        return request

    def is_short(self, request: ScoringRequest) -> bool:
        estimate = self.estimates.seconds(request.model, request.samples)
        wait = self._line.wait_seconds(request.tenant.name, estimate)
        return estimate + wait <= self._settings.synchronous_seconds

    def require_soon(self, request: ScoringRequest) -> None:
        """Requires room for whoever can only wait for the answer.

        Raises:
            TooLongError, BusyError, UnavailableError.
        """
        most = self._settings.tensor_seconds
        estimate = self.estimates.seconds(request.model, request.samples)
        if estimate > most:
            raise TooLongError(
                f"this takes about {estimate:.0f} seconds, and a request that waits for its answer may take {most:g}; send the same body to "
                f"POST /v2/models/{request.model.name}/jobs, or fewer samples"
            )
        wait = self._line.wait_seconds(request.tenant.name, estimate)
        if math.isinf(wait):
            raise UnavailableError("nothing is there to run the request; try again, or send a job", retry_after=5)
        if estimate + wait > most:
            text = f"others are before this request, for about {wait:.0f} seconds; try again, or send a job"
            raise BusyError(text, retry_after=min(60.0, wait))

    # --- running ---

    async def run_now(self, request: ScoringRequest, body: bytes) -> Answer:
        """Waits for the engine. Nothing is stored; a caller that goes away takes its request with it."""
        future: asyncio.Future[End] = asyncio.get_running_loop().create_future()

        def listen(event: Event) -> None:
            if isinstance(event, Done | Failed) and not future.done():
                future.set_result(event)

        work = await self.work(request, new_id(), SYNCHRONOUS_PRIORITY, listen)
        work.body = body
        day = await self._usage.charge(request.tenant, request.charged)
        refund = partial(self._usage.refund, request.tenant.name, day, request.charged)
        self._line.submit(work)
        try:
            end = await future
        except asyncio.CancelledError:
            self._line.abandon(work.id, refund)
            raise
        if isinstance(end, Failed):
            refund()
            await self.look_after(request.key, end)
            raise RemoteError(end)
        queue_seconds = max(0.0, time.monotonic() - work.queued_at - (end.took_seconds or end.busy_seconds or 0.0))
        self.account(request, end, queue_seconds)
        return Answer(end.body, end.seconds, queue_seconds)

    async def work(
        self, request: ScoringRequest, identity: str, priority: int, listen: Callable[[Event], None]
    ) -> Work:
        seconds = self.estimates.seconds(request.model, request.samples)
        long = seconds > self._settings.synchronous_seconds
        model, key = request.model, KeyPlace(request.key.id, await self._key_file(request.key))
        subject = Subject(model.name, model.version, model.parameter_set, request.samples)
        largest = min(self._settings.max_samples, model.largest_run)
        return Work(
            identity,
            request.tenant.name,
            priority,
            ModelPlace(model.kind, model.artefact_sha256, model.artefact),
            key,
            listen,
            seconds,
            long,
            subject=subject,
            samples=request.samples,
            largest=largest,
            seconds_on=partial(self.estimates.on, model),
        )

    async def _key_file(self, key: KeyRecord) -> Path:
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                path = await self._storage.local(key.name)
                if path.stat().st_size == key.bytes:
                    return path
            await self._storage.drop_copy(key.name)  # the object itself may be whole
        await self._uploads.lost(key)
        raise KeyRequiredError(f"the file of key '{key.id}' is lost; upload the key again: POST /v2/keys")

    async def look_after(self, key: KeyRecord, failed: Failed) -> None:
        """Handles a failed run; when that is because of what the storage has made of its key, the key has to come again, and when it is because of
        the model's file, the model is out of service."""
        if failed.key_damaged:
            await self._uploads.lost(key)
        if failed.model_damaged:
            await self._damaged()

    def account(self, request: ScoringRequest, done: Done, queue_seconds: float) -> None:
        """Accounts for one run that succeeded; its bootstraps were counted when it was accepted."""
        name = request.model.parameter_set
        self.learn(request, done)
        self._usage.count(request.tenant.name, requests=1, samples=request.samples)
        self._metrics.answers.inc(request.samples)
        self._metrics.activity.ran(request.model.name, request.model.version, request.samples, done.seconds)
        self._metrics.ran(name, done.device, request.bootstraps, queue_seconds, done.seconds)
        if done.together > 1:
            self._metrics.joined.inc()

    def learn(self, request: ScoringRequest, done: Done) -> None:
        """Learns how long it took, from the message of an engine here, or of another process's."""
        device = None if done.worker else done.device
        self.estimates.learn(request.model, request.samples, done.seconds, done.together, device)
