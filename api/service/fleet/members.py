"""The processes on one database: what they are, who is alive, whose keys are where. Times are the database's: hosts' clocks differ."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import text

from cloakwork.api.database.connection import Database

NOW: Final = "extract(epoch FROM clock_timestamp())"
BEATS: Final = f"heartbeat_at BETWEEN {NOW} - :silent AND {NOW} + :silent"
"""Of a process that is not silent. One that beats in the future did before the clock was set back."""

_BEAT = f"""
INSERT INTO nodes (id, heartbeat_at, role, started_at, release, devices, workers, running, draining)
VALUES (:id, {NOW}, :role, {NOW}, :release, :devices, :workers, :running, :draining)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = {NOW}, role = :role, release = :release, devices = :devices, workers = :workers,
    running = :running, draining = :draining
"""

_ALIVE = f"""
SELECT id, role, release, devices, workers, running, draining, {NOW} - heartbeat_at AS age, {NOW} - started_at AS uptime
FROM nodes WHERE {BEATS} ORDER BY id
"""


_BEATS = f"SELECT id, heartbeat_at, {NOW} - heartbeat_at AS age FROM nodes"
_PUBLISH_SECONDS: Final = 30.0  # after which rows that this process wrote are not believed to be there still
_AWAY_SECONDS: Final = 2.0  # between two looks; what is more was the database's, or this process's, time away


@dataclass(frozen=True)
class MemberFacts:
    role: str
    release: str
    devices: str = ""  # separated by spaces
    workers: int = 0
    running: int = 0
    draining: bool = False


@dataclass(frozen=True)
class Member:
    id: str
    role: str
    release: str
    devices: str
    workers: int
    running: int
    draining: bool
    age: float  # seconds since the heartbeat
    uptime: float

    @property
    def takes_work(self) -> bool:
        return self.role != "web" and not self.draining


class Members:
    def __init__(self, database: Database, node: str, silent_seconds: float) -> None:
        self._database = database
        self.node = node
        self.silent_seconds = silent_seconds
        self._published: set[str] = set()
        self._publish_whole_at = 0.0
        self._heard: dict[
            str, tuple[float, float]
        ] = {}  # the last heartbeat of each, and when it came, by the monotonic clock
        self._looked: float | None = None

    async def arrive(self, facts: MemberFacts) -> None:
        """Sends the first heartbeat; what an earlier process of this name said is forgotten."""
        async with self._database.write() as connection:
            await connection.execute(text("DELETE FROM nodes WHERE id = :id"), {"id": self.node})
            await connection.execute(text("DELETE FROM resident_keys WHERE node = :id"), {"id": self.node})
            await connection.execute(text(_BEAT), {"id": self.node, **asdict(facts)})
        self._published = set()

    async def beat(self, facts: MemberFacts) -> None:
        async with self._database.write() as connection:
            await connection.execute(text(_BEAT), {"id": self.node, **asdict(facts)})

    async def leave(self) -> None:
        async with self._database.write() as connection:
            for table, column in (("resident_keys", "node"), ("nodes", "id")):
                await connection.execute(text(f"DELETE FROM {table} WHERE {column} = :id"), {"id": self.node})

    async def alive(self) -> list[Member]:
        async with self._database.read() as connection:
            rows = await connection.execute(text(_ALIVE), {"silent": self.silent_seconds})
            return [Member(**_plain(row._mapping)) for row in rows.all()]

    async def heard(self) -> list[str]:
        """Returns processes whose heartbeat has changed within the time after which one is silent, by this process's clock: a database that was away
        or whose clock was set makes nobody dead. The first look believes the database."""
        async with self._database.read() as connection:
            rows = (await connection.execute(text(_BEATS))).all()
        moment = time.monotonic()
        away = 0.0 if self._looked is None else max(0.0, moment - self._looked - _AWAY_SECONDS)
        self._looked = moment
        before = {node: (beat, since + away) for node, (beat, since) in self._heard.items()}
        self._heard = {
            row.id: before[row.id]
            if row.id in before and before[row.id][0] == row.heartbeat_at
            else (row.heartbeat_at, moment if row.id in before else moment - max(0.0, float(row.age)))
            for row in rows
        }
        return [node for node, (_, since) in self._heard.items() if moment - since <= self.silent_seconds]

    async def publish(self, keys: set[str]) -> None:
        """Publishes the keys that this worker's engine holds; now and then all of them: others delete what they know of one that was silent."""
        whole = time.monotonic() >= self._publish_whole_at
        if keys == self._published and not whole:
            return
        which = (
            "evaluation_key <> ALL(CAST(:keys AS varchar[]))"
            if whole
            else "evaluation_key = ANY(CAST(:keys AS varchar[]))"
        )
        gone = sorted(keys if whole else self._published - keys)
        new = sorted(keys if whole else keys - self._published)
        insert = "INSERT INTO resident_keys (evaluation_key, node) SELECT unnest(CAST(:new AS varchar[])), :id ON CONFLICT DO NOTHING"
        async with self._database.write() as connection:
            delete = f"DELETE FROM resident_keys WHERE node = :id AND {which}"
            await connection.execute(text(delete), {"id": self.node, "keys": gone})
            await connection.execute(text(insert), {"id": self.node, "new": new})
        self._published = set(keys)
        if whole:
            self._publish_whole_at = time.monotonic() + _PUBLISH_SECONDS

    def forget_published(self) -> None:
        """Forgets what was published: the table may be empty, the database was started again."""
        self._publish_whole_at = 0.0

    async def sweep(self) -> None:
        """Deletes rows of processes that have been silent for a day, and keys of those that are dead."""
        async with self._database.write(chore=True) as connection:
            await connection.execute(text(f"DELETE FROM nodes WHERE heartbeat_at < {NOW} - 86400"))
            await connection.execute(
                text(f"DELETE FROM resident_keys WHERE node NOT IN (SELECT id FROM nodes WHERE {BEATS})"),
                {"silent": self.silent_seconds},
            )


def _plain(row: Any) -> dict[str, Any]:
    """Returns PostgreSQL's decimals as floats."""
    return {**row, "age": float(row["age"]), "uptime": float(row["uptime"])}
