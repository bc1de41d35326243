"""The queue in the database: work is taken by workers, charged to tenants, ended once.

A call is a request whose client waits; a job is a row of its own table. Every change names the worker and the attempt that it expects, so that
a worker that was taken for dead cannot write over another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.database.connection import Database
from cloakwork.api.engine.messages import Done, End, Failed
from cloakwork.api.errors import EngineLostError
from cloakwork.api.service.fleet.backlog import Out
from cloakwork.api.service.fleet.members import BEATS, NOW
from cloakwork.api.service.fleet.notices import DROPPED, WORK, Call, answers, end_of_row, notify, outcome_text
from cloakwork.api.service.fleet.turns import NO_LONG_RUNS, TIME_OF_CALLS, Head, LongRuns, Pick, Turns, choose, correct
from cloakwork.api.service.jobs.store import Job
from cloakwork.api.service.scoring.waiting import Line
from cloakwork.api.service.scoring.work import level_of

HEADS: Final = 3  # first rows of each tenant that a worker chooses among
PATIENCE_SECONDS: Final = 0.5  # that work waits for the worker which has its key, about an expansion


def _tenants(name: str, table: str, waiting: str) -> str:
    """Returns those with something waiting, one probe of the index for each."""
    first = f"SELECT min(tenant) FROM {table} WHERE {waiting}"
    rest = f"SELECT (SELECT min(tenant) FROM {table} WHERE {waiting} AND tenant > {name}.tenant) FROM {name}"
    return f"{name}(tenant) AS (({first}) UNION ALL {rest} WHERE {name}.tenant IS NOT NULL)"


# A row whose key lies at another live worker, and not here, is left to that one while it is young. The hosts' clocks differ: a job dated in the
# future is not young.
_MAY = f"""
w.program_digest = ANY(:digests) AND (
    abs({NOW} - w.created_at) > :patience
    OR EXISTS (SELECT 1 FROM resident_keys r WHERE r.evaluation_key = w.evaluation_key AND r.node = :me)
    OR NOT EXISTS (
        SELECT 1 FROM resident_keys r JOIN nodes n ON n.id = r.node WHERE r.evaluation_key = w.evaluation_key AND n.id <> :me
        AND NOT n.draining AND n.{BEATS}))
"""

_COLUMNS = "w.id, w.tenant, w.evaluation_key, w.program_digest, w.seconds, w.attempts, w.created_at, w.turn_time"

HEADS_QUERY: Final = f"""
WITH RECURSIVE {_tenants("c", "calls", "state = 'queued'")}, {_tenants("j", "jobs", "state = 'queued' AND node = ''")}
SELECT h.*, false AS is_job FROM c CROSS JOIN LATERAL (
    SELECT {_COLUMNS}, 10 AS priority FROM calls w WHERE w.state = 'queued' AND w.tenant = c.tenant AND {_MAY}
    ORDER BY w.created_at LIMIT :heads) h
UNION ALL
SELECT h.*, true AS is_job FROM j CROSS JOIN LATERAL (
    SELECT {_COLUMNS}, w.priority FROM jobs w WHERE w.state = 'queued' AND w.node = '' AND w.tenant = j.tenant AND {_MAY}
    ORDER BY w.priority DESC, w.created_at LIMIT :heads) h
"""

_TAKE_CALLS = """
UPDATE calls SET state = 'leased', worker = :me, attempts = attempts + 1 WHERE id IN (
    SELECT id FROM calls WHERE state = 'queued' AND tenant = :tenant AND evaluation_key = :key AND program_digest = :digest
    AND attempts <= :attempts ORDER BY id <> :id, created_at LIMIT :count FOR UPDATE SKIP LOCKED)
RETURNING *
"""

_TAKE_JOBS = """
UPDATE jobs SET node = :me WHERE id IN (
    SELECT id FROM jobs WHERE state = 'queued' AND node = '' AND tenant = :tenant AND evaluation_key = :key
    AND program_digest = :digest AND priority = :priority ORDER BY id <> :id, created_at LIMIT :count FOR UPDATE SKIP LOCKED)
