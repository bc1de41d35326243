"""Usage of tenants, bootstraps and bytes, against their limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Column, ColumnElement, and_, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import answers, evaluation_keys, jobs, tenants, usage
from cloakwork.api.errors import QuotaError, UnauthorisedError
from cloakwork.api.service.clock import day_of, retention, seconds_to_midnight, today
from cloakwork.api.service.storage.disk import is_full
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.settings import Settings

COUNTERS = ("requests", "samples", "bootstraps", "uploaded_bytes")
_BYTES_RETRY_SECONDS = 3600.0
_DAYS_KEPT = 31  # of answers by model, and in a report
Admission: TypeAlias = Callable[[AsyncConnection], Awaitable[None]]
"""Raises in the transaction that would store something, when it must not."""
Day: TypeAlias = tuple[str, str]
"""A tenant and a day."""


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


async def _store_answers(connection: AsyncConnection, place: CountedModel, count: int) -> None:
    added = update(answers).where(_is(place)).values(answers=answers.c.answers + count)
    if not (await connection.execute(added)).rowcount:
        await connection.execute(insert(answers).values(**place._asdict(), answers=count))


async def _forget_answers(connection: AsyncConnection, day: str) -> None:
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


@dataclass(frozen=True)
class DayWork:
    """The share of a tenant's day that a request takes."""

    model: str
    bootstraps: int
    answers: int


