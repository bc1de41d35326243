"""Choice of the work that a worker takes next, and the clocks of tenants for it: start-time fair queueing, as `scoring/work.py` has it in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.service.scoring.work import MOST_SECONDS, MOST_TOGETHER, level_of

Clocks: TypeAlias = dict[tuple[int, str], float]
"""By level and tenant."""
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


@dataclass(frozen=True)
class Head:
    """A row that waits, one of the first of its tenant."""

    id: str
    is_job: bool
    tenant: str
    evaluation_key: str
    program_digest: str
    seconds: float
    attempts: int
    priority: int
    created_at: float
    turn_time: float = 0.0  # where the time of its level stood when it was queued

    @property
    def level(self) -> int:
        return level_of(self.priority)

    @property
    def kin(self) -> tuple[object, ...]:
        """Returns what rows have in common that one run can answer."""
        return self.is_job, self.tenant, self.evaluation_key, self.program_digest, self.priority


@dataclass(frozen=True)
class LongRuns:
    """Limit of long runs: from how many seconds a run is long, and how many more may begin, so that a worker stays for short ones."""

    seconds: float
    most: int


NO_LONG_RUNS: Final = LongRuns(float("inf"), 0)  # every run is short


@dataclass(frozen=True)
class Pick:
    head: Head
    count: int  # rows, the head and its kin
    start: float  # of the tenant's clock
    sharers: int  # tenants that wait at its level


def choose(
    heads: list[Head], clocks: Clocks, slots: int, last_attempt: int, idle: bool, long: LongRuns = NO_LONG_RUNS
) -> list[Pick]:
    """Chooses at most `slots` runs; `last_attempt`: the number of attempts behind a request that is tried once more, which a worker
    does with nothing beside it, so that what kills engines takes no other request's attempts."""
    lines: dict[tuple[int, str], list[Head]] = defaultdict(list)
    for head in sorted(heads, key=lambda head: (-head.priority, head.created_at, head.id)):
        lines[head.level, head.tenant].append(head)
    clocks = {place: clocks.get(place, 0.0) for place in lines}
    sharers = Counter(level for level, _ in lines)
    picks: list[Pick] = []
    most = long.most

    def start(place: tuple[int, str]) -> float:
        """Returns the clock of a tenant; one that was away begins where the time stood when it came back."""
        return max(clocks[place], lines[place][0].turn_time)

    while lines and slots > 0:
        place = min(lines, key=lambda place: (-place[0], start(place), lines[place][0].created_at, place[1]))
        begin, head = start(place), lines[place].pop(0)
        is_long = head.seconds > long.seconds
        if is_long and most <= 0:
            del lines[place]  # what waits behind it stays there
            continue
        alone = last_attempt > 0 and not head.is_job and head.attempts >= last_attempt
        if not alone or (idle and not picks):
            count = 1 if alone else max(1, min(MOST_TOGETHER, int(MOST_SECONDS / max(head.seconds, 1e-3))))
            picks.append(Pick(head, count, begin, sharers[head.level]))
            clocks[place] = begin + head.seconds
            slots -= 2 if is_long else 1  # no place behind it
            most -= is_long
            if alone:
                return picks
            lines[place] = [other for other in lines[place] if other.kin != head.kin]
        if not lines[place]:
            del lines[place]
    return picks


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
