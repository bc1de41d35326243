"""Models that come over HTTP: written beside the repository, described by a process of its own, and a version from one moment to the next."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloakwork.api.errors import (
    ChecksumError,
    ConflictError,
    GoneError,
    MalformedError,
    StorageFullError,
    StructuredKeysError,
    TooLargeError,
)
from cloakwork.api.service.models.folder import Place, artefact_of, read_version, sha256_of
from cloakwork.api.service.models.model import Model, refuse_secret_key
from cloakwork.api.service.models.models import Models, record_of
from cloakwork.api.service.models.records import ENDED, LOADED, UNLOADED, ModelRecord
from cloakwork.api.service.storage.data_folder import blocks, write_all
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.fhe_core.wire.files import SECRET_MODE
from cloakwork.models.repository_files import KINDS

_MAGIC: Final = {b"CLKM": KINDS["program"], b"CLKN": KINDS["index"], b"CLKB": KINDS["batch"]}
_START_BYTES: Final = 16  # that tell what a file is


@dataclass(frozen=True)
class Announced:
    """The size and digest of a body, as a request announces them."""

    bytes: int
    sha256: str | None
    load: bool


@dataclass(frozen=True)
class Held:
    """Bytes of a version that is there."""

    bytes: int
    sha256: str


class ModelUploads:
    def __init__(self, models: Models, disk: Disk, max_bytes: int, structured: bool) -> None:
        self._models = models
        self._disk = disk
        self._max_bytes = max_bytes
        self._structured = structured
        self._writing: set[Place] = set()

    async def receive(
        self, tenant: Tenant, place: Place, announced: Announced, chunks: AsyncIterator[bytes]
    ) -> tuple[ModelRecord, bool]:
        """Receives a version, and returns its row and whether it is new.

        Raises:
            UnknownModelError: the tenant does not see models of this name.
            TooLargeError, MalformedError, SecretKeyError, ChecksumError, StructuredKeysError: nothing of what came is kept.
            ConflictError: the version has other bytes, or another request sends it.
            GoneError: it is retired.
            StorageFullError.
        """
        self._models.of(tenant).require(place[0])
        self._models.require_read()
        if announced.bytes > self._max_bytes:
            raise TooLargeError(f"expected a model of at most {self._max_bytes} bytes, got {announced.bytes}")
        if not announced.bytes:
            raise MalformedError("expected a compiled model (.clkm or .clkb) or an index (.clkn), got no bytes")
        with self._exclusively(place):
            held = await self._held(place)
            if held is not None:
                await _require_same(place, held, announced, chunks)
                return self._row(place, held), False
            return await self._new(place, announced, chunks)

    @contextmanager
    def _exclusively(self, place: Place) -> Iterator[None]:
        if place in self._writing:
            raise ConflictError("another request is sending this version; wait for it, then send it again")
        self._writing.add(place)
        try:
            yield
        finally:
            self._writing.discard(place)

    async def _held(self, place: Place) -> Held | None:
        """Raises:
        GoneError.
        """
        row = self._models.row(place)
        if row is not None and row.state in ENDED:
            raise _retired(place)
        if self._models.shared is not None and row is not None and row.artefact_sha256 is not None:
            return Held(row.bytes or 0, row.artefact_sha256)
        artefact = await asyncio.to_thread(artefact_of, self._models.repository, *place)
        if artefact is None or self._models.fault(place) is not None:
            return None
        return Held(artefact.stat().st_size, await asyncio.to_thread(sha256_of, artefact))

    def _row(self, place: Place, held: Held) -> ModelRecord:
        """Returns the row of a version that was there: without a row where nobody has changed its state yet."""
        row = self._models.row(place)
        if row is not None and row.artefact_sha256 == held.sha256:
            return row
        return ModelRecord(*place, "", LOADED if row is None else row.state, 0.0, held.sha256, None, held.bytes)

    async def _new(self, place: Place, announced: Announced, chunks: AsyncIterator[bytes]) -> tuple[ModelRecord, bool]:
        incoming = self._models.incoming
        with self._disk.writing(f"models/{place[0]}/{place[1]}", announced.bytes):
            artefact = incoming.new("")
            try:
                artefact = await self._write(place, artefact, announced, chunks)
                await incoming.describe(artefact)
                model = await asyncio.to_thread(read_version, artefact, *place)
                if model.structured_secret and not self._structured:
                    raise StructuredKeysError.of(f"model '{place[0]}'", model.parameter_set)
                record, new = await self._publish(model, LOADED if announced.load else UNLOADED)
                await self._models.read()
                return record, new
            finally:
                incoming.drop(artefact)

    async def _write(self, place: Place, artefact: Path, announced: Announced, chunks: AsyncIterator[bytes]) -> Path:
        """Returns the file, named for its kind."""
        digest, start, written = hashlib.sha256(), b"", 0
        descriptor = os.open(artefact, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
        suffix = ""
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as stream:
                async for block in blocks(chunks):
                    if not suffix:
                        start += block[:_START_BYTES]
                        suffix = _kind(start)
                    digest.update(block)
                    await asyncio.to_thread(write_all, stream, block)
                    written += len(block)
                    self._disk.written(f"models/{place[0]}/{place[1]}", len(block))
                await asyncio.to_thread(os.fsync, stream.fileno())
            if written == announced.bytes and not suffix:
                raise _another_kind()
            if written != announced.bytes:
                raise MalformedError(f"expected {announced.bytes} bytes of a model as announced, got {written}")
            if announced.sha256 not in (None, digest.hexdigest()):
                raise ChecksumError("the bytes that came are not those that were announced (Fhe-Artefact-Sha256)")
            return artefact.rename(artefact.with_suffix(suffix))
        except OSError as error:
            artefact.unlink(missing_ok=True)
            if not is_full(error):
                raise
            self._disk.report(error)
            raise StorageFullError("the service has no room left for this model; nothing of it was kept") from None
        except BaseException:
            artefact.unlink(missing_ok=True)
            raise

    async def _publish(self, model: Model, state: str) -> tuple[ModelRecord, bool]:
        """Returns the row decides where services share a database, the name of the file where they do not."""
        place, incoming, shared = (model.name, model.version), self._models.incoming, self._models.shared
        record, new = record_of(model, state), True
        fault = self._models.fault(place)
        if fault is not None and fault.artefact_sha256 not in (None, record.artefact_sha256):
            raise _taken(place)
        if shared is not None:
            now_there, new = await shared.publish(model, state)
            if now_there.state in ENDED:
                raise _retired(place)
            if now_there.artefact_sha256 != record.artefact_sha256:
                raise _taken(place)
            record = now_there
        elif not await self._models.records.put(record):
            raise _retired(place)
        if fault is not None:
            await asyncio.to_thread(incoming.set_aside, *place)
        try:
            await asyncio.to_thread(incoming.install, model.artefact, *place)
        except FileExistsError:
            if shared is None:
                raise _taken(place) from None
        return record, new


async def _require_same(place: Place, held: Held, announced: Announced, chunks: AsyncIterator[bytes]) -> None:
    """Raises:
    ConflictError: other bytes than those that are there; nothing is written.
    """
    if held.bytes != announced.bytes or announced.sha256 not in (None, held.sha256):
        raise _taken(place)
    digest = hashlib.sha256()
    async for block in blocks(chunks):
        digest.update(block)
    if digest.hexdigest() != held.sha256:
        raise _taken(place)


def _kind(start: bytes) -> str:
    """Returns the ending of files that begin so, empty where too little is here to say.

    Raises:
        SecretKeyError, MalformedError.
    """
    refuse_secret_key(start)
    suffix = _MAGIC.get(start[:4], "")
    if not suffix and len(start) >= _START_BYTES:
        raise _another_kind()
    return suffix


def _another_kind() -> MalformedError:
    return MalformedError("expected a compiled model (.clkm or .clkb) or an index (.clkn), got another kind of file")


def _taken(place: Place) -> ConflictError:
    return ConflictError(
        f"version '{place[1]}' of model '{place[0]}' is there with other bytes, and a version never changes; send it as another one"
    )


def _retired(place: Place) -> GoneError:
    return GoneError(f"version '{place[1]}' of model '{place[0]}' is retired for good; send it as another one")
