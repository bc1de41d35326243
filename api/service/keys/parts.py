"""Storage of an upload's bytes until they are a key; in a file of the data folder, if no other service takes the next part."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import Final, Protocol

from cloakwork.api.errors import (
    ConflictError,
    MalformedError,
    StorageFullError,
    TooLargeError,
    UnknownKeyError,
    WrongParametersError,
)
from cloakwork.api.service.keys.checks import check_header
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.models.model import PREFIX_BYTES, refuse_secret_key
from cloakwork.api.service.storage.data_folder import blocks, write_all
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.storage.pairing import Folder
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError
from cloakwork.fhe_core.wire.files import SECRET_MODE

REFUSED: Final = (MalformedError, SerializationError, KeyMismatchError, WrongParametersError)
"""What is said of bytes that are no evaluation keys, or not those that were announced: nothing of such an upload is worth keeping."""
_UPLOAD_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Parts(Protocol):
    def exclusively(self, record: KeyRecord) -> AbstractAsyncContextManager[None]:
        """Raises ConflictError: another request is writing to this upload."""

    def busy(self, record: KeyRecord) -> bool:
        """Whether a request is."""

    async def received(self, record: KeyRecord) -> int:
        """Returns bytes that are here, from 0 on."""

    def stood(self, record: KeyRecord) -> int:
        """Returns the bytes that were here when the record was read, without asking the database."""

    async def write(self, record: KeyRecord, offset: int, chunks: AsyncIterator[bytes]) -> None:
        """Adds what comes; what came before the connection broke is kept.

        Raises:
            TooLargeError, StorageFullError, SecretKeyError, and REFUSED.
            WrongOffsetError, UnknownKeyError: another service was faster, or the key is deleted.
        """

    def assembled(self, record: KeyRecord) -> AbstractAsyncContextManager[Path]:
        """Yields all of them as one file, which may be renamed. FileNotFoundError: they are not all here any more."""

    async def discard(self, record: KeyRecord) -> None:
        """Deletes all that is here, of an upload that is over."""

    async def refuse(self, record: KeyRecord) -> None:
        """Deletes all that is here, of an upload that is complete and not what it claims to be; it begins again at 0."""

    async def abandon(self) -> None:
        """Ends what comes for keys that are deleted elsewhere."""

    def folders(self) -> list[Folder]:
        """Returns objects beside those that `object_folders` knows."""


def being_written() -> ConflictError:
    return ConflictError("another request is writing to this upload; wait for it, then ask with HEAD how far it is")


def deleted(record: KeyRecord) -> UnknownKeyError:
    return UnknownKeyError(f"key '{record.id}' was deleted while its bytes came; nothing of it was kept")


def no_room(offset: int) -> StorageFullError:
    return StorageFullError(
        f"the service has no room left for this part, which is removed; the upload stands at {offset} bytes, go on later"
    )


def require_within(record: KeyRecord, end: int) -> None:
    if end > record.bytes:
        raise TooLargeError(f"the upload has {record.bytes} bytes, and more came; nothing of the surplus was kept")


def check_start(record: KeyRecord, stream: FileIO, block: bytes) -> None:
    """Checks the header, as soon as there is enough of it: `block` comes where the stream stands.

    Raises:
        SecretKeyError, and REFUSED.
    """
    position = stream.tell()
    if position >= PREFIX_BYTES:
        return
    stream.seek(0)
    start = stream.read(position) + block[:PREFIX_BYTES]
    stream.seek(position)
    refuse_secret_key(start)
    if len(start) >= PREFIX_BYTES:
        check_header(record, start)


class LocalParts:
    def __init__(self, storage: Storage, usage: Usage, disk: Disk) -> None:
        self._storage = storage
        self._usage = usage
        self._disk = disk
        self._writing: set[str] = set()

    @asynccontextmanager
    async def exclusively(self, record: KeyRecord) -> AsyncIterator[None]:
        if record.id in self._writing:
            raise being_written()
        self._writing.add(record.id)
        try:
            yield
        finally:
            self._writing.discard(record.id)

    def busy(self, record: KeyRecord) -> bool:
        return record.id in self._writing

    async def received(self, record: KeyRecord) -> int:
        return self.stood(record)

    def stood(self, record: KeyRecord) -> int:
        for name in (record.upload_name, record.name):  # the second: complete, and the service ended before saying so
            with contextlib.suppress(FileNotFoundError):
                return self._storage.place(name).stat().st_size
        return 0

    async def write(self, record: KeyRecord, offset: int, chunks: AsyncIterator[bytes]) -> None:
        place = self._storage.place(record.upload_name)
        with (
            self._disk.writing(record.id, record.bytes - offset),
            # Unbuffered: what is written is in the file, or the disk is full.
            os.fdopen(os.open(place, _UPLOAD_FLAGS, SECRET_MODE), "r+b", buffering=0) as stream,
        ):
            stream.seek(offset)
            try:
                async for block in blocks(chunks):
                    require_within(record, stream.tell() + len(block))
                    if offset < PREFIX_BYTES:
                        check_start(record, stream, block)
                    await asyncio.to_thread(write_all, stream, block)
                    self._disk.written(record.id, len(block))
                await asyncio.to_thread(os.fsync, stream.fileno())
            except REFUSED:
                _cut(stream, 0)  # a header that is refused: nothing of this upload is worth keeping
                raise
            except OSError as error:
                if not is_full(error):
                    raise
                _cut(stream, offset)
                self._disk.report(error)
                raise no_room(offset) from None
            except BaseException:  # the client is gone or too slow: what came is kept
                await asyncio.to_thread(os.fsync, stream.fileno())
                raise
            finally:
                self._usage.count(record.tenant, uploaded_bytes=max(0, stream.tell() - offset))

    @asynccontextmanager
    async def assembled(self, record: KeyRecord) -> AsyncIterator[Path]:
        source = self._storage.place(record.upload_name)
        yield source if source.exists() else self._storage.place(record.name)

    async def discard(self, record: KeyRecord) -> None:
        await self._storage.delete(record.upload_name)

    async def refuse(self, record: KeyRecord) -> None:
        """Refuses an upload, and deletes what was put under its name before the service could say that it is complete."""
        await self._storage.delete(record.upload_name)
        await self._storage.delete(record.name)

    async def abandon(self) -> None:
        return None  # a part of a key that is deleted learns it at its end

    def folders(self) -> list[Folder]:
        return []  # the storage's own


def _cut(stream: FileIO, size: int) -> None:
    stream.seek(size)
    stream.truncate()
    os.fsync(stream.fileno())
