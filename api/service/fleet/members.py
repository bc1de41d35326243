"""The processes on one database: what they are, who is alive, whose keys are where. Times are the database's: hosts' clocks differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import text

from cloakwork.api.database.connection import Database

NOW: Final = "extract(epoch FROM clock_timestamp())"

_BEAT = f"""
INSERT INTO nodes (id, heartbeat_at, role, started_at, release, devices, workers, running, draining)
VALUES (:id, {NOW}, :role, {NOW}, :release, :devices, :workers, :running, :draining)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = {NOW}, role = :role, release = :release, devices = :devices, workers = :workers,
    running = :running, draining = :draining
"""

_ALIVE = f"""
SELECT id, role, release, devices, workers, running, draining, {NOW} - heartbeat_at AS age, {NOW} - started_at AS uptime
FROM nodes WHERE heartbeat_at > {NOW} - :silent ORDER BY id
"""


@dataclass(frozen=True)
class Facts:
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

    async def arrive(self, facts: Facts) -> None:
        """The first heartbeat; what an earlier process of this name said is forgotten."""
        async with self._database.write() as connection:
            await connection.execute(text("DELETE FROM nodes WHERE id = :id"), {"id": self.node})
            await connection.execute(text("DELETE FROM resident_keys WHERE node = :id"), {"id": self.node})
            await connection.execute(text(_BEAT), {"id": self.node, **asdict(facts)})
        self._published = set()

    async def beat(self, facts: Facts) -> None:
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

    async def publish(self, keys: set[str]) -> None:
        """Those that this worker's engine holds."""
        if keys == self._published:
            return
        async with self._database.write() as connection:
            await connection.execute(
                text("DELETE FROM resident_keys WHERE node = :id AND evaluation_key = ANY(:gone)"),
                {"id": self.node, "gone": sorted(self._published - keys)},
            )
            await connection.execute(
                text(
                    "INSERT INTO resident_keys (evaluation_key, node) SELECT unnest(CAST(:new AS varchar[])), :id ON CONFLICT DO NOTHING"
                ),
                {"id": self.node, "new": sorted(keys - self._published)},
            )
        self._published = set(keys)

    def forget_published(self) -> None:
        """The table may be empty: the database was started again."""
        self._published = set()

    async def sweep(self) -> None:
        """Rows of processes that have been silent for a day, and keys of those that are dead."""
        async with self._database.write() as connection:
            await connection.execute(text(f"DELETE FROM nodes WHERE heartbeat_at < {NOW} - 86400"))
            await connection.execute(
                text(
                    f"DELETE FROM resident_keys WHERE node NOT IN (SELECT id FROM nodes WHERE heartbeat_at > {NOW} - :silent)"
                ),
                {"silent": self.silent_seconds},
            )


def _plain(row: Any) -> dict[str, Any]:
    """PostgreSQL's decimals as floats."""
    return {**row, "age": float(row["age"]), "uptime": float(row["uptime"])}