RETURNING *
"""

_COMING = """
INSERT INTO resident_keys (evaluation_key, node) SELECT unnest(CAST(:keys AS varchar[])), :me ON CONFLICT DO NOTHING
"""

# Of all workers one is for short runs, where there are several tenants who may send some.
_LONG_SLOTS = f"""
SELECT GREATEST(1, (SELECT COALESCE(sum(GREATEST(1, workers)), 0) FROM nodes WHERE role <> 'web' AND NOT draining AND {BEATS})
        - (SELECT CASE WHEN min(tenant) = max(tenant) THEN 0 ELSE 1 END FROM evaluation_keys))
    - (SELECT count(*) FROM calls WHERE state = 'leased' AND seconds > :long)
    - (SELECT count(*) FROM jobs WHERE state IN ('queued', 'running') AND node <> '' AND seconds > :long)
"""

_SHORT_WORKERS = f"""
SELECT (SELECT COALESCE(sum(workers), 0) FROM nodes WHERE role <> 'web' AND NOT draining AND {BEATS})
    > (SELECT count(*) FROM calls WHERE state = 'leased' AND seconds > :long)
    + (SELECT count(*) FROM jobs WHERE state IN ('queued', 'running') AND node <> '' AND seconds > :long)
"""

# Workers that choose at the same time would choose the same rows, and all but one go away with nothing.
# One that freezes here holds up nobody for long.
_ONE_AT_A_TIME = """
SELECT set_config('idle_in_transaction_session_timeout', '3s', true), set_config('lock_timeout', '3s', true), pg_advisory_xact_lock(7061205)
"""

_POST = f"""
INSERT INTO calls (id, tenant, web, model, version, program_digest, evaluation_key, samples, seconds, state, worker, attempts,
    created_at, turn_time, input)
VALUES (:id, :tenant, :web, :model, :version, :program_digest, :evaluation_key, :samples, :seconds, 'queued', '', 0, {NOW},
    {TIME_OF_CALLS}, :input)
"""

_LINES = """
SELECT tenant, priority, seconds > :long AS long, count(*)::int AS row_count, sum(seconds) AS seconds FROM (
    SELECT tenant, 10 AS priority, seconds FROM calls WHERE state = 'queued'
    UNION ALL
    SELECT tenant, priority, seconds FROM jobs WHERE state = 'queued' AND node = ''
) AS rows GROUP BY 1, 2, 3
"""

_OUT = """
SELECT id, worker AS node, tenant, evaluation_key, program_digest, false AS is_job, seconds, CAST(NULL AS float) AS started_at
FROM calls WHERE state = 'leased'
UNION ALL
SELECT id, node, tenant, evaluation_key, program_digest, true, seconds, started_at
FROM jobs WHERE state IN ('queued', 'running') AND node <> ''
"""

_ALIVE = f"SELECT id FROM nodes WHERE {BEATS} UNION SELECT unnest(CAST(:heard AS varchar[]))"

_ANYTHING_LOST = f"""
SELECT EXISTS (SELECT 1 FROM calls WHERE web NOT IN ({_ALIVE}) OR (state = 'leased' AND worker NOT IN ({_ALIVE})))
    OR EXISTS (SELECT 1 FROM jobs WHERE state IN ('queued', 'running') AND node <> '' AND node NOT IN ({_ALIVE}))
