"""Parts of uploads as objects, `uploads/<key>/<start>-..`, so that every service on the database takes the next one.

A request writes to a scratch file at the bytes' own places; every 8 MiB, and at its end, what came becomes an object and the row says so. A
part is joined with those before it while they are at most twice as large, up to 8 MiB: an upload in many small parts has few objects, and
each byte is written again some dozens of times at most.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Final

from sqlalchemy import delete, insert, select, update

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import evaluation_keys, upload_parts
from cloakwork.api.errors import UnknownKeyError, WrongOffsetError
from cloakwork.api.service.keys.keys import OPEN, KeyRecord, Keys, later
from cloakwork.api.service.keys.parts import (
    REFUSED,
    being_written,
    check_start,
    deleted,
    no_room,
    require_within,
)
from cloakwork.api.service.models.model import PREFIX_BYTES
from cloakwork.api.service.storage.data_folder import blocks, write_all
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.api.service.storage.object_store import ObjectStore
from cloakwork.api.service.storage.objects import UPLOADS
from cloakwork.api.service.storage.pairing import Folder
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.wire.files import SECRET_MODE

PART_BYTES: Final = 8 << 20
_JOINED: Final = 2  # times as large as what follows, at most: sizes fall by that factor, so that parts are few
_PUTS_AT_ONCE: Final = 4  # parts in memory
_SLOT_SECONDS: Final = 30.0  # that a request waits to be one of them
_log = logging.getLogger("cloakwork.storage")
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True)
class UploadPart:
    start: int
    bytes: int
    name: str

    @property
    def end(self) -> int:
        return self.start + self.bytes


class PartRows:
    """Parts of an upload are adjacent, from 0 to `received_bytes` of its row, which is what two writers compare and set."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def received(self, record: KeyRecord) -> int:
        query = select(evaluation_keys.c.received_bytes).where(evaluation_keys.c.id == record.id)
        async with self._database.read() as connection:
            return int((await connection.execute(query)).scalar() or 0)

    async def of(self, record: KeyRecord) -> list[UploadPart]:
        """Returns the parts of an upload in their order."""
        query = select(upload_parts.c.start, upload_parts.c.bytes, upload_parts.c.name)
        query = query.where(upload_parts.c.evaluation_key == record.id).order_by(upload_parts.c.start)
        async with self._database.read() as connection:
            return [UploadPart(**row._mapping) for row in (await connection.execute(query)).all()]

    async def add(self, record: KeyRecord, received: int, part: UploadPart, joined: list[UploadPart]) -> None:
        """Adds a part that ends beyond what was received, in the place of those that are joined in it.

        Raises:
            WrongOffsetError: the upload stands somewhere else by now.
            UnknownKeyError: it is deleted.
        """
        names = [each.name for each in joined]
        of_record = upload_parts.c.evaluation_key == record.id
        values = {"evaluation_key": record.id, "start": part.start, "bytes": part.bytes, "name": part.name}
        async with self._database.write() as connection:
            stands = (evaluation_keys.c.id == record.id) & (evaluation_keys.c.state == OPEN)
            moved = await connection.execute(
                update(evaluation_keys)
                .where(stands, evaluation_keys.c.received_bytes == received)
                .values(received_bytes=part.end, used_at=later(evaluation_keys.c.used_at))
            )
            gone = await connection.execute(delete(upload_parts).where(of_record, upload_parts.c.name.in_(names)))
            if moved.rowcount and gone.rowcount == len(names):
                await connection.execute(insert(upload_parts).values(**values))
                return
            await connection.rollback()
        raise await self.overtaken(record)

    async def overtaken(self, record: KeyRecord) -> Exception:
        """Makes the error of a request that another was faster than."""
        query = select(evaluation_keys.c.received_bytes).where(evaluation_keys.c.id == record.id)
        async with self._database.read() as connection:
            stands = (await connection.execute(query)).scalar()
        if stands is None:
            return deleted(record)
        return WrongOffsetError(
            f"another request was faster: the upload stands at {stands} bytes; ask with HEAD, and go on from there"
        )

    async def clear(self, record: KeyRecord, received: int | None = None) -> list[UploadPart]:
        """Removes what is no part of the upload any more, which begins at 0 again; nothing, where it does not stand at `received`."""
        of_record = upload_parts.c.evaluation_key == record.id
        row = evaluation_keys.c.id == record.id
        async with self._database.write() as connection:
            if received is not None:
                back = update(evaluation_keys).where(row, evaluation_keys.c.received_bytes == received)
                if not (await connection.execute(back.values(received_bytes=0))).rowcount:
                    return []
            else:
                await connection.execute(update(evaluation_keys).where(row).values(received_bytes=0))
            parts = select(upload_parts.c.start, upload_parts.c.bytes, upload_parts.c.name).where(of_record)
            removed_parts = [UploadPart(**each._mapping) for each in (await connection.execute(parts)).all()]
            await connection.execute(delete(upload_parts).where(of_record))
            return removed_parts

    async def names(self) -> set[str]:
        """Names all parts of uploads that are there; rows of others are deleted."""
        uploads = select(evaluation_keys.c.id)
        async with self._database.write(chore=True) as connection:
            await connection.execute(delete(upload_parts).where(upload_parts.c.evaluation_key.not_in(uploads)))
            return set((await connection.execute(select(upload_parts.c.name))).scalars())


