"""Rows of versions of models: their states, and, where services share a database, which bytes a version is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import jobs
from cloakwork.api.database.tables import models as table
from cloakwork.api.service.clock import now
from cloakwork.api.service.models.folder import Place
from cloakwork.api.service.models.model import Model

LOADED, UNLOADED, RETIRED, REMOVED = "loaded", "unloaded", "retired", "removed"
ENDED: Final = (RETIRED, REMOVED)
"""States of a version that never comes back; of one that is removed the bytes go as well."""


_OF_BYTES: Final = ("program_digest", "artefact_sha256", "kind", "bytes", "facts_sha256")


@dataclass(frozen=True)
class ModelRecord:
    name: str
    version: str
    program_digest: str
    state: str
    changed_at: float
    artefact_sha256: str | None  # None: an earlier release wrote the row, or it is not published
    kind: str | None
    bytes: int | None  # 0: nothing is left of the artefact
    facts_sha256: str | None = None  # of the object that has its facts

    @classmethod
    def of(cls, model: Model, state: str, size: int) -> ModelRecord:
        return cls(model.name, model.version, model.digest, state, now(), model.artefact_sha256, model.kind, size)

    @property
    def place(self) -> Place:
        return self.name, self.version


class ModelRecords:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[Place, ModelRecord]:
        async with self._database.read() as connection:
            rows = (await connection.execute(select(table))).all()
        return {(row.name, row.version): ModelRecord(**row._mapping) for row in rows}

    async def claim(self, record: ModelRecord) -> ModelRecord:
        """Claims the row of a version whose bytes are in the object storage: this very one, or that of the service that was first."""
        try:
            async with self._database.write() as connection:
                await connection.execute(insert(table).values(**record.__dict__))
            return record
        except IntegrityError:
            known = {name: getattr(record, name) for name in _OF_BYTES}
            unclaimed = _at(record.place) & table.c.artefact_sha256.is_(None) & table.c.state.not_in(ENDED)
            async with self._database.write() as connection:
                await connection.execute(update(table).where(unclaimed).values(**known))
                row = (await connection.execute(select(table).where(_at(record.place)))).one()
            return ModelRecord(**row._mapping)

    async def put(self, record: ModelRecord) -> bool:
        """Writes the row of a version whose file is in this service's folder alone; False where one that has ended is there."""
        values = dict(record.__dict__)
        try:
            async with self._database.write() as connection:
                done = await connection.execute(
                    update(table).where(_at(record.place), table.c.state.not_in(ENDED)).values(**values)
                )
                if not done.rowcount:
                    await connection.execute(insert(table).values(**values))
            return True
        except IntegrityError:
            return False

    async def change(self, name: str, state: str, known: Iterable[ModelRecord]) -> None:
        """Changes every version of a model that has not ended; of those that are known there may be no row yet."""
        values = {"state": state, "changed_at": now()}
        where = (table.c.name == name) & table.c.state.not_in(ENDED)
        async with self._database.write() as connection:
            await connection.execute(update(table).where(where).values(**values))
            rows = select(table.c.version).where(table.c.name == name)
            there = {str(version) for version in (await connection.execute(rows)).scalars()}
            for record in known:
                if record.version not in there:
                    await connection.execute(insert(table).values(**replace(record, state=state).__dict__))

    async def end(self, record: ModelRecord, state: str) -> None:
        """Ends a version for good."""
        values = {"state": state, "changed_at": now()}
        async with self._database.write() as connection:
            done = await connection.execute(update(table).where(_at(record.place)).values(**values))
            if not done.rowcount:
                await connection.execute(insert(table).values(**replace(record, state=state).__dict__))

    async def emptied(self, record: ModelRecord) -> None:
        """Records that nothing is left of its bytes in the storage that services share."""
        async with self._database.write() as connection:
            await connection.execute(update(table).where(_at(record.place)).values(bytes=0))

    async def needed(self) -> set[Place]:
        """Returns versions that are needed by jobs that have not ended."""
        query = select(jobs.c.model, jobs.c.version).where(jobs.c.state.in_(("queued", "running"))).distinct()
        async with self._database.read() as connection:
            return {(row.model, row.version) for row in (await connection.execute(query)).all()}


def _at(place: Place) -> ColumnElement[bool]:
    name, version = place
    return (table.c.name == name) & (table.c.version == version)
