"""Tenants, API keys, evaluation keys, jobs and models of the whole service, a page at a time: each begins after the last row of the one before."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, func, or_, select, tuple_
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import api_keys, evaluation_keys, jobs, tenants, usage
from cloakwork.api.metrics import Activity
from cloakwork.api.service.clock import now, today
from cloakwork.api.service.jobs.store import JobEvents
from cloakwork.api.service.keys.keys import READY
from cloakwork.api.service.models.folder import Place, version_order
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.service.tenants.usage import COUNTERS, Usage, most_answers, stored_bytes_by_tenant
from cloakwork.api.settings import Settings

T = TypeVar("T")
R = TypeVar("R")

_MOMENT: Final = struct.Struct(">d")
_API_KEY: Final = tuple(
    api_keys.c[name] for name in ("id", "tenant", "scopes", "created_at", "expires_at", "revoked_at")
)
_KEY: Final = tuple(
    evaluation_keys.c[name] for name in ("id", "tenant", "parameter_set", "bytes", "state", "created_at", "used_at")
)
_JOB: Final = tuple(
    jobs.c[name]
    for name in (
        *(
            "id",
            "tenant",
            "model",
            "version",
            "evaluation_key",
            "state",
            "priority",
            "samples",
            "bootstraps",
            "attempts",
        ),
        *("input_bytes", "result_bytes", "created_at", "deadline_at", "started_at", "finished_at", "run_seconds"),
        "error_code",
    )
)
_BETWEEN: Final = "/"  # name and version in a place among models; no name has one


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of rows, and where the next one begins; None: it is the last."""

    rows: list[T]
    next: str | None


def page_of(rows: Sequence[R], limit: int, shown: Callable[[R], T], place: Callable[[R], str]) -> Page[T]:
    """Makes a page of up to limit + 1 rows: the one too many says that there is another page."""
    more = len(rows) > limit
    return Page([shown(row) for row in rows[:limit]], place(rows[limit - 1]) if more else None)


def newest_first(
    query: Select[Any], moment: ColumnElement[float], identity: ColumnElement[str], after: str | None, limit: int
) -> Select[Any]:
    """Selects up to limit + 1 rows after that place."""
    if after is not None:
        query = query.where(tuple_(moment, identity) < tuple_(*_read(after)))
    return query.order_by(moment.desc(), identity.desc()).limit(limit + 1)


def place_of(moment: float, identity: str) -> str:
    """Returns 16 digits of the time and the identity, both hexadecimal."""
    return _MOMENT.pack(moment).hex() + identity


def _read(place: str) -> tuple[float, str]:
    return _MOMENT.unpack(bytes.fromhex(place[:16]))[0], place[16:]


