"""Evaluation keys of tenants: their rows, and which one a request means. `uploads.py` brings them in."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import BindParameter, Column, ColumnElement, Float, bindparam, case, delete, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database, known_rows
from cloakwork.api.database.tables import evaluation_keys as table
from cloakwork.api.database.tables import jobs
from cloakwork.api.errors import KeyRequiredError, NotReadyError, UnknownKeyError, WrongParametersError
from cloakwork.api.service.clock import new_id, now, retention
from cloakwork.api.service.models.model import KeyParameters
from cloakwork.api.service.tenants.usage import Admission

OPEN, READY = "open", "ready"
_REMEMBER_SECONDS: Final = 5.0
_REMEMBERED: Final = 10_000
_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class KeyRecord:
    id: str
    tenant: str
    parameter_set: str
    parameter_digest: str
    sha256: str | None  # None: not announced, and bytes are missing
    bytes: int
    state: str
    secret_id: str | None  # the key id that ciphertexts of the same secret key carry
    created_at: float
    used_at: float
    received_bytes: int = 0  # of an upload whose parts are objects (`shared_parts.py`)

    @classmethod
    def of_upload(cls, tenant: str, params: KeyParameters, sha256: str | None) -> KeyRecord:
        """Creates the record of an upload, whose bytes have yet to come."""
        moment = now()
        return cls(new_id(), tenant, params.name, params.digest, sha256, params.bytes, OPEN, None, moment, moment)

    @property
    def name(self) -> str:
        """The name of the key in the storage."""
        return f"keys/{self.id}"

    @property
    def upload_name(self) -> str:
        return f"uploads/{self.id}"


class Keys:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._remembered: dict[tuple[str, str], tuple[float, list[KeyRecord]]] = {}
        self._used: dict[str, float] = {}

    async def open(self, record: KeyRecord, admit: Admission) -> tuple[KeyRecord, bool]:
        """Returns the record for this content, and whether it is new. A tenant has one for each content that is known."""
        known_record = await self.same_content(record)
        if known_record is not None:
            return known_record, False
        try:
            async with self._database.write() as connection:
                await admit(connection)
                await connection.execute(insert(table).values(**record.__dict__))
            return record, True
        except IntegrityError:  # announced twice at once
            return await self.open(record, admit)

    async def same_content(self, record: KeyRecord) -> KeyRecord | None:
        if record.sha256 is None:
            return None
        same = (table.c.tenant == record.tenant) & (table.c.sha256 == record.sha256)
        query = select(table).where(same, table.c.parameter_digest == record.parameter_digest)
        async with self._database.read() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _record(row)

    async def identify(self, record: KeyRecord, sha256: str) -> KeyRecord:
        """Finds the tenant's record of the content that an upload turned out to have: this one, or another that had it first."""
        if record.sha256 is not None:
            return record
        named = replace(record, sha256=sha256)
        known_record = await self.same_content(named)
        if known_record is not None:
            return known_record
        try:
            async with self._database.write() as connection:
                await connection.execute(update(table).where(table.c.id == record.id).values(sha256=sha256))
            return named
        except IntegrityError:  # announced, or completed, at the same moment
            return await self.identify(record, sha256)

    async def get(self, tenant: str, identity: str) -> KeyRecord:
        async with self._database.read() as connection:
            row = (
                await connection.execute(select(table).where(table.c.id == identity, table.c.tenant == tenant))
            ).one_or_none()
        if row is None:
            raise UnknownKeyError(f"there is no key '{identity}'; GET /v2/keys lists yours")
        return _record(row)

    async def find(self, identity: str) -> KeyRecord:
        """Finds a key, whosever it is."""
        async with self._database.read() as connection:
            row = (await connection.execute(select(table).where(table.c.id == identity))).one_or_none()
        if row is None:
            raise UnknownKeyError(f"there is no key '{identity}'")
        return _record(row)

    async def of_tenant(self, tenant: str) -> list[KeyRecord]:
        query = select(table).where(table.c.tenant == tenant).order_by(table.c.created_at, table.c.id)
        async with self._database.read() as connection:
            return [_record(row) for row in (await connection.execute(query)).all()]

    async def complete(self, record: KeyRecord, secret_id: str) -> bool:
        """Whether the record is still there; it may have been deleted while its last bytes came."""
        ready = {"state": READY, "secret_id": secret_id, "used_at": later(table.c.used_at)}
        async with self._database.write() as connection:
            done = await connection.execute(update(table).where(table.c.id == record.id).values(**ready))
        self.forget_remembered(record.tenant)
        return bool(done.rowcount)

    async def reopen(self, record: KeyRecord) -> None:
        """Reopens an upload whose bytes are lost: the same content can be sent again."""
        where = (table.c.id == record.id) & (table.c.state == READY)
        async with self._database.write() as connection:
            await connection.execute(
                update(table).where(where).values(state=OPEN, used_at=later(table.c.used_at), received_bytes=0)
            )
        self.forget_remembered(record.tenant)

    async def touch(self, record: KeyRecord) -> bool:
        """Extends an upload that goes on, so that it does not expire. Whether it is still there."""
        async with self._database.write() as connection:
            done = await connection.execute(
                update(table).where(table.c.id == record.id).values(used_at=later(table.c.used_at))
            )
        return bool(done.rowcount)

    async def remove(self, record: KeyRecord) -> None:
        async with self._database.write() as connection:
            await connection.execute(delete(table).where(table.c.id == record.id))
        self.forget_remembered(record.tenant)

    async def expired(self, key_seconds: float, upload_seconds: float) -> list[KeyRecord]:
        """Returns keys that have expired, but not those that a waiting job needs; at most _AT_ONCE."""
        await self.flush_used()
        needed = select(jobs.c.evaluation_key).where(jobs.c.state.in_(("queued", "running")))
        old_key = (
            (table.c.state == READY) & (table.c.used_at < retention.now() - key_seconds) & table.c.id.not_in(needed)
        )
        old_upload = (table.c.state == OPEN) & (table.c.used_at < retention.now() - upload_seconds)
        query = select(table).where(old_key | old_upload).limit(_AT_ONCE)
        async with self._database.read(chore=True) as connection:
            return [_record(row) for row in (await connection.execute(query)).all()]

    async def known(self, identities: list[str]) -> set[str]:
        """Returns those of the identities that are rows."""
        return await known_rows(self._database, table.c.id, identities)

    async def ready(self, identities: list[str]) -> set[str]:
        """Returns those of the identities that are rows whose bytes are all here."""
        return await known_rows(self._database, table.c.id, identities, table.c.state == READY)

    # --- choosing a key for a request ---

    async def choose(self, tenant: str, parameter_digest: str, key_id: str | None, secret_id: str) -> KeyRecord:
        """Returns the key named in the request, else the one that the ciphertexts were made with.

        Raises:
            UnknownKeyError, NotReadyError, WrongParametersError: about a named key.
            KeyRequiredError: the tenant has no key for this parameter set, or none of this secret key.
        """
        if key_id is not None:
            record = next((key for key in await self._of(tenant, parameter_digest) if key.id == key_id), None)
            record = record or await self.get(tenant, key_id)
            if record.parameter_digest != parameter_digest:
                raise WrongParametersError(
                    f"key '{key_id}' is for parameter set '{record.parameter_set}', the model needs another; "
                    "choose one that GET /v2/keys lists with the model's parameter_digest"
                )
            if record.state != READY:
                raise NotReadyError(
                    f"the upload of key '{key_id}' is not complete; send the rest with PATCH /v2/keys/{key_id}"
                )
        else:
            mine = [key for key in await self._of(tenant, parameter_digest) if key.secret_id == secret_id]
            if not mine:  # another service may have received it a moment ago
                self._remembered.pop((tenant, parameter_digest), None)
                mine = [key for key in await self._of(tenant, parameter_digest) if key.secret_id == secret_id]
            if not mine:
                raise KeyRequiredError(
                    "no evaluation keys of this secret key for the model's parameter set are here; upload them first: POST /v2/keys"
                )
            record = mine[-1]
        self._used[record.id] = retention.now()
        return record

    async def _of(self, tenant: str, parameter_digest: str) -> list[KeyRecord]:
        """Returns ready keys, remembered for a moment: a request that scores one sample should not wait for the database."""
        place = (tenant, parameter_digest)
        remembered = self._remembered.get(place)
        if remembered is not None and remembered[0] > time.monotonic():  # a clock that is set back must not lengthen it
            return remembered[1]
        query = select(table).where(
            table.c.tenant == tenant, table.c.parameter_digest == parameter_digest, table.c.state == READY
        )
        async with self._database.read() as connection:
            records = [_record(row) for row in (await connection.execute(query.order_by(table.c.created_at))).all()]
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[place] = (time.monotonic() + _REMEMBER_SECONDS, records)
        return records

    def forget_remembered(self, tenant: str) -> None:
        for place in [place for place in self._remembered if place[0] == tenant]:
            del self._remembered[place]

    async def flush_used(self) -> None:
        used, self._used = self._used, {}
        if not used:
            return
        try:
            async with self._database.write() as connection:  # one statement, many rows: not a round trip for each
                used_at = later(table.c.used_at, bindparam("moment", type_=Float))
                statement = update(table).where(table.c.id == bindparam("key")).values(used_at=used_at)
                await connection.execute(statement, [{"key": key, "moment": moment} for key, moment in used.items()])
        except BaseException:
            self._used = {**used, **self._used}
            raise


def later(column: Column[float], moment: float | BindParameter[float] | None = None) -> ColumnElement[float]:
    """Returns the later of two times: now, by the clock that jumps do not move, or what the column says, if that is later."""
    moment = retention.now() if moment is None else moment
    return case((column < moment, moment), else_=column)


def _record(row: Row[tuple[object, ...]]) -> KeyRecord:
    return KeyRecord(**row._mapping)
