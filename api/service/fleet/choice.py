"""Choice of the work that a worker takes next: start-time fair queueing among tenants, as `scoring/queue.py` has it in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final, TypeAlias

from cloakwork.api.service.scoring.work import MOST_SECONDS, MOST_TOGETHER

Clocks: TypeAlias = dict[tuple[int, str], float]
"""By level and tenant."""


@dataclass(frozen=True)
class Head:
    """A row that waits, one of the first of its tenant."""

    id: str
    is_job: bool
    tenant: str
    key: str
    digest: str
    seconds: float
    attempts: int
    level: int
    priority: int
    created_at: float
    turn_time: float = 0.0  # where the time of its level stood when it was queued

    @property
    def kin(self) -> tuple[object, ...]:
        """Returns what rows have in common that one run can answer."""
        return self.is_job, self.tenant, self.key, self.digest, self.priority


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
