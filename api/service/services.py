"""Puts the service together, starts it and ends it."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from cloakwork.api.budgets import Budgets
from cloakwork.api.database.connection import Database
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.errors import UnavailableError
from cloakwork.api.metrics import Metrics
from cloakwork.api.release import release
from cloakwork.api.service.administration.actions import Actions
from cloakwork.api.service.administration.administration import Administration
from cloakwork.api.service.administration.listings import Listings
from cloakwork.api.service.administration.load import Load
from cloakwork.api.service.children import run_module
from cloakwork.api.service.fleet.fleet import Fleet
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.fleet.remote_scoring import RemoteScoring
from cloakwork.api.service.fleet.worker import Worker
from cloakwork.api.service.housekeeping import Housekeeping
from cloakwork.api.service.jobs.jobs import Jobs
from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.keys.local_parts import LocalParts
from cloakwork.api.service.keys.part_rows import PartRows
from cloakwork.api.service.keys.parts import Parts
from cloakwork.api.service.keys.shared_parts import SharedParts
from cloakwork.api.service.keys.uploads import Uploads
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.models.records import ModelRecords
from cloakwork.api.service.models.uploads import ModelUploads
from cloakwork.api.service.object_folders import object_folders
from cloakwork.api.service.readiness import Readiness
from cloakwork.api.service.scoring.body_budget import BodyBudget
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import Scoring
from cloakwork.api.service.storage.away import is_away
from cloakwork.api.service.storage.damage import Damage
from cloakwork.api.service.storage.disk import Disk
from cloakwork.api.service.storage.node import Node
from cloakwork.api.service.storage.object_store import ObjectStore
from cloakwork.api.service.storage.objects import MARK, OBJECTS, UPLOADS, ObjectStorage, Storage, open_storage
from cloakwork.api.service.storage.pairing import Pairing, refuse_lost_file
from cloakwork.api.service.storage.private import own_folder
from cloakwork.api.service.tenants.tenants import Tenant, Tenants
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.api.settings import Settings
from cloakwork.fhe_core.cores import usable_cores
from cloakwork.fhe_core.errors import FheError, ParameterError
from cloakwork.models.audit.audit_key import AUDIT_KEY_FILE, AuditKey, load_audit_key, own_audit_key

_MIGRATIONS = Path(__file__).parents[1] / "database" / "migrations" / "versions"
_PING_SECONDS = 5.0
_BEGIN_AGAIN_SECONDS = 2.0

_SERVER_SECONDS = 3600.0  # a server makes tables while the process that asked it only waits

_log = logging.getLogger("cloakwork.service")


def engine_options(settings: Settings, budgets: Budgets) -> EngineOptions:
    """Returns the options of all engines together."""
    threads = settings.threads or usable_cores()
    return EngineOptions(
        threads=threads,
        memory_key_bytes=budgets.memory_key_bytes,
        device_key_bytes=budgets.device_key_bytes,
        log_level=settings.log_level,
        cpu_key_bytes=budgets.cpu_key_bytes,
        program_bytes=budgets.program_bytes,
        data_bytes=budgets.data_bytes,
    )


DATABASE_FILE = "cloakwork.db"  # in the data folder


def database_url(settings: Settings) -> str:
    return settings.database_url or f"sqlite:///{settings.data_folder.resolve() / DATABASE_FILE}"


def audit_key(settings: Settings) -> AuditKey:
    """Returns the one that the settings name, which has to be there, or the data folder's own."""
    if settings.audit_key is not None:
        return load_audit_key(settings.audit_key)
    file = settings.data_folder / AUDIT_KEY_FILE
    if not file.exists() and (settings.data_folder / OBJECTS / MARK).exists():
        _log.warning("the audit key is missing, and a new one is made: answers so far cannot be replayed")
    return own_audit_key(file)


def shared_store(settings: Settings, storage: Storage) -> ObjectStore | None:
    """Returns the object storage, where other services use it too."""
    return storage.store if settings.shared and isinstance(storage, ObjectStorage) else None


