"""Jobs as rows, and their events. Every change of state is one statement that names the state it expects, so that none is lost or made twice."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database, known_rows
from cloakwork.api.database.tables import jobs as table
from cloakwork.api.database.tables import nodes, turns
from cloakwork.api.errors import UnknownJobError
from cloakwork.api.service.clock import deadlines, now, retention
from cloakwork.api.service.scoring.work import level_of
from cloakwork.api.service.tenants.usage import Admission

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATES: Final = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
_AT_ONCE: Final = 1000  # rows that one look of housekeeping takes
OVER: Final = (DONE, FAILED, CANCELLED)


@dataclass(frozen=True)
class JobProgress:
    done: int
    total: int
    eta_seconds: float | None


class JobEvents:
    """Latest progress of running jobs in this process, and a bell for each watcher."""

    def __init__(self) -> None:
        self._progress: dict[str, JobProgress] = {}
        self._bells: dict[str, set[asyncio.Event]] = defaultdict(set)

    def progress(self, job: str) -> JobProgress | None:
        return self._progress.get(job)

    def heard(self, job: str, progress: JobProgress | None, *, over: bool = False) -> None:
        """Handles progress of a job, here or at another process, or a change of its state in the database."""
        if progress is not None:
            self._progress[job] = progress
        elif over:
            self._progress.pop(job, None)
        self._ring(job)

    @contextmanager
    def watch(self, job: str) -> Iterator[asyncio.Event]:
        bell = asyncio.Event()
        self._bells[job].add(bell)
        try:
            yield bell
        finally:
            self._bells[job].discard(bell)
            if not self._bells[job]:
                del self._bells[job]

    def _ring(self, job: str) -> None:
        for bell in self._bells.get(job, ()):
            bell.set()


@dataclass(frozen=True)
class Job:
    id: str
    tenant: str
    model: str
    version: str
    program_digest: str
    evaluation_key: str
    state: str
    priority: int
    samples: int
    bootstraps: int
    input_bytes: int
    expected_bytes: int
    idempotency_key: str | None
    request_sha256: str
    node: str
    attempts: int
    created_at: float
    deadline_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    run_seconds: float | None = None
    result_name: str | None = None
    result_bytes: int | None = None
    result_sha256: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    seconds: float = 0.0
    turn_time: float = 0.0  # where the time of its level stood when it was queued

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def input_name(self) -> str:
        """The name of the input in the storage."""
        return f"inputs/{self.id}"


class JobStore:
    """`node` is this service: only it runs the jobs that carry its name."""

    def __init__(self, database: Database, node: str) -> None:
        self._database = database
        self.node = node

    async def add(self, job: Job, admit: Admission) -> bool:
        """Adds a job. False when the tenant has used this idempotency key before."""
        try:
            async with self._database.write() as connection:
                await admit(connection)
                await connection.execute(insert(table).values(**{**job.__dict__, "turn_time": _turn_time(job)}))
        except IntegrityError:
            return False
        return True

    async def get(self, tenant: str, identity: str) -> Job:
        return await self._one(table.c.id == identity, table.c.tenant == tenant, name=identity)

    async def find(self, identity: str) -> Job:
        """Finds a job, whosever it is."""
        return await self._one(table.c.id == identity, name=identity)

    async def by_idempotency_key(self, tenant: str, key: str) -> Job | None:
        try:
            return await self._one(table.c.tenant == tenant, table.c.idempotency_key == key, name=key)
        except UnknownJobError:
            return None

    async def _one(self, *where: Any, name: str) -> Job:
        async with self._database.read() as connection:
            row = (await connection.execute(select(table).where(*where))).one_or_none()
        if row is None:
            raise UnknownJobError(
                f"there is no job '{name}'; it was never accepted, was deleted, or is past its retention"
            )
        return _job(row)

    async def of_tenant(self, tenant: str, limit: int) -> list[Job]:
        query = (
            select(table).where(table.c.tenant == tenant).order_by(table.c.created_at.desc(), table.c.id).limit(limit)
        )
        async with self._database.read() as connection:
            return [_job(row) for row in (await connection.execute(query)).all()]

    async def counts(self) -> dict[str, int]:
        query = select(table.c.state, func.count()).group_by(table.c.state)
        async with self._database.read() as connection:
            counts = {str(state): int(count) for state, count in (await connection.execute(query)).all()}
        return {state: counts.get(state, 0) for state in STATES}

    # --- changes of state ---

    async def claim(self, identity: str, attempts: int) -> bool:
        """Claims a job that is queued, or running in an engine that died, after this many attempts -> running, with one more."""
        return await self._change(
            identity, (QUEUED, RUNNING), attempts=attempts, state=RUNNING, started_at=now(), counted=attempts + 1
        )

    async def finish(self, identity: str, attempts: int, **result: Any) -> bool:
        """Ends the attempt of this number with success."""
        return await self._change(identity, (RUNNING,), attempts=attempts, state=DONE, finished_at=now(), **result)

    async def has_result(self, identity: str, name: str) -> bool:
        """Whether it is done, with the result of this name."""
        query = select(table.c.id).where(table.c.id == identity, table.c.state == DONE, table.c.result_name == name)
        async with self._database.read() as connection:
            return (await connection.execute(query)).first() is not None

    async def fail(
        self, identity: str, code: str, message: str, *, attempts: int | None = None, of_this_node: bool = True
    ) -> bool:
        """Ends a job with an error. `of_this_node`: only what this service has."""
        values: dict[str, Any] = {"state": FAILED, "finished_at": now(), "error_code": code, "error_message": message}
        return await self._change(identity, (QUEUED, RUNNING), of_this_node=of_this_node, attempts=attempts, **values)

    async def wait(self, identity: str, attempts: int, counted: int, node: str) -> bool:
        """Returns a job to the queue: its model cannot be served now: after this many attempts, of which some count, queued again, at this service
        or, without a name, at any."""
        expected = (QUEUED, RUNNING)
        return await self._change(identity, expected, attempts=attempts, counted=counted, state=QUEUED, node=node)

    async def cancel(self, identity: str) -> bool:
        """Cancels a job by its owner, through whichever service it asked."""
        return await self._change(identity, (QUEUED, RUNNING), of_this_node=False, state=CANCELLED, finished_at=now())

    async def _change(
        self,
        identity: str,
        expected: tuple[str, ...],
        of_this_node: bool = True,
        attempts: int | None = None,
        counted: int | None = None,
        **values: Any,
    ) -> bool:
        where = [table.c.id == identity, table.c.state.in_(expected)]
        if attempts is not None:
            where.append(table.c.attempts == attempts)
        if counted is not None:
            values["attempts"] = counted
        if of_this_node:
            where.append(table.c.node == self.node)
        async with self._database.write() as connection:
            return bool((await connection.execute(update(table).where(*where).values(**values))).rowcount)

    async def delete(self, identity: str) -> None:
        async with self._database.write() as connection:
            await connection.execute(delete(table).where(table.c.id == identity))

    # --- after a restart, and over time ---

    async def heartbeat(self) -> None:
        async with self._database.write() as connection:
            updated = await connection.execute(update(nodes).where(nodes.c.id == self.node).values(heartbeat_at=now()))
            if not updated.rowcount:
                await connection.execute(insert(nodes).values(id=self.node, heartbeat_at=now()))

    async def last_heartbeat(self) -> float | None:
        """Returns the last heartbeat of any service."""
        async with self._database.read() as connection:
            last = (await connection.execute(select(func.max(nodes.c.heartbeat_at)))).scalar()
        return None if last is None else float(last)

    async def others_alive(self, silent_seconds: float) -> bool:
        """Whether another service has been heard of in that time."""
        other = (nodes.c.id != self.node) & _beats(silent_seconds)
        async with self._database.read() as connection:
            return (await connection.execute(select(nodes.c.id).where(other).limit(1))).first() is not None

    async def own_unfinished(self) -> list[Job]:
        """Returns at the start this node's jobs, which nothing runs now."""
        where = table.c.state.in_((QUEUED, RUNNING)) & (table.c.node == self.node)
        async with self._database.read() as connection:
            return [
                _job(row)
                for row in (await connection.execute(select(table).where(where).order_by(table.c.created_at))).all()
            ]

    async def adopt(self, silent_seconds: float) -> list[Job]:
        """Takes over the unfinished jobs of services that have not been heard of for so long."""
        alive = select(nodes.c.id).where(_beats(silent_seconds))
        orphaned = table.c.state.in_((QUEUED, RUNNING)) & (table.c.node != self.node) & table.c.node.not_in(alive)
        async with self._database.read() as connection:
            if (await connection.execute(select(table.c.id).where(orphaned).limit(1))).first() is None:
                return []
        async with self._database.write() as connection:
            rows = await connection.execute(
                update(table).where(orphaned).values(node=self.node, state=QUEUED).returning(table)
            )
            return [_job(row) for row in rows.all()]

    async def past_deadline(self) -> list[Job]:
        return await self._list_where(table.c.state.in_((QUEUED, RUNNING)), table.c.deadline_at < deadlines.now())

    async def past_retention(self, seconds: float) -> list[Job]:
        return await self._list_where(table.c.state.in_(OVER), table.c.finished_at < retention.now() - seconds)

    async def _list_where(self, *where: Any) -> list[Job]:
        query = select(table).where(*where).limit(_AT_ONCE)
        async with self._database.read(chore=True) as connection:
            return [_job(row) for row in (await connection.execute(query)).all()]

    async def mine(self, identities: list[str]) -> set[str]:
        """Returns those of the identities that this service has yet to end."""
        return await self.known(identities, table.c.state.in_((QUEUED, RUNNING)), table.c.node == self.node)

    async def unfinished(self, identities: list[str]) -> set[str]:
        """Returns those of the identities that still need their input."""
        return await self.known(identities, table.c.state.in_((QUEUED, RUNNING)))

    async def known(self, identities: list[str], *where: Any) -> set[str]:
        """Returns those of the identities that are rows."""
        return await known_rows(self._database, table.c.id, identities, *where)


def _turn_time(job: Job) -> ColumnElement[float]:
    """Where services share the work, which keep it in the database."""
    time = select(turns.c.clock).where(turns.c.level == level_of(job.priority), turns.c.tenant == "")
    return func.coalesce(time.scalar_subquery(), 0.0)


def _beats(silent_seconds: float) -> ColumnElement[bool]:
    """Returns one that beats in the future did before the clock was set back."""
    return nodes.c.heartbeat_at.between(now() - silent_seconds, now() + silent_seconds)


def _job(row: Row[Any]) -> Job:
    return Job(**row._mapping)
