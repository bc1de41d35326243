"""Resumable uploads of evaluation keys: bytes go to a file as they come, and become a key when they are what they claim to be.

The SHA-256 is announced, or left out by who makes the keys while they are sent: then the object's own checksum proves that all came, and
the SHA-256 is known at the end. A tenant has one key for each content; where a second upload turns out to have it, the first id stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import FileIO
from typing import Final

from cloakwork.api.errors import (
    ConflictError,
    MalformedError,
    StorageFullError,
    TooLargeError,
    UnknownKeyError,
    WrongOffsetError,
    WrongParametersError,
)
from cloakwork.api.service.keys.checks import check_header, known_parameters, verify
from cloakwork.api.service.keys.keys import READY, KeyRecord, Keys
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.object_headers import PREFIX_BYTES, refuse_secret_key
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.files import SECRET_MODE, synchronise_folder

_WRITE_BYTES: Final = 1 << 20
_REFUSED: Final = (MalformedError, SerializationError, KeyMismatchError, WrongParametersError)
_UPLOAD_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_log = logging.getLogger("cloakwork.uploads")


@dataclass(frozen=True)
class Progress:
    record: KeyRecord
    offset: int

    @property
    def complete(self) -> bool:
        return self.record.state == READY


class Uploads:
    """`forget` drops a key from the memory and the devices of the engine; keys of sets with structured secrets only come in when they are
    allowed."""

    def __init__(
        self,
        keys: Keys,
        models: Models,
        storage: Storage,
        usage: Usage,
        disk: Disk,
        forget: Callable[[str], None],
        structured_keys: bool = False,
    ) -> None:
        self._keys = keys
        self._models = models
        self._storage = storage
        self._usage = usage
        self._disk = disk
        self.forget = forget
        self._structured_keys = structured_keys
        self._writing: set[str] = set()

    async def open(self, tenant: Tenant, digest: str, size: int, sha256: str | None) -> tuple[Progress, bool]:
        """The upload for this content, and whether it is new; a key that is there already is complete."""
        params = known_parameters(digest, self._structured_keys, self._models.of(tenant))
        expected = params.bytes
        if size > expected:
            raise TooLargeError(f"evaluation keys of parameter set '{params.name}' have {expected} bytes, not {size}")
        if size != expected:
            raise MalformedError(f"evaluation keys of parameter set '{params.name}' have {expected} bytes, not {size}")
        announced = KeyRecord.of_upload(tenant.name, params, sha256)
        record = await self._keys.same_content(announced)
        new = record is None
        if record is None:
            await self._usage.require_bytes(tenant, size)
            self._disk.require_room(size)
            record, new = await self._keys.open(announced, self._usage.admission(tenant, size))
        try:
            return await self.status(await self._mended(record)), new
        except UnknownKeyError:  # deleted in between
            return await self.open(tenant, digest, size, sha256)

    async def _mended(self, record: KeyRecord) -> KeyRecord:
        """The record as the storage has it: a key whose file is lost begins again, one that is all here but for its check is checked."""
        if record.state == READY:
            if not await self._storage.holds(record.name, record.bytes):
                return await self.lost(record)
        elif self._received(record) == record.bytes and record.id not in self._writing:
            async with self._exclusively(record):
                with contextlib.suppress(*_REFUSED):  # then it begins again at 0
                    return await self._finish(record)
        return record

    async def lost(self, record: KeyRecord) -> KeyRecord:
        """The record of a key whose bytes are not in the storage any more, or not all: they can be sent again."""
        _log.error("the file of a key is lost; its tenant has to send it again", extra={"key": record.id})
        await self._keys.reopen(record)
        await self._storage.delete(record.name)
        self.forget(record.id)
        return await self._keys.get(record.tenant, record.id)

    async def status(self, record: KeyRecord) -> Progress:
        return Progress(record, record.bytes if record.state == READY else self._received(record))

    async def append(self, record: KeyRecord, offset: int, chunks: AsyncIterator[bytes]) -> Progress:
        """Writes what comes; with the last byte the key becomes usable, under the id of the progress.

        Raises:
            WrongOffsetError: the upload stands somewhere else.
            ConflictError: it is complete, or somebody else is writing to it.
            SecretKeyError, MalformedError, KeyMismatchError, ChecksumError: these are no evaluation keys, or not those that were announced.
        """
        if record.state == READY:
            raise ConflictError(f"key '{record.id}' is complete; there is nothing to add")
        async with self._exclusively(record):
            received = self._received(record)
            if offset != received:
                raise WrongOffsetError(f"the upload stands at {received} bytes, not at {offset}; go on from there")
            if received < record.bytes:
                with self._disk.writing(record.id, record.bytes - received):
                    await self._write(record, offset, chunks)
            received = self._received(record)
            if received == record.bytes:
                record = await self._finish(record)
            elif not await self._keys.touch(record):
                await self._storage.delete(record.upload_name)
                raise _deleted(record)
            return Progress(record, received)

    async def discard(self, record: KeyRecord) -> None:
        """The row first: a key without a row is not found, a row without its key would be an error."""
        with self._disk.relieved():
            await self._keys.remove(record)
            await self._storage.delete(record.name)
            await self._storage.delete(record.upload_name)
        self.forget(record.id)

    # --- inside ---

    @asynccontextmanager
    async def _exclusively(self, record: KeyRecord) -> AsyncIterator[None]:
        if record.id in self._writing:
            raise ConflictError(
                "another request is writing to this upload; wait for it, then ask with HEAD how far it is"
            )
        self._writing.add(record.id)
        try:
            yield
        finally:
            self._writing.discard(record.id)

    def _received(self, record: KeyRecord) -> int:
        for name in (record.upload_name, record.name):  # the second: complete, and the service ended before saying so
            with contextlib.suppress(FileNotFoundError):
                return self._storage.place(name).stat().st_size
        return 0

    async def _write(self, record: KeyRecord, offset: int, chunks: AsyncIterator[bytes]) -> None:
        descriptor = os.open(self._storage.place(record.upload_name), _UPLOAD_FLAGS, SECRET_MODE)
        with os.fdopen(descriptor, "r+b", buffering=0) as stream:  # what is written is in the file, or the disk is full
            stream.seek(offset)
            try:
                async for block in _blocks(chunks):
                    if stream.tell() + len(block) > record.bytes:
                        raise TooLargeError(
                            f"the upload has {record.bytes} bytes, and more came; nothing of the surplus was kept"
                        )
                    if offset < PREFIX_BYTES:
                        self._check_start(record, stream, block)
                    await asyncio.to_thread(_write_all, stream, block)
                    self._disk.written(record.id, len(block))
                await asyncio.to_thread(os.fsync, stream.fileno())
            except _REFUSED:
                _cut(stream, 0)  # a header that is refused: nothing of this upload is worth keeping
                raise
            except OSError as error:
                if not is_full(error):
                    raise
                _cut(stream, offset)
                self._disk.report(error)
                raise StorageFullError(
                    f"the service has no room left for this part, which is removed; the upload stands at {offset} bytes, go on later"
                ) from None
            except BaseException:  # the client is gone or too slow: what came is kept
                await asyncio.to_thread(os.fsync, stream.fileno())
                raise
            finally:
                self._usage.count(record.tenant, uploaded_bytes=max(0, stream.tell() - offset))

    def _check_start(self, record: KeyRecord, stream: FileIO, block: bytes) -> None:
        """The header, as soon as there is enough of it."""
        position = stream.tell()
        if position >= PREFIX_BYTES:
            return
        stream.seek(0)
        start = stream.read(position) + block[:PREFIX_BYTES]
        stream.seek(position)
        refuse_secret_key(start)
        if len(start) >= PREFIX_BYTES:
            check_header(record, start)

    async def _finish(self, record: KeyRecord) -> KeyRecord:
        """Raises:
        UnknownKeyError: deleted while its last bytes came, or were checked.
        """
        source = self._storage.place(record.upload_name)
        if not source.exists():
            source = self._storage.place(record.name)
        try:
            key_id, sha256 = await asyncio.to_thread(verify, source, record)
            owner = await self._keys.identify(record, sha256)
            target = self._storage.place(owner.name)
            if source != target:
                await asyncio.to_thread(source.replace, target)
                await asyncio.to_thread(synchronise_folder, target.parent)
            await self._storage.keep(owner.name)
        except FheError:
            source.unlink(missing_ok=True)
            raise
        except FileNotFoundError:
            raise _deleted(record) from None
        if owner.id != record.id:
            await self._keys.remove(record)
        if not await self._keys.complete(owner, key_id.hex()):
            await self._storage.delete(owner.name)
            raise _deleted(owner)
        if owner.id != record.id and owner.id not in self._writing:
            await self._storage.delete(owner.upload_name)  # a part of the same
        return await self._keys.get(owner.tenant, owner.id)


def _deleted(record: KeyRecord) -> UnknownKeyError:
    return UnknownKeyError(f"key '{record.id}' was deleted while its bytes came; nothing of it was kept")


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes: the first chunk at once, so that its header is looked at; then in blocks worth a write. What came before the
    connection broke counts."""
    pending = bytearray()
    first = True
    broken: Exception | None = None
    try:
        async for chunk in chunks:
            pending += chunk
            if first or len(pending) >= _WRITE_BYTES:
                first = False
                yield bytes(pending)
                pending.clear()
    except Exception as error:
        broken = error
    if pending:
        yield bytes(pending)
    if broken is not None:
        raise broken


def _write_all(stream: FileIO, block: bytes) -> None:
    """An unbuffered file may take less than it is given, above all the last bytes that fit on the disk."""
    view = memoryview(block)
    while view:
        view = view[stream.write(view) :]


def _cut(stream: FileIO, size: int) -> None:
    stream.seek(size)
    stream.truncate()
    os.fsync(stream.fileno())
