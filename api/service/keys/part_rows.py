"""Rows of parts: how far an upload is, and which objects its bytes are in."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import evaluation_keys, upload_parts
from cloakwork.api.errors import WrongOffsetError
from cloakwork.api.service.keys.keys import OPEN, KeyRecord, later
from cloakwork.api.service.keys.parts import deleted


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