class Services:
    """The services that routes call."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.budgets = settings, Budgets.of(settings)
        own_folder(settings.data_folder)
        self.node = Node(settings.data_folder)
        self.audit_key = audit_key(settings)
        self.database = Database(database_url(settings))
        self.metrics = Metrics()
        self.tenants = Tenants(self.database)
        self.storage = open_storage(settings.storage_url, settings.data_folder)
        self.pairing = Pairing(self.database, self.storage, settings.adopt_storage)
        self.models = Models(
            settings.data_folder / "models",
            ModelRecords(self.database),
            settings.zoo,
            settings.structured,
            shared_store(settings, self.storage),
        )
        self.disk = Disk(settings.data_folder, settings.disk_reserve_bytes)
        self.model_uploads = ModelUploads(self.models, self.disk, settings.max_model_bytes, settings.structured)
        self.keys = Keys(self.database)
        self.usage = Usage(self.database, settings)
        self.dispatcher = Dispatcher(settings, engine_options(settings, self.budgets), self.audit_key)
        self.fleet = self._fleet() if settings.shared else None
        damage = Damage(self.storage, lambda kind: self.metrics.damaged_objects.labels(kind).inc())
        self.uploads = Uploads(
            self.keys,
            self.models,
            self.storage,
            self._parts(),
            self.usage,
            self.disk,
            self.dispatcher.engines.forget,
            damage,
            settings.structured,
        )
        parts = self.keys, self.uploads, self.storage, self.usage, self.metrics
        running = Scoring(settings, self.dispatcher, *parts)
        self.scoring: Scoring = running if self.fleet is None else RemoteScoring(settings, self.fleet.front, *parts)
        self.scoring.estimates = running.estimates
        self.scoring.look_at_models = running.look_at_models = self.models.look_again
        self.store = JobStore(self.database, self.node.name)
        self.jobs = Jobs(
            self.store, self.storage, running, self.dispatcher, self.models, self.keys, self.usage, self.disk, damage
        )
        if self.fleet is not None:
            self.jobs.join(self.fleet)
            self.fleet.attach(self.jobs.events, self._worker(self.fleet, running) if settings.computes else None)
        self._housekeeping = Housekeeping(
            settings,
            self.store,
            self.jobs,
            self.keys,
            self.uploads,
            self.usage,
            self.storage,
            self.disk,
            self.dispatcher.engines,
            self.pairing,
            self.fleet,
            [] if self.models.shared is None else [self.models.shared.folder()],
        )
        self._opening: asyncio.Task[None] | None = None
        self.bodies = BodyBudget(self.budgets.body_memory_bytes, self.budgets.tenant_body_memory_bytes)
        self._readiness = Readiness(self._check_ready)
        self.administration = self._administration()
        self.started = False
        self.draining = False
        self.unfinished_runs = 0  # when the engine was ended
        self._until = 0.0  # by the monotonic clock: when a process that is to end ends
        self._hurried = asyncio.Event()

    def _fleet(self) -> Fleet:
        return Fleet(self.settings, self.database, self.node.name, self.storage, self.models, self.dispatcher)

    def _worker(self, fleet: Fleet, scoring: Scoring) -> Worker:
        return Worker(
            self.settings,
            fleet.queue,
            fleet.members,
            self.dispatcher,
            scoring,
            self.jobs,
            self.models,
            self.keys,
            self.storage,
        )

    def _parts(self) -> Parts:
        store = shared_store(self.settings, self.storage)
        if store is None:
            return LocalParts(self.storage, self.usage, self.disk)
        folder = self.storage.place(UPLOADS)
        return SharedParts(store, PartRows(self.database), self.keys, folder, self.usage, self.disk)

    def _administration(self) -> Administration:
        settings, activity = self.settings, self.metrics.activity
        return Administration(
            Load(self.budgets, settings, self.dispatcher, self.store, self.bodies, self.disk, activity, self.fleet),
            Listings(
                settings,
                self.database,
                self.models,
                self.usage,
                self.dispatcher,
                self.jobs.events,
                activity,
            ),
            Actions(self.models, self.keys, self.uploads, self.jobs, self.tenants, self.disk),
        )

    async def start(self) -> None:
        """Returns when requests can be taken; the service is ready when `_open` has ended, which copies the zoo at the first start."""
        if self.settings.computes:
            self.dispatcher.engines.start()
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        """Again while the storage or the database, which were there a moment ago, are away."""
        for begin in (self.models.begin, self._housekeeping.begin):
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
        self.draining, self._until = True, time.monotonic() + self.settings.drain_seconds
        if self.fleet is not None:
            self.fleet.stop_taking()

    async def stop(self) -> None:
        """Stops: jobs that run are run again at the next start, or by another process; a worker finishes them first, as long as it may."""
        if not self.draining:
            self.stop_soon()
        if self.fleet is not None and self.started:
            await self.fleet.drain(self._until, self._hurried)
            await self.jobs.drain()
        self.started = False
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self.models.end()
        self.unfinished_runs = self.dispatcher.running
        await self.dispatcher.engines.stop()
        await self.jobs.drain()
        await self._housekeeping.end()
        if self.fleet is not None:
            await self.fleet.end()
        await self.database.close()
        self.node.release()

    async def require_ready(self) -> None:
        """Requires that models are read, the database is writable and an engine answers."""
        if not self.started:
            raise UnavailableError(
                "the service is starting: it reads its models; wait until GET /v2/health/ready answers 200",
                retry_after=1,
            )
        if self.draining:
            raise UnavailableError("the service is ending", retry_after=1)
        if self.pairing.differs:
            raise UnavailableError("the storage belongs to another database; the operator's log has the rest")
        if self.settings.strict_readiness:
            self.models.require_served()
        await self._readiness.require()

    async def _check_ready(self) -> None:
        beat = self.store.heartbeat() if self.fleet is None else self.fleet.members.beat(self.fleet.facts())
        try:
            await asyncio.wait_for(beat, _PING_SECONDS)
        except Exception as error:
            raise UnavailableError(f"the database cannot be written ({type(error).__name__})", retry_after=5) from None
        if self.settings.computes:
            await self.dispatcher.engines.ping(_PING_SECONDS)
        elif self.fleet is not None:
            self.fleet.require_worker()

    async def _count_rows(self) -> None:
        waiting = self.dispatcher.requests_waiting
        try:
            async with asyncio.timeout(_PING_SECONDS):
                counts = await self.store.counts()
                if self.fleet is not None:
                    waiting = await self.fleet.queue.calls_waiting()
        except (OSError, SQLAlchemyError):  # whoever looks wants to see the rest just then
            self.metrics.database_up.set(0)
            self.metrics.jobs.clear()
            return
        self.metrics.database_up.set(1)
        self.metrics.waiting.set(waiting)
        for state, count in counts.items():
            self.metrics.jobs.labels(state).set(count)

    async def metrics_text(self, tenant: Tenant | None) -> bytes:
        """Writes the metrics of all models, or of those that a tenant sees."""
        try:
            self.metrics.key_cache(await self.dispatcher.engines.ping(_PING_SECONDS))
        except UnavailableError:
            self.metrics.resident.labels("memory").set(0)
            self.metrics.resident.labels("device").set(0)
        await self._count_rows()
        self.metrics.restarts.set(self.dispatcher.engines.restarts)
        self.metrics.memory_kills.set(self.dispatcher.engines.memory_kills)
        self.metrics.hangs.set(self.dispatcher.engines.hangs)
        self.metrics.silent.set(self.dispatcher.engines.silent)
        self.metrics.disk_free.set(self.disk.free_bytes())
        self.metrics.disk_total.set(self.disk.total_bytes())
        self.metrics.unknown_objects.set(self._housekeeping.unknown_objects)
        self.metrics.unavailable_models.set(len(self.models.faults()))
        self.metrics.runs_as(release(), self.settings.role, self.dispatcher.engines.build)
        return self.metrics.text(lambda model: not model or tenant is None or tenant.sees(model))


def _data_option(settings: Settings) -> str:
    return "" if settings.database_url is not None else f" --data {settings.data_folder}"


async def prepare(settings: Settings, node: str, storage: Storage) -> None:
    """Checks what must be right before anything listens: storage that every service on the database finds, the tables, a database and a storage that
    belong together, and somebody who may use them.

    Raises:
        ParameterError: one of these is missing, or the database cannot be used.
    """
    if settings.database_url is not None and settings.storage_url is None and not settings.single_host:
        raise ParameterError(
            "serve: services that share a database would not find the objects in each other's data folder; set storage_url to storage that all "
            "of them share, or single_host = true where this is the only one"
        )
    url = database_url(settings)
    database = Database(url)
    try:
        if settings.database_url is None:
            await refuse_lost_file(settings.data_folder / DATABASE_FILE, storage, settings.adopt_storage)
        await database.require_whole()
        await migrate(database, url)
        await require_pair(settings, node, database, storage)
        if settings.single_host and await JobStore(database, node).others_alive(settings.takeover_seconds):
            raise ParameterError(
                f"serve: single_host is set, and another service has used this database in the last {settings.takeover_seconds:g} seconds; "
                "stop it and wait, or set storage_url on both"
            )
        tenants = Tenants(database)
        if settings.insecure_local:
            await tenants.local()
        elif not await tenants.any_api_key():
            raise ParameterError(
                f"serve: there is no API key, so nobody could use the service; make one with 'cloakwork tenants add NAME{_data_option(settings)}', "
                "or pass --insecure-local for this machine alone"
            )
    except FheError:
        raise
    except Exception as error:  # a driver's own classes; its text may hold the URL
        raise ParameterError(f"database: {_place(url)} cannot be used ({_reason(url, error)})") from None
    finally:
        await database.close()


async def require_pair(settings: Settings, node: str, database: Database, storage: Storage) -> None:
    """Requires the storage that belongs to the database.

    Raises:
        ParameterError: the storage belongs to another database, or cannot be asked.
    """
    calls = None
    if settings.shared:
        calls = WorkQueue(database, node, settings.takeover_seconds, settings.max_attempts).existing
    folders = object_folders(storage, JobStore(database, node), Keys(database), calls)
    try:
        await Pairing(database, storage, settings.adopt_storage).require(folders)
    except OSError as error:
        raise ParameterError(
            f"storage: {storage.where} cannot be used ({error}); check storage_url and data_folder"
        ) from None


async def migrate(database: Database, url: str) -> None:
    """Brings the tables to this release's form, in a process of its own; quick when they are."""
    newest = max(file.stem.partition("_")[0] for file in _MIGRATIONS.glob("[0-9]*.py"))
    if await database.revision() == newest:
        return
    still_seconds = None if database.is_sqlite else _SERVER_SECONDS
    try:
        ended = await run_module(
            "cloakwork.api.database.migrate", standard_input=url.encode(), still_seconds=still_seconds
        )
    except TimeoutError as error:
        raise ParameterError(f"database: the tables of {_place(url)} are not made ({error}); start again") from None
    if ended.status:
        lines = [line for line in ended.errors if line and not line.startswith(("[SQL", "(Back"))]
        raise ParameterError(
            f"database: the tables of {_place(url)} cannot be made ({lines[-1] if lines else ended.status})"
        )


def _place(url: str) -> str:
    """For messages: of a database that has a file, that file."""
    _, is_file, path = url.partition("sqlite:///")
    return path if is_file else "the server that CLOAKWORK_DATABASE_URL names"


def _reason(url: str, error: Exception) -> str:
    """Returns what SQLite says of a file; of a server's error the class, because its text may hold a password."""
    message = str(getattr(error, "orig", error)) if url.startswith("sqlite") else ""
    return " ".join(message.split()) or type(error).__name__