@dataclass
class _Scratch:
    """A request's file; from `begin` on it has what the upload has."""

    leash: asyncio.Timeout
    path: Path
    begin: int


class SharedParts:
    """`folder`: of this service alone, for scratch files; what a process left there that ended is deleted."""

    def __init__(self, store: ObjectStore, rows: PartRows, keys: Keys, folder: Path, usage: Usage, disk: Disk) -> None:
        self._store = store
        self._rows = rows
        self._keys = keys
        self._folder = folder
        self._usage = usage
        self._disk = disk
        self._open: dict[str, _Scratch] = {}
        self._slots = asyncio.Semaphore(_PUTS_AT_ONCE)
        for left in folder.iterdir():
            left.unlink()

    @asynccontextmanager
    async def exclusively(self, record: KeyRecord) -> AsyncIterator[None]:
        """Holds an upload exclusively within this service; between services the row decides."""
        if record.id in self._open:
            raise being_written()
        path = self._folder / f"{record.id}-{secrets.token_hex(8)}"
        leash = asyncio.timeout(None)
        try:
            async with leash:
                self._open[record.id] = _Scratch(leash, path, record.bytes)
                yield
        except TimeoutError:
            if leash.expired():
                raise deleted(record) from None
            raise
        finally:
            self._open.pop(record.id, None)
            path.unlink(missing_ok=True)

    def busy(self, record: KeyRecord) -> bool:
        return record.id in self._open

    async def received(self, record: KeyRecord) -> int:
        return await self._rows.received(record)

    def stood(self, record: KeyRecord) -> int:
        return record.received_bytes

    async def write(self, record: KeyRecord, offset: int, chunks: AsyncIterator[bytes]) -> None:
        scratch = self._open[record.id]
        saved = scratch.begin = offset
        with (
            self._disk.writing(record.id, record.bytes - offset),
            os.fdopen(os.open(scratch.path, _FLAGS, SECRET_MODE), "r+b", buffering=0) as stream,
        ):
            try:
                if 0 < offset < PREFIX_BYTES:
                    await self._fill(scratch, stream, await self._rows.of(record))
                stream.seek(offset)
                async for block in blocks(chunks):
                    require_within(record, stream.tell() + len(block))
                    if offset < PREFIX_BYTES:
                        check_start(record, stream, block)
                    await asyncio.to_thread(write_all, stream, block)
                    self._disk.written(record.id, len(block))
                    if stream.tell() - saved >= PART_BYTES:
                        saved = await self._save(record, scratch, stream, saved)
                await self._save(record, scratch, stream, saved)
            except REFUSED:
                await self._delete(await self._rows.clear(record, saved))
                raise
            except (WrongOffsetError, UnknownKeyError):
                raise
            except OSError as error:
                if not is_full(error):
                    raise
                self._disk.report(error)
                raise no_room(saved) from None
            except Exception:  # the client is gone or too slow: what came is kept
                await self._save(record, scratch, stream, saved)
                raise
            finally:
                self._usage.count(record.tenant, uploaded_bytes=max(0, stream.tell() - offset))

    async def _save(self, record: KeyRecord, scratch: _Scratch, stream: FileIO, saved: int) -> int:
        """Returns what came after `saved` becomes an object; how far the upload is now."""
        end = stream.tell()
        if end == saved:
            return saved
        joined = joinable(await self._rows.of(record), saved, end)
        try:
            await self._fill(scratch, stream, joined)
        except FileNotFoundError:
            if await self._rows.received(record) == saved:
                raise  # the storage has lost it
            raise await self._rows.overtaken(record) from None  # another request has joined and deleted it
        start = joined[0].start if joined else saved
        part = UploadPart(start, end - start, f"{UPLOADS}/{record.id}/{start}-{secrets.token_hex(8)}")
        async with self._slot():
            await self._store.put(part.name, await asyncio.to_thread(os.pread, stream.fileno(), part.bytes, start))
        try:
            await self._rows.add(record, saved, part, joined)
        except FheError:
            await self._delete([part])
            raise  # any other error may have come after the row: then nothing goes, and the sweeper finds what is nobody's
        await self._delete(joined)
        return end

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_SLOT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise OSError("the object storage takes other parts, and no more") from None
        try:
            yield
        finally:
            self._slots.release()

    async def _fill(self, scratch: _Scratch, stream: FileIO, parts: list[UploadPart]) -> None:
        """Parts before what the scratch file has, written where they belong; the file stands where it stood."""
        stands = stream.tell()
        for part in parts:
            if part.start < scratch.begin:
                stream.seek(part.start)
                await self._store.read_into(part.name, stream)
        if parts:
            scratch.begin = min(scratch.begin, parts[0].start)
        stream.seek(stands)

    @asynccontextmanager
    async def assembled(self, record: KeyRecord) -> AsyncIterator[Path]:
        scratch = self._open[record.id]
        parts = await self._rows.of(record)
        if [part.start for part in parts] != [0, *(part.end for part in parts)][: len(parts)] or not parts:
            raise FileNotFoundError(record.upload_name)
        with (
            self._disk.writing(record.id, min(scratch.begin, record.bytes)),
            os.fdopen(os.open(scratch.path, _FLAGS & ~os.O_EXCL, SECRET_MODE), "r+b", buffering=0) as stream,
        ):
            await self._fill(scratch, stream, parts)
            await asyncio.to_thread(os.fsync, stream.fileno())
        yield scratch.path

    async def discard(self, record: KeyRecord) -> None:
        await self._delete(await self._rows.clear(record))

    async def refuse(self, record: KeyRecord) -> None:
        await self._delete(await self._rows.clear(record, record.bytes))

    async def abandon(self) -> None:
        here = list(self._open)
        for identity in set(here) - await self._keys.known(here) if here else ():
            scratch = self._open.get(identity)
            if scratch is not None and not scratch.leash.expired():
                scratch.leash.reschedule(asyncio.get_running_loop().time())

    def folders(self) -> list[Folder]:
        return [Folder("parts", partial(self._store.names, UPLOADS), self._known, self._store.delete)]

    async def _known(self, names: list[str]) -> set[str]:
        return await self._rows.names() & set(names)

    async def _delete(self, parts: list[UploadPart]) -> None:
        """No row names them any more: the sweeper finds those that the storage does not delete now."""
        for part in parts:
            try:
                await self._store.delete(part.name)
            except OSError as error:
                _log.warning("a part cannot be deleted yet (%s)", error, extra={"object": part.name})
                return


def joinable(parts: list[UploadPart], start: int, end: int) -> list[UploadPart]:
    """Returns the last parts that one from `start` to `end` is joined with."""
    joined: list[UploadPart] = []
    for part in reversed(parts):
        size = end - start
        if part.end != start or part.bytes > _JOINED * size or part.bytes + size > PART_BYTES:
            break
        joined.insert(0, part)
        start = part.start
    return joined
