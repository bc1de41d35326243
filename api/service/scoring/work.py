"""Work that waits for an engine, one request or job each; its queue, shared among tenants by seconds; what is computed as one run."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, Generic, Protocol, TypeVar

from cloakwork.api.engine.messages import Event, KeyPlace, ModelPlace, RequestPart, StartRun

DEFAULT_PRIORITY: Final = 5
SYNCHRONOUS_PRIORITY: Final = 10  # before the tenant's own jobs

MOST_TOGETHER: Final = 16  # works of one run
MOST_SECONDS: Final = 1.0  # of them together, estimated: nobody waits longer for a turn because of it
_CLOCKS_KEPT: Final = 1024  # of tenants with nothing waiting; with more, their debts, a run or two each, are forgiven


@dataclass(frozen=True)
class Subject:
    """The model and key of a run, for status pages."""

    model: str
    version: str
    parameter_set: str
    samples: int


def level_of(priority: int) -> int:
    """Jobs above the default priority go before what others have."""
    return priority if DEFAULT_PRIORITY < priority < SYNCHRONOUS_PRIORITY else 0


@dataclass(eq=False)
class Work:
    """One request. `listen` gets the engine's messages; `claim`, where given, says whether it is still wanted."""

    id: str
    tenant: str
    priority: int
    model: ModelPlace
    key: KeyPlace
    listen: Callable[[Event], None]
    seconds: float  # estimated
    long: bool = False
    body: bytes = b""
    input: str | None = None  # a file, in place of `body`
    output: str | None = None  # a file for the answer
    progress: bool = False  # reports are wanted
    claim: Callable[[], Awaitable[bool]] | None = None
    subject: Subject | None = None
    samples: int = 1
    largest: int = 1  # samples of one run
    alone: bool = False  # engines or processes died with it
    losses: int = 0  # engines that died while they had it
    lost_with: object = None  # the run in which the last one did: its works are tried again after one another
    seconds_on: Callable[[str], float | None] = lambda _: None  # measured, by device
    queued_at: float = field(default_factory=time.monotonic)

    @property
    def level(self) -> int:
        """Jobs above the default priority, which need a scope, go before what others have; nothing else does."""
        return level_of(self.priority)

    @property
    def kin(self) -> tuple[str, str]:
        """Returns what works of one tenant have in common that one run can answer."""
        return self.model.digest, self.key.name

    @property
    def part(self) -> RequestPart:
        return RequestPart(self.id, self.samples, self.body, self.input, self.output, self.progress)


