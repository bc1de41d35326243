"""Clocks of tenants and the time of each level in the database, as `scoring/queue.py` has them in memory.

Each row that waits says where the time of its level stood when it was queued, from which its tenant goes on: the time may pass who waits.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.service.fleet.choice import Clocks, Head, Pick

TIME_OF_CALLS: Final = "COALESCE((SELECT clock FROM turns WHERE level = 0 AND tenant = ''), 0)"

_CORRECTED_SECONDS: Final = 1.0  # an estimate that was less wrong does not move the time: its row is everybody's

_CHARGE = """
INSERT INTO turns (level, tenant, clock) VALUES (:level, :tenant, CAST(:start AS float) + CAST(:seconds AS float))
ON CONFLICT (level, tenant) DO UPDATE SET clock = GREATEST(turns.clock, CAST(:start AS float)) + CAST(:seconds AS float)
"""

_TIME = """
INSERT INTO turns (level, tenant, clock, served, sharers) VALUES (:level, '', :clock, :served, :sharers)
ON CONFLICT (level, tenant) DO UPDATE SET clock = :clock, served = turns.served + :served - :seen, sharers = :sharers
"""

_CORRECT = "UPDATE turns SET served = served + CAST(:seconds AS float) / GREATEST(1, sharers) WHERE level = :level AND tenant = ''"


@dataclass
class Time:
    """The time of a level: `served` are the seconds of the last run, divided among those that waited, by which the next one moves it."""

    clock: float = 0.0
    served: float = 0.0
    sharers: float = 1.0

    def next(self, pick: Pick, seconds: float) -> Time:
        return Time(max(self.clock + self.served, pick.start), seconds / pick.sharers, pick.sharers)


@dataclass
class Turns:
    """The clocks that a worker reads while it has the lock of leases, and what it charges."""

    clocks: Clocks = field(default_factory=dict)
    times: dict[int, Time] = field(default_factory=dict)
    _charged: list[tuple[int, str, float, float]] = field(default_factory=list)
    _seen: dict[int, float] = field(default_factory=dict)  # seconds that were read, of levels whose time has moved

    @classmethod
    async def read(cls, connection: AsyncConnection, heads: list[Head]) -> Turns:
        tenants = sorted({head.tenant for head in heads} | {""})
        query = "SELECT * FROM turns WHERE tenant = ANY(:tenants)"
        rows = (await connection.execute(text(query), {"tenants": tenants})).all()
        return cls(
            {(row.level, row.tenant): row.clock for row in rows if row.tenant},
            {row.level: Time(row.clock, row.served, row.sharers) for row in rows if not row.tenant},
        )

    def begin_at(self, head: Head) -> float:
        """Returns when its tenant begins, if it was away: where the time stood then. After a crash of the database the time begins at 0 again."""
        return min(head.turn_time, self.times.get(head.level, Time()).clock)

    def charge(self, pick: Pick, seconds: float) -> None:
        level, place = pick.head.level, (pick.head.level, pick.head.tenant)
        time = self.times.get(level, Time())
        self._seen.setdefault(level, time.served)
        self.times[level] = time.next(pick, seconds)
        self.clocks[place] = max(self.clocks.get(place, 0.0), pick.start) + seconds
        self._charged.append((*place, pick.start, seconds))

    async def write(self, connection: AsyncConnection) -> None:
        """Writes in the order of `correct`: no two wait for each other."""
        for level in sorted(self._seen):
            values = {"level": level, "seen": self._seen[level], **self.times[level].__dict__}
            await connection.execute(text(_TIME), values)
        for level, tenant, start, seconds in sorted(self._charged):
            values = {"level": level, "tenant": tenant, "start": start, "seconds": seconds}
            await connection.execute(text(_CHARGE), values)


async def correct(connection: AsyncConnection, seconds: dict[tuple[int, str], float]) -> None:
    """Charges tenants what runs took beyond their estimates; less than nothing gives back."""
    times: dict[int, float] = defaultdict(float)
    for (level, _), each in seconds.items():
        times[level] += each
    for level, each in sorted(times.items()):
        if abs(each) >= _CORRECTED_SECONDS:
            await connection.execute(text(_CORRECT), {"level": level, "seconds": each})
    for (level, tenant), each in sorted(seconds.items()):
        values = {"level": level, "tenant": tenant, "start": 0.0, "seconds": each}
        await connection.execute(text(_CHARGE), values)
