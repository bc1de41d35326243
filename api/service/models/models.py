"""The models that are served: the folder of `cloakwork.models.repository`, read, with a state of each version in the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Final

from cloakwork.api.errors import MalformedError, UnknownModelError
from cloakwork.api.service.children import run_module
from cloakwork.api.service.clock import now, retention
from cloakwork.api.service.models.folder import (
    Fault,
    Incoming,
    Place,
    artefact_of,
    mark_retired,
    read_faults,
    read_folder,
)
from cloakwork.api.service.models.kinds import BatchModel, IndexModel
from cloakwork.api.service.models.model import KeyParameters, Model
from cloakwork.api.service.models.records import (
    ENDED,
    LOADED,
    REMOVED,
    RETIRED,
    UNLOADED,
    Catalogue,
    ModelRecord,
    ModelRecords,
    no_model,
)
from cloakwork.api.service.models.shared import SharedModels, held, remove_files
from cloakwork.api.service.storage.object_store import ObjectStore
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.models.repository_files import is_described, keep_faults

_LOOK_SECONDS: Final = 2.0  # until every service on a database knows what one of them changed: below five
_KEEP_SECONDS: Final = 60.0  # the file of a removed version, for requests that were accepted just before
_AGAIN_SECONDS: Final = 30.0

_log = logging.getLogger("cloakwork.repository")


class Models(Catalogue):
    """`store`: the object storage that services on one database share; without it the folder is the repository."""

    def __init__(
        self,
        repository: Path,
        records: ModelRecords,
        zoo: bool,
        structured: bool = False,
        store: ObjectStore | None = None,
    ) -> None:
        super().__init__(structured, store is not None)
        self.repository = repository
        self.incoming = Incoming(repository)
        self.records = records
        self.shared = None if store is None else SharedModels(repository, store, records, self.incoming)
        self._zoo = zoo
        self._describing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._publish_at: float | None = None  # what could not be published
        self._describe_at: float | None = None  # what the process that hung did not describe
        self._watch: asyncio.Task[None] | None = None
        self._again: asyncio.Task[None] | None = None

    def of(self, tenant: Tenant) -> TenantModels:
        """Returns what this tenant sees of them."""
        return TenantModels(self, tenant)

    async def begin(self) -> None:
        """Reads all, and from then on sees what other services change."""
        await self.scan()
        self._watch = asyncio.create_task(self._look())

    async def end(self) -> None:
        tasks = [task for task in (self._watch, self._again) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.shared is not None:
            await self.shared.end()

    # --- the folder ---

    async def scan(self) -> None:
        """Reads the folder again; facts that are missing are made by a process of its own. What others have published comes first: their zoo
        is not compiled again. What they have not is published."""
        if self.shared is None:
            await self._describe()
            await self.read()
            return
        await self._copy_missing()
        try:
            await self.shared.take_marks()
        except Exception as error:  # the zoo may be compiled once too often
            _log.error("the storage does not say which models of the zoo it has: %s", type(error).__name__)
        await self._describe()
        await self._publish(self.shared)
        await self._copy_missing()

    async def _publish(self, shared: SharedModels) -> None:
        """What the storage does not take comes later: a service with models of its own is ready without it."""
        models_by_name = await asyncio.to_thread(read_folder, self.repository)
        complete = await shared.publish_new(models_by_name, await self.records.all())
        try:
            await shared.publish_marks()
        except Exception as error:
            complete = False
            _log.error("which models of the zoo are compiled cannot be written: %s", type(error).__name__)
        self._publish_at = None if complete else time.monotonic() + _AGAIN_SECONDS

    async def _describe(self) -> None:
        async with self._describing:
            if not self._zoo and await asyncio.to_thread(is_described, self.repository):
                return  # a process costs a second of a core; with the zoo, only it knows which models are missing
            options = ["--zoo"] if self._zoo else []
            self._describe_at = None
            try:
                ended = await run_module("cloakwork.models.repository", str(self.repository), *options)
            except TimeoutError as error:
                await self._not_described(str(error))
                return
            for line in ended.errors:
                _log.warning(line)
            if ended.status < 0:
                await self._not_described(f"the process was ended by signal {-ended.status}")
            elif ended.status:  # each has its reason, or an error of ours has ended the process
                await asyncio.to_thread(keep_faults, self.repository, "it could not be described; the log has the rest")

    async def _not_described(self, why: str) -> None:
        """Those that the process did not come to are unavailable until it is tried again."""
        _log.error("models cannot be described and are tried again: %s", why)
        await asyncio.to_thread(keep_faults, self.repository, f"it could not be described: {why}")
        self._describe_at = time.monotonic() + _AGAIN_SECONDS

    async def read(self) -> None:
        async with self._reading:
            rows = await self.records.all()
            models_by_name = await asyncio.to_thread(read_folder, self.repository)
            faults = await asyncio.to_thread(read_faults, self.repository, models_by_name)
            if self.shared is not None:
                models_by_name = _published(models_by_name, rows)
            for name, _ in [*rows, *faults]:  # a version that is gone for good is still known by name
                models_by_name.setdefault(name, {})
            self._rows, self._versions, self._faults, self._read = rows, models_by_name, faults, True

    async def look_again(self) -> None:
        """Reads the folder again, for all, when a file is not what it was when it was described."""
        await asyncio.shield(self._scan_once())

    def _scan_once(self) -> asyncio.Task[None]:
        if self._again is None or self._again.done():
            self._again = asyncio.create_task(self.scan())
        return self._again

    # --- what other services have done ---

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.refresh()
                if self._describe_at is not None and self._describe_at <= time.monotonic():
                    self._scan_once()
            except Exception as error:
                _log.error("the repository cannot be looked at and is tried again: %s", type(error).__name__)

    async def refresh(self) -> None:
        """States at once; bytes that are missing begin to come, and are seen when they are here."""
        if self.shared is not None:
            rows = await self.records.all()
            if rows != self._rows:
                await self.read()
                await asyncio.to_thread(self._mark_ended)
            missing = self.shared.missing(rows, self._versions, await self._needed(rows))
            self.shared.begin(missing, self._read_quietly)
            if self._publish_at is not None and self._publish_at <= time.monotonic():
                await self._publish(self.shared)
                await self.read()
        await self.remove_ended()

    async def _read_quietly(self) -> None:
        with contextlib.suppress(Exception):  # the next look reads again
            await self.read()

    async def _copy_missing(self) -> None:
        """Waits for them; one that cannot be had is logged and comes later."""
        assert self.shared is not None
        await self.read()
        await asyncio.to_thread(self._mark_ended)
        missing = self.shared.missing(self._rows, self._versions, await self._needed(self._rows))
        if missing:
            await asyncio.gather(*map(asyncio.shield, self.shared.begin(missing, self._read_quietly)))
            await self.read()

    async def _needed(self, rows: dict[Place, ModelRecord]) -> set[Place]:
        """Returns versions that jobs wait for, asked where one of those that have ended is not here."""
        if not any(row.state in ENDED and row.bytes and held(self._versions, at) is None for at, row in rows.items()):
            return set()
        return await self.records.needed()

    def _mark_ended(self) -> None:
        for place, row in self._rows.items():
            if row.state in ENDED and artefact_of(self.repository, *place) is None:
                mark_retired(self.repository, *place)

    async def remove_ended(self, keep_seconds: float = _KEEP_SECONDS) -> None:
        """Deletes the bytes of versions that are removed and that no job needs."""
        old = retention.now() - keep_seconds
        removed = [row for row in self._rows.values() if row.state == REMOVED and row.changed_at <= old]
        removed = [row for row in removed if row.bytes or held(self._versions, row.place) is not None]
        if not removed:
            return
        needed = await self.records.needed()
        for row in removed:
            if row.place not in needed:
                sha256 = None if row.place in self._faults else row.artefact_sha256
                await asyncio.to_thread(remove_files, self.repository, row.place, sha256)
                if self.shared is not None:
                    await self.shared.remove(row)
                await self.records.emptied(row)
        await self.read()

    # --- what this service's users change ---

    async def load(self, name: str) -> None:
        """Loads every version that is not retired; what was added to the folder since is found."""
        await self.scan()
        if not self._versions.get(name):
            for (of, version), fault in self.faults():
                if of == name:
                    raise MalformedError(f"version '{version}' of model '{name}' cannot be served: {fault.reason}")
            raise no_artefact(name)
        if all(map(self._is_refused, self._versions[name].values())):
            self._refuse_structured(name, self._versions[name].values())
        await self._change(name, LOADED)

    async def unload(self, name: str) -> None:
        self.versions(name)
        await self._change(name, UNLOADED)

    async def _change(self, name: str, state: str) -> None:
        faulty = [_faulty_record(*place, fault) for place, fault in self._faults.items() if place[0] == name]
        await self.records.change(name, state, [*map(record_of, self._versions[name].values()), *faulty])
        await self.read()

    async def retire(self, name: str, version: str, remove: bool = False) -> None:
        """Retires a version for good: its number is not given again. `remove`: its bytes go as soon as no job needs them, also of one that is
        retired."""
        self.versions(name)
        row, model, fault = (
            self._rows.get((name, version)),
            self._versions[name].get(version),
            self.fault((name, version)),
        )
        known = record_of(model) if model is not None else row
        if known is None and fault is not None:
            known = _faulty_record(name, version, fault)
        state = None if known is None else self._stored_state(name, version)
        if known is None or state == REMOVED or (state == RETIRED and not remove):
            raise UnknownModelError(f"model '{name}' has no version '{version}' in service or unloaded")
        await self.records.end(known, REMOVED if remove else RETIRED)
        await self.read()


class TenantModels:
    """The models that a tenant may use; about any other it is told what it would be told if there were none of that name."""

    def __init__(self, models: Models, tenant: Tenant) -> None:
        self._models = models
        self._tenant = tenant

    def names(self) -> list[str]:
        return [name for name in self._models.names() if self._tenant.sees(name)]

    def versions(self, name: str) -> list[Model]:
        self.require(name)
        return self._models.versions(name)

    def find(self, name: str, version: str | None = None) -> Model:
        self.require(name)
        return self._models.find(name, version)

    def levelled_keys(self, digest: str) -> KeyParameters | None:
        """Returns those of this digest that an index or a model for batches needs; what no model of the tenant's needs is not known."""
        self._models.require_read()
        for model, _ in self._models.every():
            if (
                isinstance(model, IndexModel | BatchModel)
                and model.parameter_digest == digest
                and self._tenant.sees(model.name)
            ):
                return model.key_parameters
        return None

    def index(self) -> list[dict[str, str]]:
        return [entry for entry in self._models.index() if self._tenant.sees(entry["name"])]

    async def load(self, name: str) -> None:
        if not self._tenant.sees(name):
            raise no_artefact(name)
        await self._models.load(name)

    async def unload(self, name: str) -> None:
        self.require(name)
        await self._models.unload(name)

    async def retire(self, name: str, version: str, remove: bool = False) -> None:
        self.require(name)
        await self._models.retire(name, version, remove)

    def require(self, name: str) -> None:
        """Raises UnknownModelError: the tenant does not see models of this name, whether there is one or not."""
        if not self._tenant.sees(name):
            raise no_model(name)


def record_of(model: Model, state: str = LOADED) -> ModelRecord:
    size = model.artefact.stat().st_size if model.artefact.exists() else 0
    return ModelRecord.of(model, state, size)


def _faulty_record(name: str, version: str, fault: Fault) -> ModelRecord:
    return ModelRecord(name, version, "", LOADED, now(), None, None, fault.bytes)


def _published(
    models_by_name: dict[str, dict[str, Model]], rows: dict[Place, ModelRecord]
) -> dict[str, dict[str, Model]]:
    """Returns versions with the bytes that their rows name."""
    served: dict[str, dict[str, Model]] = {}
    for name, versions in models_by_name.items():
        for version, model in versions.items():
            row = rows.get((name, version))
            if row is not None and row.artefact_sha256 == model.artefact_sha256:
                served.setdefault(name, {})[version] = model
    return served


def no_artefact(name: str) -> UnknownModelError:
    return UnknownModelError(
        f"the repository has no model '{name}'; send it with PUT /v2/repository/models/{name}/versions/1, or put its artefact at "
        f"{name}/1.clkm (an index at {name}/1.clkn, a model for batches at {name}/1.clkb)"
    )
