"""The life of the service: it starts, gets ready, drains and ends; what it says of itself meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from cloakwork.api.database.connection import Database
from cloakwork.api.errors import UnavailableError
from cloakwork.api.metrics import Metrics
from cloakwork.api.service.fleet.fleet import Fleet
from cloakwork.api.service.housekeeping import Housekeeping
from cloakwork.api.service.jobs.runs import JobRuns
from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.engines import Engines
from cloakwork.api.service.storage.data_folder import Node
from cloakwork.api.service.storage.disk import Disk, is_away
from cloakwork.api.service.storage.pairing import Pairing
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.settings import Settings, release

_PING_SECONDS: Final = 5.0
_BEGIN_AGAIN_SECONDS: Final = 2.0
_REMEMBER_SECONDS: Final = 1.0

_log = logging.getLogger("cloakwork.service")


class Readiness:
    """Readiness, determined once for all who ask at the same time: asking needs no API key. `check` raises when the service is not ready; its
    outcome holds for a second."""

    def __init__(self, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._check = check
        self._looking: asyncio.Task[None] | None = None
        self._until = 0.0

    async def require(self) -> None:
        if self._looking is None or (self._looking.done() and time.monotonic() >= self._until):
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            await self._check()
        finally:
            self._until = time.monotonic() + _REMEMBER_SECONDS


class Life:
    def __init__(
        self,
        settings: Settings,
        node: Node,
        database: Database,
        models: Models,
        dispatcher: Dispatcher,
        runs: JobRuns,
        fleet: Fleet,
        housekeeping: Housekeeping,
        pairing: Pairing,
    ) -> None:
        self._settings, self._node, self._database = settings, node, database
        self._models, self._dispatcher, self._runs = models, dispatcher, runs
        self._fleet, self._housekeeping, self._pairing = fleet, housekeeping, pairing
        self._readiness = Readiness(self._check_ready)
        self._opening: asyncio.Task[None] | None = None
        self.started = False
        self.draining = False
        self.unfinished_runs = 0  # when the engine was ended
        self._until = 0.0  # by the monotonic clock: when a process that is to end ends
        self._hurried = asyncio.Event()

    async def start(self) -> None:
        """Returns when requests can be taken; the service is ready when `_open` has ended, which copies the zoo at the first start."""
        if self._settings.computes:
            self._dispatcher.engines.start()
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        """Again while the storage or the database, which were there a moment ago, are away."""
        for begin in (self._models.begin, self._housekeeping.begin):
            while True:
                try:
                    await begin()
                    break
                except Exception as error:
                    if not is_away(error):
                        _log.exception("the service cannot get ready")
                        raise
                    _log.warning("the service cannot get ready yet (%s: %s)", type(error).__name__, error)
                    await asyncio.sleep(_BEGIN_AGAIN_SECONDS)
        self.started = True

    async def opened(self) -> None:
        """Waits until the models are read."""
        if self._opening is not None:
            await asyncio.shield(self._opening)

    def stop_soon(self) -> None:
        """Handles a signal: nothing new begins. The second one: nothing is waited for."""
        if self.draining:
            self._hurried.set()
            return
        self.draining, self._until = True, time.monotonic() + self._settings.drain_seconds
        self._fleet.stop_taking()

    async def stop(self) -> None:
        """Stops: jobs that run are run again at the next start, or by another process; a worker finishes them first, as long as it may."""
        if not self.draining:
            self.stop_soon()
        if self.started:
            await self._fleet.drain(self._until, self._hurried)
        self.started = False
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._models.end()
        self.unfinished_runs = self._dispatcher.running
        await self._dispatcher.engines.stop()
        await self._runs.drain()
        await self._housekeeping.end()
        await self._fleet.end()
        await self._database.close()
        self._node.release()

    async def require_ready(self) -> None:
        """Requires that models are read, the database is writable and an engine answers."""
        if not self.started:
            raise UnavailableError(
                "the service is starting: it reads its models; wait until GET /v2/health/ready answers 200",
                retry_after=1,
            )
        if self.draining:
            raise UnavailableError("the service is ending", retry_after=1)
        if self._pairing.differs:
            raise UnavailableError("the storage belongs to another database; the operator's log has the rest")
        if self._settings.strict_readiness:
            self._models.require_served()
        await self._readiness.require()

    async def _check_ready(self) -> None:
        try:
            await asyncio.wait_for(self._fleet.beat(), _PING_SECONDS)
        except Exception as error:
            raise UnavailableError(f"the database cannot be written ({type(error).__name__})", retry_after=5) from None
        if self._settings.computes:
            await self._dispatcher.engines.ping(_PING_SECONDS)
        else:
            self._fleet.require_worker()


@dataclass(frozen=True)
class Exposition:
    """The metrics, with what is looked up when somebody asks for them."""

    settings: Settings
    metrics: Metrics
    engines: Engines
    store: JobStore
    fleet: Fleet
    disk: Disk
    housekeeping: Housekeeping
    models: Models

    async def text(self, tenant: Tenant | None) -> bytes:
        """Writes the metrics of all models, or of those that a tenant sees."""
        metrics, engines = self.metrics, self.engines
        try:
            metrics.key_cache(await engines.ping(_PING_SECONDS))
        except UnavailableError:
            metrics.resident.labels("memory").set(0)
            metrics.resident.labels("device").set(0)
        await self._count_rows()
        metrics.restarts.set(engines.restarts)
        metrics.memory_kills.set(engines.memory_kills)
        metrics.hangs.set(engines.hangs)
        metrics.silent.set(engines.silent)
        metrics.disk_free.set(self.disk.free_bytes())
        metrics.disk_total.set(self.disk.total_bytes())
        metrics.unknown_objects.set(self.housekeeping.unknown_objects)
        metrics.unavailable_models.set(len(self.models.faults()))
        metrics.runs_as(release(), self.settings.role, engines.build)
        return metrics.text(lambda model: not model or tenant is None or tenant.sees(model))

    async def _count_rows(self) -> None:
        metrics = self.metrics
        try:
            async with asyncio.timeout(_PING_SECONDS):
                counts = await self.store.counts()
                waiting = await self.fleet.requests_waiting()
        except (OSError, SQLAlchemyError):  # whoever looks wants to see the rest just then
            metrics.database_up.set(0)
            metrics.jobs.clear()
            return
        metrics.database_up.set(1)
        metrics.waiting.set(waiting)
        for state, count in counts.items():
            metrics.jobs.labels(state).set(count)