class Listings:
    def __init__(
        self,
        settings: Settings,
        database: Database,
        models: Models,
        usage: Usage,
        dispatcher: Dispatcher,
        events: JobEvents,
        activity: Activity,
    ) -> None:
        self._settings = settings
        self._database = database
        self._models = models
        self._usage = usage
        self._dispatcher = dispatcher
        self._events = events
        self._activity = activity

    async def tenants(self, after: str | None, limit: int) -> Page[dict[str, Any]]:
        """Lists tenants by name, with what each has used of its limits until a second ago. Nothing is written: a full disk can be looked at."""
        query = select(tenants).order_by(tenants.c.id).limit(limit + 1)
        if after is not None:
            query = query.where(tenants.c.id > after)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
            names = [row.id for row in rows[:limit]]
            stored = await stored_bytes_by_tenant(connection, names)
            used = await _used_today(connection, names)
            most = await most_answers(connection, names, today())
            valid = await _valid_api_keys(connection, names)

        def shown(row: Row[Any]) -> dict[str, Any]:
            limits = (row.max_bytes, row.max_bootstraps_per_day, row.max_queue, row.max_answers_per_day)
            tenant = Tenant(row.id, frozenset(), *limits)
            return {
                "tenant": row.id,
                "created_at": row.created_at,
                "models": None if row.models is None else row.models.split(),
                "max_bytes": row.max_bytes,
                "max_bootstraps_per_day": row.max_bootstraps_per_day,
                "max_queue": row.max_queue,
                "max_answers_per_day": row.max_answers_per_day,
                "suspended": row.suspended,
                "limits": {
                    "bytes": self._usage.max_bytes(tenant),
                    "bootstraps_per_day": self._usage.max_bootstraps(tenant),
                    "answers_per_day": self._usage.max_answers(tenant),
                    "queue": self._usage.max_queue(tenant),
                },
                "bytes_stored": {**stored[row.id], "total": sum(stored[row.id].values())},
                "today": used.get(row.id, dict.fromkeys(COUNTERS, 0)),
                "most_answers_today": most.get(row.id, 0),
                "waiting": self._dispatcher.waiting_of(row.id),
                "api_keys": valid.get(row.id, 0),
            }

        return page_of(rows, limit, shown, lambda row: str(row.id))

    async def api_keys(self, tenant: str | None, after: str | None, limit: int) -> Page[dict[str, Any]]:
        """Lists API keys, the newest first; nothing that authenticates."""
        query = newest_first(select(*_API_KEY), api_keys.c.created_at, api_keys.c.id, after, limit)
        if tenant is not None:
            query = query.where(api_keys.c.tenant == tenant)

        def shown(row: Row[Any]) -> dict[str, Any]:
            expired = row.expires_at is not None and row.expires_at <= now()
            state = "revoked" if row.revoked_at is not None else "expired" if expired else "valid"
            return {**row._mapping, "scopes": row.scopes.split(), "state": state}

        return page_of(await self._rows(query), limit, shown, _place)

    async def keys(self, tenant: str | None, after: str | None, limit: int) -> Page[dict[str, Any]]:
        """Lists evaluation keys, the newest first."""
        query = newest_first(select(*_KEY), evaluation_keys.c.created_at, evaluation_keys.c.id, after, limit)
        if tenant is not None:
            query = query.where(evaluation_keys.c.tenant == tenant)
        resident = self._dispatcher.engines.resident_keys

        def shown(row: Row[Any]) -> dict[str, Any]:
            settings, ready = self._settings, row.state == READY
            lifetime = settings.key_retention_seconds if ready else settings.upload_retention_seconds
            return {**row._mapping, "expires_at": row.used_at + lifetime, "resident": row.id in resident}

        return page_of(await self._rows(query), limit, shown, _place)

    async def jobs(self, tenant: str | None, state: str | None, after: str | None, limit: int) -> Page[dict[str, Any]]:
        """Lists jobs, the newest first."""
        query = newest_first(select(*_JOB), jobs.c.created_at, jobs.c.id, after, limit)
        if tenant is not None:
            query = query.where(jobs.c.tenant == tenant)
        if state is not None:
            query = query.where(jobs.c.state == state)

        def shown(row: Row[Any]) -> dict[str, Any]:
            progress = self._events.progress(row.id) if row.state == "running" else None
            part = None if progress is None else {"done": progress.done, "total": progress.total}
            fields = dict(row._mapping)
            return {**fields, "key": fields.pop("evaluation_key"), "progress": part}

        return page_of(await self._rows(query), limit, shown, _place)

    def models(self, after: str | None, limit: int) -> Page[dict[str, Any]]:
        """Lists models by name and version, those that should be served and cannot be among them; what ran counts since this process began."""
        facts: dict[Place, dict[str, Any]] = {}
        for model, state in self._models.every():
            parameter_set = str(model.facts["parameter_set"])
            facts[model.name, model.version] = _model_facts(
                state, parameter_set=parameter_set, bootstraps=model.bootstraps
            )
        for place, fault in self._models.faults():
            facts[place] = _model_facts("unavailable", fault.reason)
        places = sorted(facts, key=_model_order)
        if after is not None:
            name, _, version = after.partition(_BETWEEN)
            places = [place for place in places if _model_order(place) > _model_order((name, version))]

        def shown(place: Place) -> dict[str, Any]:
            runs = self._activity.runs(*place)
            counts = {"runs": runs.count, "samples": runs.samples, "run_seconds": runs.seconds}
            return {"name": place[0], "version": place[1], **facts[place], **counts}

        return page_of(places[: limit + 1], limit, shown, _BETWEEN.join)

    async def _rows(self, query: Any) -> list[Row[Any]]:
        async with self._database.read() as connection:
            return list((await connection.execute(query)).all())


def _model_order(place: Place) -> tuple[str, tuple[bool, int, str]]:
    return place[0], version_order(place[1])


def _model_facts(state: str, reason: str = "", parameter_set: str = "", bootstraps: int = 0) -> dict[str, Any]:
    return {"state": state, "reason": reason, "parameter_set": parameter_set, "bootstraps": bootstraps}


def _place(row: Row[Any]) -> str:
    return place_of(row.created_at, row.id)


async def _used_today(connection: AsyncConnection, names: list[str]) -> dict[str, dict[str, int]]:
    query = select(usage).where(usage.c.day == today(), usage.c.tenant.in_(names))
    rows = (await connection.execute(query)).all()
    return {row.tenant: {name: getattr(row, name) for name in COUNTERS} for row in rows}


async def _valid_api_keys(connection: AsyncConnection, names: list[str]) -> dict[str, int]:
    unexpired = or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now())
    query = select(api_keys.c.tenant, func.count()).where(api_keys.c.tenant.in_(names), unexpired)
    rows = await connection.execute(query.where(api_keys.c.revoked_at.is_(None)).group_by(api_keys.c.tenant))
    return {str(name): int(count) for name, count in rows.all()}
