"""Resumable uploads of evaluation keys: bytes are kept as they come (`parts.py`), and become a key when they are what they claim to be.

The SHA-256 is announced, or left out by who makes the keys while they are sent: then the object's own checksum proves that all came, and
the SHA-256 is known at the end. A tenant has one key for each content; where a second upload turns out to have it, the first id stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from cloakwork.api.errors import (
    ConflictError,
    MalformedError,
    TooLargeError,
    UnknownKeyError,
    WrongOffsetError,
)
from cloakwork.api.service.keys.checks import known_parameters, verify
from cloakwork.api.service.keys.keys import READY, KeyRecord, Keys
from cloakwork.api.service.keys.parts import REFUSED, Parts, deleted
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.storage.disk import Disk
from cloakwork.api.service.storage.objects import Damage, Storage
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.wire.files import synchronise_folder


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
        parts: Parts,
        usage: Usage,
        disk: Disk,
        forget: Callable[[str], None],
        damage: Damage,
        structured: bool = False,
    ) -> None:
        self._keys = keys
        self._models = models
        self._storage = storage
        self.parts = parts
        self._usage = usage
        self._disk = disk
        self.forget = forget
        self._damage = damage
        self._structured = structured

    async def open(self, tenant: Tenant, digest: str, size: int, sha256: str | None) -> tuple[Progress, bool]:
        """Returns the upload for this content, and whether it is new; a key that is there already is complete."""
        params = known_parameters(digest, self._structured, self._models.of(tenant))
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
        """Returns the record as the storage has it: a key whose file is lost begins again, one that is all here but for its check is checked."""
        if record.state == READY:
            if not await self._storage.holds(record.name, record.bytes):
                return await self.lost(record)
        elif await self.parts.received(record) == record.bytes and not self.parts.busy(record):
            async with self.parts.exclusively(record):
                with contextlib.suppress(*REFUSED):  # then it begins again at 0
                    return await self._finish(record)
        return record

    async def lost(self, record: KeyRecord) -> KeyRecord:
        """Marks the record of a key whose bytes are not in the storage any more, or damaged: its tenant can send them again."""
        self._damage.report(record.name)
        await self._keys.reopen(record)
        await self._storage.delete(record.name)
        self.forget(record.id)
        return await self._keys.get(record.tenant, record.id)

    async def status(self, record: KeyRecord) -> Progress:
        return Progress(record, record.bytes if record.state == READY else await self.parts.received(record))

    def seen(self, record: KeyRecord) -> Progress:
        """Returns how far an upload was when its record was read."""
        return Progress(record, record.bytes if record.state == READY else self.parts.stood(record))

    async def append(self, record: KeyRecord, offset: int, chunks: AsyncIterator[bytes]) -> Progress:
        """Writes what comes; with the last byte the key becomes usable, under the id of the progress.

        Raises:
            WrongOffsetError: the upload stands somewhere else.
            ConflictError: it is complete, or somebody else is writing to it.
            SecretKeyError, MalformedError, KeyMismatchError, ChecksumError: these are no evaluation keys, or not those that were announced.
        """
        if record.state == READY:
            raise ConflictError(f"key '{record.id}' is complete; there is nothing to add")
        async with self.parts.exclusively(record):
            received = await self.parts.received(record)
            if offset != received:
                raise WrongOffsetError(f"the upload stands at {received} bytes, not at {offset}; go on from there")
            if received < record.bytes:
                await self.parts.write(record, offset, chunks)
            received = await self.parts.received(record)
            if received == record.bytes:
                record = await self._finish(record)
            elif not await self._keys.touch(record):
                await self.parts.discard(record)
                raise deleted(record)
            return Progress(record, received)

    async def discard(self, record: KeyRecord) -> None:
        """Deletes the row first: a key without a row is not found, a row without its key would be an error."""
        with self._disk.relieved():
            await self._keys.remove(record)
            await self._storage.delete(record.name)
            await self.parts.discard(record)
        self.forget(record.id)

    # --- inside ---

    async def _finish(self, record: KeyRecord) -> KeyRecord:
        """Raises:
        UnknownKeyError: deleted while its last bytes came, or were checked.
        """
        try:
            async with self.parts.assembled(record) as source:
                owner, key_id = await self._kept(record, source)
        except FileNotFoundError:
            return await self._finished_elsewhere(record)
        if owner.id != record.id:
            await self._keys.remove(record)
        if not await self._keys.complete(owner, key_id.hex()):
            await self._storage.delete(owner.name)
            await self.parts.discard(record)
            raise deleted(owner)
        await self.parts.discard(record)
        if owner.id != record.id and not self.parts.busy(owner):
            await self.parts.discard(owner)  # a part of the same
        return await self._keys.get(owner.tenant, owner.id)

    async def _kept(self, record: KeyRecord, source: Path) -> tuple[KeyRecord, bytes]:
        """Whose content it is, now under that one's name, and the id of the secret key."""
        try:
            key_id, sha256 = await asyncio.to_thread(verify, source, record)
        except FheError:
            await self.parts.refuse(record)
            raise
        owner = await self._keys.identify(record, sha256)
        target = self._storage.place(owner.name)
        if source != target:
            await asyncio.to_thread(source.replace, target)
            await asyncio.to_thread(synchronise_folder, target.parent)
        await self._storage.keep(owner.name)
        return owner, key_id

    async def _finished_elsewhere(self, record: KeyRecord) -> KeyRecord:
        """Its bytes are not here any more: another service was faster with the last step, or it is deleted."""
        current_record = await self._keys.get(record.tenant, record.id)
        if current_record.state != READY:
            raise ConflictError("another request has ended this upload; ask with HEAD how far it is")
        return current_record