"""


@dataclass(frozen=True)
class Taken:
    calls: list[Call]
    jobs: list[Job]

    def __len__(self) -> int:
        return len(self.calls) + len(self.jobs)


class WorkQueue:
    def __init__(self, database: Database, node: str, silent_seconds: float, max_attempts: int) -> None:
        self._database, self._node = database, node
        self._silent, self._max_attempts = silent_seconds, max_attempts

    # --- web processes ---

    async def post(self, call: Call) -> None:
        values = {name: value for name, value in call.__dict__.items() if name != "attempts"}
        async with self._database.write() as connection:
            await connection.execute(text(_POST), values)
            await notify(connection, WORK)

    async def job_waits(self) -> None:
        async with self._database.write() as connection:
            await notify(connection, WORK)

    async def dropped(self, identity: str) -> None:
        """Marks a job that is cancelled: whoever runs it stops."""
        async with self._database.write() as connection:
            await notify(connection, DROPPED, identity)

    async def withdraw(self, identity: str) -> bool:
        """Withdraws a call whose client is gone. Whether the call had not begun; one that is not there never did."""
        async with self._database.write() as connection:
            row = (
                await connection.execute(text("DELETE FROM calls WHERE id = :id RETURNING state"), {"id": identity})
            ).first()
            await notify(connection, DROPPED, identity)
        return row is None or row.state == "queued"

    async def collect(self, identities: list[str]) -> list[End]:
        """Returns the ends of calls among these, which are rows no more."""
        query = "DELETE FROM calls WHERE id = ANY(:ids) AND state IN ('done', 'failed') RETURNING id, outcome, output, worker"
        async with self._database.write() as connection:
            rows = (await connection.execute(text(query), {"ids": identities})).all()
        return [end_of_row(row) for row in rows]

    async def existing(self, identities: list[str]) -> set[str]:
        async with self._database.read() as connection:
            rows = await connection.execute(text("SELECT id FROM calls WHERE id = ANY(:ids)"), {"ids": identities})
            return {row.id for row in rows.all()}

    async def waiting(self, long_seconds: float) -> tuple[list[Line], list[Out]]:
        """Returns rows that wait, and rows that workers have."""
        async with self._database.read() as connection:
            lines = (await connection.execute(text(_LINES), {"long": long_seconds})).all()
            out = (await connection.execute(text(_OUT))).all()
        return (
            [Line(r.tenant, r.priority, r.long, r.row_count, float(r.seconds)) for r in lines],
            [
                Out(r.id, r.node, (r.is_job, r.tenant, r.evaluation_key, r.program_digest), r.seconds, r.started_at)
                for r in out
            ],
        )

    async def calls_waiting(self) -> int:
        async with self._database.read() as connection:
            return int(
                (await connection.execute(text("SELECT count(*) FROM calls WHERE state = 'queued'"))).scalar_one()
            )

    # --- workers ---

    async def take(
        self,
        digests: list[str],
        slots: int,
        idle: bool,
        long: LongRuns = NO_LONG_RUNS,
        may: Callable[[Head], bool] = lambda _: True,
    ) -> Taken:
        """Leases work for `slots` runs, of models that this worker has; `long`: as far as this worker goes; `may`: what it can run now."""
        calls: list[Call] = []
        jobs: list[Job] = []
        async with self._database.write() as connection:
            await connection.execute(text(_ONE_AT_A_TIME))
            heads = [head for head in await self._heads(connection, digests) if may(head)]
            turns = await Turns.read(connection, heads) if heads else Turns()
            heads = [replace(head, turn_time=turns.begin_at(head)) for head in heads]
            if any(head.seconds > long.seconds for head in heads):
                long = replace(long, most=min(long.most, await self._long_slots(connection, long.seconds)))
            for pick in choose(heads, turns.clocks, slots, self._max_attempts - 1, idle, long):
                rows = await self._rows(connection, pick)
                if rows:
                    turns.charge(pick, sum(row.seconds for row in rows))
                if pick.head.is_job:
                    jobs += [Job(**row._mapping) for row in rows]
                else:
                    calls += [Call.of_row(row) for row in rows]
            await turns.write(connection)
            keys = sorted({call.evaluation_key for call in calls} | {job.evaluation_key for job in jobs})
            if keys:  # at once: what comes with the same key meanwhile is left to this worker
                await connection.execute(text(_COMING), {"me": self._node, "keys": keys})
        return Taken(calls, jobs)

    async def _long_slots(self, connection: AsyncConnection, seconds: float) -> int:
        """That more may begin, of all workers together."""
        return int(
            (await connection.execute(text(_LONG_SLOTS), {"long": seconds, "silent": self._silent})).scalar_one()
        )

    async def _heads(self, connection: AsyncConnection, digests: list[str]) -> list[Head]:
        values = {
            "digests": digests,
            "me": self._node,
            "silent": self._silent,
            "patience": PATIENCE_SECONDS,
            "heads": HEADS,
        }
        rows = (await connection.execute(text(HEADS_QUERY), values)).all()
        return [Head(**row._mapping) for row in rows]

    async def _rows(self, connection: AsyncConnection, pick: Pick) -> list[Any]:
        head = pick.head
        values: dict[str, Any] = {
            "me": self._node,
            "tenant": head.tenant,
            "key": head.evaluation_key,
            "digest": head.program_digest,
            "id": head.id,
            "count": pick.count,
        }
        if head.is_job:
            return list((await connection.execute(text(_TAKE_JOBS), {**values, "priority": head.priority})).all())
        # Those on their last attempt are nobody's kin.
        values["attempts"] = head.attempts if pick.count == 1 else max(head.attempts, self._max_attempts - 2)
        return list((await connection.execute(text(_TAKE_CALLS), values)).all())

    async def short_workers(self, long_seconds: float) -> bool:
        """Whether some worker of all has no long run."""
        values = {"long": long_seconds, "silent": self._silent}
        async with self._database.read() as connection:
            return bool((await connection.execute(text(_SHORT_WORKERS), values)).scalar())

    async def anything_waits(self) -> bool:
        query = """SELECT EXISTS (SELECT 1 FROM calls WHERE state = 'queued')
            OR EXISTS (SELECT 1 FROM jobs WHERE state = 'queued' AND node = '')"""
        async with self._database.read() as connection:
            return bool((await connection.execute(text(query))).scalar())

    async def end(self, call: Call, end: End) -> bool:
        """Ends a call. False when it is this worker's no more."""
        query = """UPDATE calls SET state = :state, outcome = :outcome, output = :output, input = NULL
            WHERE id = :id AND worker = :me AND attempts = :attempts AND state = 'leased'"""
        values = {
            "state": "done" if isinstance(end, Done) else "failed",
            "outcome": outcome_text(end),
            "output": (end.body or None) if isinstance(end, Done) else None,
            "id": call.id,
            "me": self._node,
            "attempts": call.attempts,
        }
        async with self._database.write() as connection:
            ended = bool((await connection.execute(text(query), values)).rowcount)
            if ended:
                await notify(connection, answers(call.web), call.id)
            busy = (end.busy_seconds if isinstance(end, Done) else None) or 0.0
            await correct(connection, {(0, call.tenant): busy - call.seconds})
        return ended

    async def charge(self, priority: int, tenant: str, seconds: float) -> None:
        """Charges what a job took beyond its estimate."""
        async with self._database.write() as connection:
            await correct(connection, {(level_of(priority), tenant): seconds})

    async def give_back(self, calls: list[Call], jobs: list[str]) -> None:
        """Gives back what has not begun, without counting the attempt."""
        back: dict[tuple[int, str], float] = defaultdict(float)
        async with self._database.write() as connection:
            query = """UPDATE calls SET state = 'queued', worker = '', attempts = attempts - 1
                WHERE id = :id AND worker = :me AND attempts = :attempts AND state = 'leased'"""
            for call in calls:
                values = {"id": call.id, "me": self._node, "attempts": call.attempts}
                if (await connection.execute(text(query), values)).rowcount:
                    back[0, call.tenant] -= call.seconds
            query = "UPDATE jobs SET node = '' WHERE id = ANY(:ids) AND node = :me AND state = 'queued' RETURNING tenant, priority, seconds"
            for row in (await connection.execute(text(query), {"ids": jobs, "me": self._node})).all():
                back[level_of(row.priority), row.tenant] -= row.seconds
            await correct(connection, back)
            await notify(connection, WORK)

    async def held(self, identities: list[str]) -> set[str]:
        """Returns those calls that are still this worker's."""
        query = "SELECT id FROM calls WHERE id = ANY(:ids) AND worker = :me AND state = 'leased'"
        async with self._database.read() as connection:
            rows = await connection.execute(text(query), {"ids": identities, "me": self._node})
            return {row.id for row in rows.all()}

    async def key_elsewhere(self, key: str) -> bool:
        """Whether another worker has it."""
        query = f"""SELECT EXISTS (SELECT 1 FROM resident_keys r JOIN nodes n ON n.id = r.node WHERE r.evaluation_key = :key AND n.id <> :me
            AND NOT n.draining AND n.{BEATS})"""
        async with self._database.read() as connection:
            cursor = await connection.execute(text(query), {"key": key, "me": self._node, "silent": self._silent})
            return bool(cursor.scalar())

    # --- anybody ---

    async def anything_lost(self, heard: list[str]) -> bool:
        """Whether `recover` has something to do."""
        values = {"silent": self._silent, "heard": heard}
        async with self._database.read() as connection:
            return bool((await connection.execute(text(_ANYTHING_LOST), values)).scalar())

    async def recover(self, heard: Sequence[str] = (), *, of_this_node: bool = False) -> tuple[int, list[Job]]:
        """Lets what silent processes had wait again, or fail if it has failed too often; `of_this_node`: this one's, which begins.
        Who was `heard` is not silent, whatever the database's clock says.

        Returns: how many rows changed; the jobs among them that have failed.
        """
        gone = "= :me" if of_this_node else f"NOT IN ({_ALIVE})"
        values = {"me": self._node} if of_this_node else {"silent": self._silent, "heard": list(heard)}
        async with self._database.write() as connection:
            count = (await connection.execute(text(f"DELETE FROM calls WHERE web {gone}"), values)).rowcount
            jobs, lost = await self._lose(connection, gone, values)
            count += lost
            count += (
                await connection.execute(
                    text(f"UPDATE jobs SET node = '' WHERE state = 'queued' AND node <> '' AND node {gone}"),
                    values,
                )
            ).rowcount
            if count:
                await notify(connection, WORK)
        return int(count), jobs

    async def lose(self, identities: set[str]) -> list[Job]:
        """Gives back what an engine that hung had. Returns the jobs among them that have failed too often."""
        async with self._database.write() as connection:
            mine = "= :me AND id = ANY(:ids)"
            jobs, _ = await self._lose(connection, mine, {"me": self._node, "ids": sorted(identities)})
            await notify(connection, WORK)
        return jobs

    async def _lose(self, connection: AsyncConnection, gone: str, values: dict[str, Any]) -> tuple[list[Job], int]:
        """Lets work of workers that are `gone` wait again, or fail after too many attempts: those jobs, and the number of rows."""
        most = {**values, "most": self._max_attempts}
        lost = f"the processes that ran this request died, {self._max_attempts} times; tell the operator"
        failed_end = Failed("", EngineLostError.code, EngineLostError.http_status, lost)
        failed = await connection.execute(
            text(
                f"UPDATE calls SET state = 'failed', outcome = :outcome, input = NULL WHERE state = 'leased' AND worker {gone} "
                "AND attempts >= :most RETURNING id, web"
            ),
            {**most, "outcome": outcome_text(failed_end)},
        )
        ended = failed.all()
        for row in ended:
            await notify(connection, answers(row.web), row.id)
        query = f"UPDATE calls SET state = 'queued', worker = '' WHERE state = 'leased' AND worker {gone}"
        again = (await connection.execute(text(query), values)).rowcount
        jobs = (
            await connection.execute(
                text(
                    f"UPDATE jobs SET node = '', state = CASE WHEN attempts >= :most THEN 'failed' ELSE 'queued' END, "
                    f"finished_at = CASE WHEN attempts >= :most THEN CAST({NOW} AS float) END, "
                    "error_code = CASE WHEN attempts >= :most THEN 'engine_lost' END, "
                    "error_message = CASE WHEN attempts >= :most THEN CAST(:text AS text) END "
                    f"WHERE state = 'running' AND node {gone} RETURNING *"
                ),
                {**most, "text": lost},
            )
        ).all()
        return [Job(**row._mapping) for row in jobs if row.state == "failed"], len(ended) + again + len(jobs)

    async def sweep(self) -> None:
        """Deletes clocks of tenants that are far behind the time of all, which owe nothing."""
        query = """DELETE FROM turns USING turns AS time WHERE time.tenant = '' AND time.level = turns.level AND turns.tenant <> ''
            AND turns.clock < time.clock - 3600"""
        async with self._database.write(chore=True) as connection:
            await connection.execute(text(query))
