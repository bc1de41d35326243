"""Models of services on one database: their bytes in the object storage, a row for each version, a copy in every service's folder.

`models/<name>/<version>/<sha256>.clkm` and, beside it, `.json` with its facts. The first row of a version says which bytes it is; whoever
published others has lost, and takes those. Trees are salted when they are compiled, so that two services that compile the zoo have such.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from cloakwork.api.errors import MalformedError
from cloakwork.api.service.models.folder import Incoming, Place, artefact_of, mark_retired, sha256_of
from cloakwork.api.service.models.model import Model
from cloakwork.api.service.models.records import ENDED, LOADED, REMOVED, ModelRecord, ModelRecords
from cloakwork.api.service.storage.object_store import ObjectStore
from cloakwork.api.service.storage.pairing import Folder
from cloakwork.api.service.tenants.tenants import NAME_PATTERN
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models.repository_files import FACTS, FAULT, KINDS, ZOO, own_facts

FOLDER: Final = "models"
ZOO_FOLDER: Final = "zoo"
REPLACED: Final = ".replaced"
_AT_ONCE: Final = 2  # copies
_AGAIN_SECONDS: Final = 30.0  # after a copy that failed
_LARGEST_FACTS: Final = 64 << 20

_log = logging.getLogger("cloakwork.repository")


class SharedModels:
    def __init__(self, repository: Path, store: ObjectStore, records: ModelRecords, incoming: Incoming) -> None:
        self._repository = repository
        self._store = store
        self._records = records
        self._incoming = incoming
        self._fetching: dict[Place, asyncio.Task[None]] = {}
        self._failed: dict[Place, float] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    # --- to the object storage ---

    async def publish(self, model: Model, state: str = LOADED) -> tuple[ModelRecord, bool]:
        """Publishes a version and returns the row of its version afterwards, with other bytes where another service was first; whether this one
        made it.

        Raises:
            MalformedError: the file has changed since it was described.
        """
        if await asyncio.to_thread(sha256_of, model.artefact) != model.artefact_sha256:
            raise MalformedError(f"{model.name}/{model.version}: its file has changed since it was described")
        facts = json.dumps(model.facts).encode()
        record = ModelRecord.of(model, state, model.artefact.stat().st_size)
        record = replace(record, facts_sha256=hashlib.sha256(facts).hexdigest())
        await self._store.put(_name(record), model.artefact)
        await self._store.put(_facts_name(record), facts)
        now_there = await self._records.claim(record)
        if now_there.artefact_sha256 != record.artefact_sha256:
            await self._delete_objects(record)
        return now_there, now_there is record

    async def publish_new(self, models_by_name: dict[str, dict[str, Model]], known: dict[Place, ModelRecord]) -> bool:
        """Publishes what is in this service's folder only: of `models add --data`, and of the zoo. False: the storage does not take it."""
        complete = True
        for model in (model for versions in models_by_name.values() for model in versions.values()):
            record = known.get(_place(model))
            if record is not None and (record.artefact_sha256 is not None or record.state in ENDED):
                continue
            try:
                if (await self.publish(model))[0].artefact_sha256 == model.artefact_sha256:
                    _log.info("%s/%s is published", model.name, model.version)
            except MalformedError as error:
                _log.warning(str(error))
            except Exception as error:
                complete = False
                _log.error("%s/%s cannot be published and is tried again: %s", *_place(model), type(error).__name__)
        return complete

    # --- which files of the zoo have been compiled by any service ---

    async def take_marks(self) -> None:
        """Marks versions, so that a service with an empty folder copies the zoo of a new release, and no other.

        Raises: what the storage does.
        """
        for name in await self._store.names(ZOO_FOLDER):
            model = name.rpartition("/")[2]
            if not re.match(NAME_PATTERN, model):
                continue
            folder = self._repository / model
            digests = (await self._store.read(name)).decode("ascii", "replace").split()
            await asyncio.to_thread(_add_marks, folder, digests)

    async def publish_marks(self) -> None:
        for mark in await asyncio.to_thread(lambda: sorted(self._repository.glob(f"[!.]*/{ZOO}"))):
            name, content = f"{ZOO_FOLDER}/{mark.parent.name}", mark.read_bytes()
            try:
                known = await self._store.read(name)
            except FileNotFoundError:
                known = b""
            if not set(content.split()) <= set(known.split()):
                await self._store.put(name, content)

    # --- from there ---

    def missing(
        self, records: dict[Place, ModelRecord], models_by_name: dict[str, dict[str, Model]], needed: set[Place]
    ) -> list[ModelRecord]:
        """Returns versions whose bytes are not in this service's folder; of those that are retired, what jobs wait for."""
        return [
            record
            for place, record in records.items()
            if record.artefact_sha256 is not None
            and record.bytes
            and (record.state not in ENDED or place in needed)
            and held(models_by_name, place) != record.artefact_sha256
        ]

    def begin(self, records: list[ModelRecord], then: Callable[[], Awaitable[None]]) -> list[asyncio.Task[None]]:
        """Starts a copy of each, as a task that does not fail, and `then` after it; of one that failed again after a while."""
        for record in records:
            if record.place not in self._fetching and self._failed.get(record.place, 0.0) <= time.monotonic():
                self._fetching[record.place] = asyncio.create_task(self._copy(record, then))
        return [self._fetching[record.place] for record in records if record.place in self._fetching]

    async def end(self) -> None:
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _copy(self, record: ModelRecord, then: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._slots:
                await self._fetch(record)
            self._failed.pop(record.place, None)
            await then()
        except Exception as error:
            self._failed[record.place] = time.monotonic() + _AGAIN_SECONDS
            _log.error(
                "%s/%s cannot be copied from the object storage and is tried again: %s",
                *record.place,
                error if isinstance(error, MalformedError) else type(error).__name__,
            )
        finally:
            self._fetching.pop(record.place, None)

    async def _fetch(self, record: ModelRecord) -> None:
        assert record.artefact_sha256 is not None and record.kind is not None
        there = await asyncio.to_thread(self._kept, record)
        if there is not None:
            await self._incoming.describe(there)
            return
        artefact = self._incoming.new(KINDS[record.kind])
        try:
            if await self._store.fetch(_name(record), artefact) != record.artefact_sha256:
                raise MalformedError("its object has other bytes than its row says")
            await self._fetch_facts(record, artefact)
            await asyncio.to_thread(self._incoming.install, artefact, *record.place)
        finally:
            self._incoming.drop(artefact)

    async def _fetch_facts(self, record: ModelRecord, artefact: Path) -> None:
        """Those of another release are made here, as are those that are not there, or not those that were published."""
        assert record.artefact_sha256 is not None and record.kind is not None
        with contextlib.suppress(FileNotFoundError, ValueError, AttributeError):
            size = await self._store.byte_count(_facts_name(record)) or 0
            text = await self._store.read(_facts_name(record)) if 0 < size <= _LARGEST_FACTS else b""
            published = hashlib.sha256(text).hexdigest() == record.facts_sha256
            if published and json.loads(text).items() >= own_facts(record.artefact_sha256, record.kind).items():
                await asyncio.to_thread(artefact.with_suffix(FACTS).write_bytes, text)
                return
        await self._incoming.describe(artefact)

    def _kept(self, record: ModelRecord) -> Path | None:
        """Returns the file at the version's place in the folder, where it has the right bytes; any other is set aside."""
        path = artefact_of(self._repository, *record.place)
        if path is None:
            return None
        if sha256_of(path) == record.artefact_sha256:
            return path
        _log.warning(
            "%s/%s: another service published other bytes of this version first; those are served, and this service's file is %s%s now",
            *record.place,
            path.name,
            REPLACED,
        )
        path.with_suffix(FACTS).unlink(missing_ok=True)
        path.replace(path.with_name(path.name + REPLACED))
        return None

    # --- the end of a version ---

    async def remove(self, record: ModelRecord) -> None:
        """Deletes its objects; several services may do it."""
        if record.artefact_sha256 is not None and record.bytes:
            await self._delete_objects(record)

    def folder(self) -> Folder:
        """Returns objects of versions that were never published, or were published by another service at the same moment, are unknown."""
        return Folder(FOLDER, partial(self._store.names, FOLDER), self._known, self._store.delete)

    async def _known(self, names: list[str]) -> set[str]:
        known = {
            _name(record).rpartition(".")[0]
            for record in (await self._records.all()).values()
            if record.artefact_sha256 is not None and not (record.state == REMOVED and not record.bytes)
        }
        return {name for name in names if name.rpartition(".")[0] in known}

    async def _delete_objects(self, record: ModelRecord) -> None:
        await self._store.delete(_name(record))
        await self._store.delete(_facts_name(record))


def held(models_by_name: dict[str, dict[str, Model]], place: Place) -> str | None:
    """Returns the SHA-256 of the artefact that the folder has there."""
    model = models_by_name.get(place[0], {}).get(place[1])
    return None if model is None else model.artefact_sha256


def remove_files(repository: Path, place: Place, sha256: str | None) -> None:
    """Deletes the artefact of a version that has ended; its number stays taken."""
    path = artefact_of(repository, *place)
    if path is not None and (sha256 is None or sha256_of(path) == sha256):
        path.unlink()
    if artefact_of(repository, *place) is None:
        for suffix in (FACTS, FAULT):
            (repository / place[0] / f"{place[1]}{suffix}").unlink(missing_ok=True)
    mark_retired(repository, *place)


def _place(model: Model) -> Place:
    return model.name, model.version


def _add_marks(folder: Path, digests: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    mark = folder / ZOO
    known = mark.read_text(encoding="ascii").split() if mark.is_file() else []
    if not set(digests) <= set(known):
        with atomic_writer(mark) as stream:
            stream.write("\n".join(dict.fromkeys([*known, *digests])).encode())


def _name(record: ModelRecord) -> str:
    return f"{FOLDER}/{record.name}/{record.version}/{record.artefact_sha256}{KINDS[str(record.kind)]}"


def _facts_name(record: ModelRecord) -> str:
    return f"{FOLDER}/{record.name}/{record.version}/{record.artefact_sha256}{FACTS}"
