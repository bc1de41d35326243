"""Counts of the answers that a tenant got of each model on a day, which limit how much of a model can be copied (docs/decisions/crafted-keys.md)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import answers


class CountedModel(NamedTuple):
    """The model whose answers are counted, all versions together."""

    tenant: str
    day: str
    model: str


class AnswersGiven:
    """Counted as bootstraps are (`Usage`): in memory, added to the database by `Usage.flush`."""

    def __init__(self, database: Database, flushing: asyncio.Lock, alone: bool) -> None:
        """Args: alone: this process's memory is all there is; flushing: held while something is between memory and database."""
        self._database = database
        self._flushing = flushing
        self._alone = alone
        self._pending: dict[CountedModel, int] = defaultdict(int)
        self._known: dict[CountedModel, int] = {}  # of today, complete: what is stored and what is pending

    def add(self, place: CountedModel, count: int) -> None:
        self._pending[place] += count
        if place in self._known:
            self._known[place] += count

    def take_pending(self) -> dict[CountedModel, int]:
        pending, self._pending = dict(self._pending), defaultdict(int)
        return pending

    def put_back(self, pending: dict[CountedModel, int]) -> None:
        for place, count in pending.items():
            self._pending[place] += count

    async def used(self, place: CountedModel) -> int:
        """Returns at once, without another task between, when the place is known."""
        if not self._alone:
            return await self._stored(place)
        if place not in self._known:
            self._known = {known: count for known, count in self._known.items() if known.day == place.day}
            async with self._flushing:  # nothing is on its way between memory and database
                stored = await self._stored(place)
                self._known.setdefault(place, stored + self._pending.get(place, 0))
        return self._known[place]

    async def of_day(self, tenant: str, day: str) -> dict[str, int]:
        """Returns the counts of a day by model, as it is stored."""
        query = select(answers.c.model, answers.c.answers).where(answers.c.tenant == tenant, answers.c.day == day)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(answers.c.model))).all()
        return {str(row.model): int(row.answers) for row in rows if row.answers}

    async def _stored(self, place: CountedModel) -> int:
        async with self._database.read() as connection:
            return int((await connection.execute(select(answers.c.answers).where(_is(place)))).scalar() or 0)


async def store(connection: AsyncConnection, place: CountedModel, count: int) -> None:
    added = update(answers).where(_is(place)).values(answers=answers.c.answers + count)
    if not (await connection.execute(added)).rowcount:
        await connection.execute(insert(answers).values(**place._asdict(), answers=count))


async def forget_before(connection: AsyncConnection, day: str) -> None:
    """Forgets older counts: they hold nobody back any more; samples stay in the usage of the day."""
    await connection.execute(delete(answers).where(answers.c.day < day))


async def most_answers(connection: AsyncConnection, names: list[str], day: str) -> dict[str, int]:
    """Returns the answers of the model that each tenant got the most of."""
    query = select(answers.c.tenant, func.max(answers.c.answers)).where(
        answers.c.tenant.in_(names), answers.c.day == day
    )
    rows = (await connection.execute(query.group_by(answers.c.tenant))).all()
    return {str(tenant): int(most) for tenant, most in rows}


def _is(place: CountedModel) -> ColumnElement[bool]:
    return and_(*(answers.c[name] == value for name, value in place._asdict().items()))