def together(first: Work, behind: Sequence[Work], runs: int) -> list[Work]:
    """Chooses works for one run: the first, and of those behind it as many as are better computed with it than after it.

    Args:
        behind: what waits of the same tenant and priority, in its order, which nothing overtakes.
        runs: that an engine computes at a time as fast as one: work for one of them is not taken from another.
    """
    kin = list(takewhile(lambda work: work.kin == first.kin and not work.alone, () if first.alone else behind))
    share = min(MOST_TOGETHER, -(-(1 + len(kin)) // runs))
    chosen, seconds, samples = [first], first.seconds, first.samples
    for work in kin[: share - 1]:
        seconds, samples = seconds + work.seconds, samples + work.samples
        if seconds > MOST_SECONDS or samples > first.largest:
            break
        chosen.append(work)
    return chosen


def run_message(works: Sequence[Work], beside: bool = False) -> StartRun:
    """Writes the message of a run; `beside`: a long one, on a thread of its own."""
    return StartRun(beside, works[0].model, works[0].key, tuple(work.part for work in works))


class Queued(Protocol):
    @property
    def tenant(self) -> str: ...
    @property
    def seconds(self) -> float:
        """Returns the seconds of the engine, estimated."""

    @property
    def level(self) -> int:
        """Larger goes first, whoever it belongs to."""

    @property
    def priority(self) -> int:
        """Larger goes first among what the same tenant has waiting at this level."""


W = TypeVar("W", bound=Queued)


class _Level(Generic[W]):
    """Start-time fair queueing: each tenant has a clock that runs by the seconds of its work, and the one that is behind goes next.

    A tenant that comes back begins at the level's time, so that nobody saves up turns, or where its own clock stands if that is later,
    so that nobody loses a debt by leaving. The time runs as if all that wait were served at once: a second of work moves it by 1/n
    seconds if n tenants wait. If it followed the clocks only, each newcomer would go before those that had one run.

    Both are the times of WF2Q+ (Bennett, Zhang 1996); what starts first goes first.
    """

    def __init__(self) -> None:
        self.lines: dict[str, dict[int, deque[W]]] = {}  # by tenant and priority; neither is ever empty
        self._clocks: dict[str, float] = defaultdict(float)
        self._time = 0.0
        self._served = 0.0  # since the last pop, divided among those that waited

    def push(self, work: W, first: bool) -> None:
        if work.tenant not in self.lines:
            self._clocks[work.tenant] = max(self._clocks[work.tenant], self._time)
        line = self.lines.setdefault(work.tenant, {}).setdefault(work.priority, deque())
        (line.appendleft if first else line.append)(work)

    def pop(self, allowed: Callable[[W], bool]) -> W | None:
        for tenant in sorted(self.lines, key=self._clocks.__getitem__):
            lines = self.lines[tenant]
            work = lines[max(lines)][0]
            if allowed(work):
                self._time = max(self._time + self._served, self._clocks[tenant])
                self._served = 0.0
                self.charge(tenant, work.seconds)
                self.take(work)
                return work
        return None

    def take(self, work: W) -> None:
        lines = self.lines[work.tenant]
        lines[work.priority].remove(work)
        if not lines[work.priority]:
            del lines[work.priority]
        if not lines:
            del self.lines[work.tenant]

    def charge(self, tenant: str, seconds: float) -> None:
        self._clocks[tenant] += seconds
        self._served += seconds / max(1, len(self.lines))
        if len(self._clocks) > len(self.lines) + _CLOCKS_KEPT:
            self._clocks = defaultdict(float, {name: self._clocks[name] for name in self.lines})


class FairQueue(Generic[W]):
    def __init__(self) -> None:
        self._levels: dict[int, _Level[W]] = defaultdict(_Level)

    def push(self, work: W, *, first: bool = False) -> None:
        """Adds a request. `first`: before what the tenant has waiting at this level and priority."""
        self._levels[work.level].push(work, first)

    def pop(self, allowed: Callable[[W], bool] = lambda _: True) -> W | None:
        """Returns the next one that is allowed, charged to its tenant; who waits behind one that is not stays behind it."""
        for level in sorted(self._levels, reverse=True):
            work = self._levels[level].pop(allowed)
            if work is not None:
                return work
        return None

    def behind(self, work: W) -> list[W]:
        """Lists what waits of the tenant at the level and priority of one that was taken, in its order."""
        return list(self._levels[work.level].lines.get(work.tenant, {}).get(work.priority, ()))

    def take(self, work: W) -> None:
        """Takes a request out of its turn, together with one before it; charged to its tenant all the same."""
        self._levels[work.level].charge(work.tenant, work.seconds)
        self._levels[work.level].take(work)

    def charge(self, work: W, seconds: float) -> None:
        """Charges what a run took beyond its estimate; less than nothing gives back."""
        self._levels[work.level].charge(work.tenant, seconds)

    def remove(self, matches: Callable[[W], bool]) -> W | None:
        for work in self:
            if matches(work):
                self._levels[work.level].take(work)
                return work
        return None

    def __iter__(self) -> Iterator[W]:
        for level in self._levels.values():
            for lines in level.lines.values():
                for line in lines.values():
                    yield from line

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def waiting_of(self, tenant: str) -> int:
        return sum(len(line) for level in self._levels.values() for line in level.lines.get(tenant, {}).values())
