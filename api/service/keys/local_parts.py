"""Parts of uploads in a file of the data folder, as they come; of a service that shares neither its database nor its storage."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import Final

from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.keys.parts import REFUSED, being_written, check_start, no_room, require_within
from cloakwork.api.service.object_headers import PREFIX_BYTES
from cloakwork.api.service.storage.blocks import blocks, write_all
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.storage.sweeping import Folder
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.fhe_core.wire.files import SECRET_MODE

_UPLOAD_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


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