class Usage:
    """Counts in memory and adds to the database about once a second: short requests need no write of their own.

    A service that is killed forgets at most what the last second counted. Where several services may share the database, bootstraps and
    answers are counted there, a statement each for a request: what this process remembers is not all.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._alone = settings.database_url is None or settings.single_host  # then this process's memory is the truth
        self._pending: dict[Day, dict[str, int]] = defaultdict(_zeros)
        self._bootstraps: dict[Day, int] = {}  # of today, complete: what is stored and what is pending
        self._flushing = asyncio.Lock()
        self._answers = AnswersGiven(database, self._flushing, self._alone)

    def count(self, tenant: str, **amounts: int) -> None:
        self._add((tenant, today()), amounts)

    def _add(self, day: Day, amounts: dict[str, int]) -> None:
        pending = self._pending[day]
        for counter, amount in amounts.items():
            pending[counter] += amount
        if day in self._bootstraps:
            self._bootstraps[day] += amounts.get("bootstraps", 0)

    async def flush(self) -> None:
        async with self._flushing:
            pending, self._pending = dict(self._pending), defaultdict(_zeros)
            given = self._answers.take_pending()
            if not pending and not given:
                return
            try:
                async with self._database.write() as connection:
                    for (tenant, day), amounts in pending.items():
                        await _store(connection, tenant, day, amounts)
                    for place, count in given.items():
                        await _store_answers(connection, place, count)
            except BaseException:
                self._answers.put_back(given)
                for each, amounts in pending.items():
                    for name, amount in amounts.items():
                        self._pending[each][name] += amount
                raise

    async def forget_old(self) -> None:
        """Answers by model of days that nobody asks about; samples of a day stay."""
        async with self._database.write(chore=True) as connection:
            await _forget_answers(connection, day_of(retention.now() - _DAYS_KEPT * 86400))

    # --- limits ---

    def max_bytes(self, tenant: Tenant) -> int:
        return self._settings.tenant_bytes if tenant.max_bytes is None else tenant.max_bytes

    def max_bootstraps(self, tenant: Tenant) -> int:
        tenant_limit = tenant.max_bootstraps_per_day
        return self._settings.tenant_bootstraps_per_day if tenant_limit is None else tenant_limit

    def max_queue(self, tenant: Tenant) -> int:
        return self._settings.max_tenant_queue if tenant.max_queue is None else tenant.max_queue

    def max_answers(self, tenant: Tenant) -> int:
        """Returns the answers of each model that it may have a day."""
        tenant_limit = tenant.max_answers_per_day
        return self._settings.tenant_answers_per_day if tenant_limit is None else tenant_limit

    async def require(self, tenant: Tenant, work: DayWork) -> None:
        """Requires room in the quota before the rest of a request is read; `charge` decides."""
        day = today()
        self._check_answers(tenant, work, await self._answers.used(CountedModel(tenant.name, day, work.model)))
        self._check(tenant, await self._used(tenant.name, day), work.bootstraps)

    async def charge(self, tenant: Tenant, work: DayWork) -> str:
        """Counts bootstraps and answers that are about to be accepted; of many requests at once only as many pass as the limits allow.

        Returns: the day that they are counted on, for `refund`.
        """
        day = today()
        if self._alone:
            place = CountedModel(tenant.name, day, work.model)
            await self._used(tenant.name, day)  # then the second time it is known, and no task comes between the checks
            given, used = await self._answers.used(place), await self._used(tenant.name, day)
            self._check_answers(tenant, work, given)
            self._check(tenant, used, work.bootstraps)
            self._add((tenant.name, day), {"bootstraps": work.bootstraps})
            self._answers.add(place, work.answers)
        else:
            await self._charge_shared(tenant, day, work)
        return day

    def refund(self, tenant: str, day: str, work: DayWork) -> None:
        """Refunds bootstraps: they were charged, will not run and have no answer."""
        self._add((tenant, day), {"bootstraps": -work.bootstraps})
        self._answers.add(CountedModel(tenant, day, work.model), -work.answers)

    async def _charge_shared(self, tenant: Tenant, day: str, work: DayWork) -> None:
        """Both or neither: a refusal ends the transaction."""
        async with self._database.write() as connection:
            row = {"tenant": tenant.name, "day": day}
            used = await _added(connection, usage.c.bootstraps, row, work.bootstraps, self.max_bootstraps(tenant))
            if used is not None:
                self._check(tenant, used, work.bootstraps)
            row["model"] = work.model
            given = await _added(connection, answers.c.answers, row, work.answers, self.max_answers(tenant))
            if given is not None:
                self._check_answers(tenant, work, given)

    def _check(self, tenant: Tenant, used: int, bootstraps: int) -> None:
        limit = self.max_bootstraps(tenant)
        if used + bootstraps > limit:
            raise QuotaError(
                f"this request needs {bootstraps} bootstraps; {used} of today's {limit} are used or waiting, they begin again at midnight UTC",
                retry_after=seconds_to_midnight(),
            )

    def _check_answers(self, tenant: Tenant, work: DayWork, given: int) -> None:
        limit = self.max_answers(tenant)
        if given + work.answers > limit:
            raise QuotaError(
                f"this request asks for {work.answers} answers of model '{work.model}'; {given} of today's {limit} are given or waiting, "
                "they begin again at midnight UTC",
                retry_after=seconds_to_midnight(),
            )

    async def _used(self, tenant: str, day: str) -> int:
        """Returns at once, without another task between, when the day is known."""
        key = (tenant, day)
        if not self._alone:
            return await self._stored_bootstraps(key)
        if key not in self._bootstraps:
            self._bootstraps = {known: count for known, count in self._bootstraps.items() if known[1] == day}
            async with self._flushing:  # nothing is on its way between memory and database
                stored = await self._stored_bootstraps(key)
                self._bootstraps.setdefault(key, stored + self._pending.get(key, _zeros())["bootstraps"])
        return self._bootstraps[key]

    async def _stored_bootstraps(self, day: Day) -> int:
        query = select(usage.c.bootstraps).where(usage.c.tenant == day[0], usage.c.day == day[1])
        async with self._database.read() as connection:
            return int((await connection.execute(query)).scalar() or 0)

    def admission(self, tenant: Tenant, count: int) -> Admission:
        """Admits, in the transaction that stores something of this size: the tenant's row is locked, so that no two count the same room.

        Raises there:
            QuotaError: over the limit, which is read again.
            UnauthorisedError: the tenant was removed.
        """

        async def admit(connection: AsyncConnection) -> None:
            row = select(tenants.c.max_bytes).where(tenants.c.id == tenant.name).with_for_update()
            tenant_row = (await connection.execute(row)).one_or_none()
            if tenant_row is None:
                raise UnauthorisedError("the tenant of this API key was removed")
            limit = self._settings.tenant_bytes if tenant_row.max_bytes is None else tenant_row.max_bytes
            _check_bytes(sum((await _stored_bytes(connection, tenant.name)).values()), count, limit)

        return admit

    async def require_bytes(self, tenant: Tenant, count: int) -> None:
        """Requires room for bytes before anything is written; `admission` decides."""
        _check_bytes(sum((await self.stored_bytes(tenant.name)).values()), count, self.max_bytes(tenant))

    async def stored_bytes(self, tenant: str) -> dict[str, int]:
        async with self._database.read() as connection:
            return await _stored_bytes(connection, tenant)

    async def report(self, tenant: Tenant) -> dict[str, Any]:
        try:
            await self.flush()
        except Exception as error:  # what this service counted in the last second is missing then
            if not is_full(error):
                raise
        stored = await self.stored_bytes(tenant.name)
        days = select(usage).where(usage.c.tenant == tenant.name).order_by(usage.c.day.desc()).limit(_DAYS_KEPT)
        states = select(jobs.c.state, func.count()).where(jobs.c.tenant == tenant.name).group_by(jobs.c.state)
        async with self._database.read() as connection:
            by_day = (await connection.execute(days)).all()
            by_state = (await connection.execute(states)).all()
        return {
            "tenant": tenant.name,
            "bytes_stored": {**stored, "total": sum(stored.values())},
            "bootstraps_today": await self._used(tenant.name, today()),
            "answers_today": await self._answers.of_day(tenant.name, today()),
            "days": [{"day": row.day, **{name: getattr(row, name) for name in COUNTERS}} for row in by_day],
            "jobs": {str(state): int(count) for state, count in by_state},
            "limits": {
                "bytes": self.max_bytes(tenant),
                "bootstraps_per_day": self.max_bootstraps(tenant),
                "answers_per_day": self.max_answers(tenant),
                "queue": self.max_queue(tenant),
            },
        }


def _zeros() -> dict[str, int]:
    return dict.fromkeys(COUNTERS, 0)


async def _added(
    connection: AsyncConnection, counter: Column[Any], row: dict[str, str], amount: int, limit: int
) -> int | None:
    """Adds to a counter of a row, which is made where there is none, unless it would pass the limit: then what it is."""
    table = counter.table
    place = and_(*(table.c[name] == value for name, value in row.items()))
    charge = update(table).where(place, counter + amount <= limit).values({counter: counter + amount})
    for _ in range(2):  # the second time there is a row
        if (await connection.execute(charge)).rowcount:
            return None
        with contextlib.suppress(IntegrityError):
            async with connection.begin_nested():
                zeros = {column.name: 0 for column in table.c if not column.primary_key}
                await connection.execute(insert(table).values(**row, **zeros))
    return int((await connection.execute(select(counter).where(place))).scalar() or 0)


async def _store(connection: AsyncConnection, tenant: str, day: str, amounts: dict[str, int]) -> None:
    place = (usage.c.tenant == tenant) & (usage.c.day == day)
    added = {name: usage.c[name] + amount for name, amount in amounts.items()}
    updated = await connection.execute(update(usage).where(place).values(**added))
    if not updated.rowcount:
        await connection.execute(usage.insert().values(tenant=tenant, day=day, **amounts))


async def _stored_bytes(connection: AsyncConnection, tenant: str) -> dict[str, int]:
    return (await stored_bytes_by_tenant(connection, [tenant]))[tenant]


async def stored_bytes_by_tenant(connection: AsyncConnection, names: list[str]) -> dict[str, dict[str, int]]:
    """Returns stored bytes. Keys count from the moment their upload is opened, inputs while a job waits or runs, results from the acceptance of
    their job on."""
    waiting = jobs.c.state.in_(("queued", "running"))
    sums = {
        "keys": select(evaluation_keys.c.tenant, func.sum(evaluation_keys.c.bytes)),
        "inputs": select(jobs.c.tenant, func.sum(jobs.c.input_bytes)).where(waiting),
        "results": select(jobs.c.tenant, func.sum(jobs.c.result_bytes)),
        "expected_results": select(jobs.c.tenant, func.sum(jobs.c.expected_bytes)).where(waiting),
    }
    stored_bytes = {name: dict.fromkeys(sums, 0) for name in names}
    for kind, query in sums.items():
        tenant = query.selected_columns[0]
        for name, count in await connection.execute(query.where(tenant.in_(names)).group_by(tenant)):
            stored_bytes[name][kind] = int(count or 0)
    return stored_bytes


def _check_bytes(stored: int, count: int, limit: int) -> None:
    if stored + count > limit:
        raise QuotaError(
            f"this needs {count} bytes; {stored} of {limit} are taken, delete keys or finished jobs first",
            retry_after=_BYTES_RETRY_SECONDS,
        )
