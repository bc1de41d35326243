"""The services that routes call, wired once."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

from cloakwork.api.budgets import BodyBudget, Budgets
from cloakwork.api.database.connection import Database, database_url
from cloakwork.api.engine.messages import EngineOptions
from cloakwork.api.metrics import Metrics
from cloakwork.api.service.administration.actions import Actions, Administration
from cloakwork.api.service.administration.listings import Listings
from cloakwork.api.service.administration.load import Load
from cloakwork.api.service.fleet.fleet import Alone, Fleet
from cloakwork.api.service.fleet.front import Front, RemoteScoring
from cloakwork.api.service.fleet.members import Members
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.fleet.shared import Shared
from cloakwork.api.service.fleet.worker import Worker
from cloakwork.api.service.housekeeping import Housekeeping
from cloakwork.api.service.jobs.jobs import Jobs
from cloakwork.api.service.jobs.runs import JobRuns
from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.keys.parts import LocalParts, Parts
from cloakwork.api.service.keys.shared_parts import PartRows, SharedParts
from cloakwork.api.service.keys.uploads import Uploads
from cloakwork.api.service.life import Exposition, Life
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.models.records import ModelRecords
from cloakwork.api.service.models.uploads import ModelUploads
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import Scoring
from cloakwork.api.service.scoring.waiting import Estimates
from cloakwork.api.service.storage.data_folder import Node, own_folder
from cloakwork.api.service.storage.disk import Disk
from cloakwork.api.service.storage.objects import MARK, OBJECTS, UPLOADS, Damage, ObjectStorage, Storage, open_storage
from cloakwork.api.service.storage.pairing import Pairing
from cloakwork.api.service.tenants.tenants import Tenants
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.api.settings import Settings
from cloakwork.fhe_core.machine import usable_cores
from cloakwork.models.audit.audit_key import AUDIT_KEY_FILE, AuditKey, load_audit_key, own_audit_key

_log: Final = logging.getLogger("cloakwork.service")


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


def audit_key_of(settings: Settings) -> AuditKey:
    """Returns the one that the settings name, which has to be there, or the data folder's own."""
    if settings.audit_key is not None:
        return load_audit_key(settings.audit_key)
    file = settings.data_folder / AUDIT_KEY_FILE
    if not file.exists() and (settings.data_folder / OBJECTS / MARK).exists():
        _log.warning("the audit key is missing, and a new one is made: answers so far cannot be replayed")
    return own_audit_key(file)


@dataclass(frozen=True)
class Services:
    """The services, as `wire` makes them."""

    settings: Settings
    budgets: Budgets
    node: Node
    audit_key: AuditKey
    database: Database
    storage: Storage
    disk: Disk
    metrics: Metrics
    tenants: Tenants
    models: Models
    model_uploads: ModelUploads
    keys: Keys
    uploads: Uploads
    usage: Usage
    dispatcher: Dispatcher
    bodies: BodyBudget
    scoring: Scoring
    store: JobStore
    runs: JobRuns
    jobs: Jobs
    housekeeping: Housekeeping
    administration: Administration
    exposition: Exposition
    life: Life


def wire(settings: Settings) -> Services:
    """Makes the services of a process, each from those before it. Nothing runs yet."""
    budgets = Budgets.of(settings)
    own_folder(settings.data_folder)
    node, audit_key = Node(settings.data_folder), audit_key_of(settings)
    database, metrics = Database(database_url(settings.database_url, settings.data_folder)), Metrics()
    storage = open_storage(settings.storage_url, settings.data_folder)
    shared_store = storage.store if settings.shared and isinstance(storage, ObjectStorage) else None
    pairing = Pairing(database, storage, settings.adopt_storage)
    tenants, keys, usage = Tenants(database), Keys(database), Usage(database, settings)
    folder = settings.data_folder / "models"
    models = Models(folder, ModelRecords(database), settings.zoo, settings.structured, shared_store)
    disk = Disk(settings.data_folder, settings.disk_reserve_bytes)
    dispatcher = Dispatcher(settings, engine_options(settings, budgets), audit_key)
    damage = Damage(storage, lambda kind: metrics.damaged_objects.labels(kind).inc())
    parts: Parts = LocalParts(storage, usage, disk)
    if shared_store is not None:
        parts = SharedParts(shared_store, PartRows(database), keys, storage.place(UPLOADS), usage, disk)
    forget = dispatcher.engines.forget
    uploads = Uploads(keys, models, storage, parts, usage, disk, forget, damage, settings.structured)
    store = JobStore(database, node.name)
    scored_by = keys, uploads, storage, usage, metrics, Estimates(), models.look_again
    running = Scoring(settings, dispatcher, *scored_by)  # here, whoever asked
    fleet: Fleet = Alone(settings, store, dispatcher, running, disk)
    if settings.shared:
        queue = WorkQueue(database, node.name, settings.takeover_seconds, settings.max_attempts)
        members = Members(database, node.name, settings.takeover_seconds)
        front = Front(settings, queue, members, storage, lambda *place: models.accepted(*place).digest)
        worker_of = partial(Worker, settings, queue, members, dispatcher, running, models, keys, storage)
        remote = RemoteScoring(settings, front, *scored_by)
        computes = worker_of if settings.computes else None
        fleet = Shared(settings, database, store, queue, members, front, remote, dispatcher, disk, computes)
    runs = JobRuns(store, storage, running, dispatcher, models, keys, usage, disk, damage, fleet)
    jobs = Jobs(store, storage, running.estimates, dispatcher, usage, disk, damage, runs, fleet)
    published = [] if models.shared is None else [models.shared.folder()]
    kept = runs, keys, uploads, usage, storage, disk, dispatcher.engines, pairing, fleet, published
    housekeeping = Housekeeping(settings, store, jobs, *kept)
    bodies = BodyBudget(budgets.body_memory_bytes, budgets.tenant_body_memory_bytes)
    administration = Administration(
        Load(budgets, settings, dispatcher, store, bodies, disk, metrics.activity, fleet),
        Listings(settings, database, models, usage, dispatcher, jobs.events, metrics.activity),
        Actions(models, keys, uploads, jobs, tenants, disk),
    )
    return Services(
        settings=settings,
        budgets=budgets,
        node=node,
        audit_key=audit_key,
        database=database,
        storage=storage,
        disk=disk,
        metrics=metrics,
        tenants=tenants,
        models=models,
        model_uploads=ModelUploads(models, disk, settings.max_model_bytes, settings.structured),
        keys=keys,
        uploads=uploads,
        usage=usage,
        dispatcher=dispatcher,
        bodies=bodies,
        scoring=fleet.scoring,
        store=store,
        runs=runs,
        jobs=jobs,
        housekeeping=housekeeping,
        administration=administration,
        exposition=Exposition(settings, metrics, dispatcher.engines, store, fleet, disk, housekeeping, models),
        life=Life(settings, node, database, models, dispatcher, runs, fleet, housekeeping, pairing),
    )
