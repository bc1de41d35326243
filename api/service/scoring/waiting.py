"""Estimates of a run's duration, from earlier runs, and of the time until it begins, from the work before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cloakwork.api.errors import BusyError
from cloakwork.api.service.models.model import Model
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY, Work, level_of
from cloakwork.api.settings import Settings

_WEIGHT: Final = 0.2  # of the newest run
_LEAST_SECONDS: Final = 0.001
_OVERDUE: Final = (
    0.1  # of the time that a run has had beyond its estimate and before it: what it is taken to need still
)


class Estimates:
    """Seconds for each unit of work (`Model.work`) of a parameter set on this machine, key loading left out."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._on_devices: dict[tuple[str, str], float] = {}  # by set and device of this machine

    def seconds(self, model: Model, samples: int) -> float:
        measured = self.measured(model)
        return max(_LEAST_SECONDS, samples * (model.foreseen_seconds if measured is None else measured))

    def measured(self, model: Model) -> float | None:
        """Returns the measured seconds of one sample, when a model of the same set has run."""
        each = self._seconds.get(model.parameter_set)
        return None if each is None else each * model.work

    def on(self, model: Model, device: str) -> float | None:
        """Returns `measured` on one of this machine's devices."""
        each = self._on_devices.get((model.parameter_set, device))
        return None if each is None else each * model.work

    def learn(self, model: Model, samples: int, seconds: float, together: int = 1, device: str | None = None) -> None:
        """Learns from `seconds`, its share of a run of several requests, which all together have the weight of one run."""
        if model.work:
            each, name = seconds / (model.work * samples), model.parameter_set
            kept = (1 - _WEIGHT) ** (1 / together)
            self._seconds[name] = each + kept * (self._seconds.get(name, each) - each)
            if device is not None:
                before = self._on_devices.get((name, device), each)
                self._on_devices[name, device] = each + kept * (before - each)


class WorkerPlace(NamedTuple):
    """A worker: when it is free, and whether what it computes is long."""

    seconds: float = 0.0
    long: bool = False

    @classmethod
    def of_run(cls, seconds: float, had: float, long: bool) -> WorkerPlace:
        """Returns one that was estimated, and has been computed for some of it."""
        return cls(max(seconds - had, _OVERDUE * had), long)


@dataclass
class Seconds:
    """Seconds of work, in long runs and in short ones."""

    short: float = 0.0
    long: float = 0.0

    @property
    def all(self) -> float:
        return self.short + self.long

    def add(self, seconds: float, long: bool) -> None:
        if long:
            self.long += seconds
        else:
            self.short += seconds

    def first(self, seconds: float) -> Seconds:
        """Returns the first of them, short ones before long ones."""
        short = min(seconds, self.short)
        return Seconds(short, min(seconds - short, self.long))


@dataclass(frozen=True)
class Line:
    """Rows that wait: those of a tenant, of one priority, long or not."""

    tenant: str
    priority: int
    long: bool
    count: int
    seconds: float

    @property
    def level(self) -> int:
        return level_of(self.priority)


class RequestLine(ABC):
    """The line of requests whose clients wait: the dispatcher of this process, or the table of a fleet."""

    _settings: Settings

    @property
    @abstractmethod
    def waiting(self) -> int: ...

    @abstractmethod
    def _rows_waiting(self, tenant: str) -> tuple[int, int]:
        """Returns how many wait, of all and of this tenant."""

    @abstractmethod
    def backlog_seconds(self) -> float:
        """Estimates the seconds until what waits is done, about."""

    @abstractmethod
    def wait_seconds(self, tenant: str, seconds: float) -> float:
        """Estimates the seconds until a request of this tenant can begin: others that wait take their turns, and no more, before it."""

    @abstractmethod
    def submit(self, work: Work) -> None: ...

    @abstractmethod
    def abandon(self, identity: str, never_begun: Callable[[], None]) -> None:
        """Abandons a request whose client is gone; `never_begun` is called if nobody had it."""

    def require_room(self, tenant: str, most: int) -> None:
        """Raises BusyError when the queue is full, for all or for this tenant, which may have `most` waiting."""
        waiting, mine = self._rows_waiting(tenant)
        if waiting < self._settings.max_queue and mine < most:
            return
        whose = "the queue" if waiting >= self._settings.max_queue else "your part of the queue"
        raise BusyError(f"{whose} is full; try again later", retry_after=max(1.0, min(60.0, self.backlog_seconds())))


def ahead_of(tenant: str, seconds: float, waiting: Iterable[Work | Line]) -> Seconds:
    """Sums what goes before a request: what its tenant sent before, what has a priority, and one turn of every other tenant."""
    others: dict[str, Seconds] = defaultdict(Seconds)
    first, mine = Seconds(), 0.0
    for each in waiting:
        if each.level:
            first.add(each.seconds, each.long)
        elif each.tenant != tenant:
            others[each.tenant].add(each.seconds, each.long)
        elif each.priority >= SYNCHRONOUS_PRIORITY:  # a tenant's jobs wait for its requests
            mine += each.seconds
    turns = [other.first(mine + seconds) for other in others.values()]
    return Seconds(
        first.short + mine + sum(each.short for each in turns), first.long + sum(each.long for each in turns)
    )


def wait_seconds(workers: int, places: Sequence[WorkerPlace], ahead: Seconds, long: bool) -> float:
    """Estimates the seconds until a run can begin.

    Args:
        workers: that there are.
        places: of their runs; those beyond them wait for one.
        long: whether it is a long one. Where there are two workers, long ones leave one to the others; one by itself computes a short run
            beside a long one.
    """
    on = places[:workers]
    if not long and len(on) == workers and all(place.long for place in on):
        # Only single workers all have long runs. A short run is computed beside one of them, and gets half of its processor.
        return 2 * (sum(place.seconds for place in places[workers:]) + ahead.short) / workers
    ordered = _workers(workers, places)
    free = [place.seconds for place in ordered]
    if len(free) == 1:
        return _level(free, ahead.all)
    if long:
        busy = [place.seconds for place in ordered if place.long]
        return _level(busy if len(busy) >= len(free) - 1 else free, ahead.all)
    first, others = free[0], free[1:]
    filled = _level(others, ahead.long) if ahead.long else 0.0
    return _level([first, *(max(each, filled) for each in others)], ahead.short)


def _workers(count: int, places: Sequence[WorkerPlace]) -> list[WorkerPlace]:
    """Returns the workers by when they are free. Runs beyond them begin where one is free first."""
    ordered = sorted([*places[:count], *[WorkerPlace()] * (count - len(places))])
    for place in places[count:]:
        first = ordered.pop(0)
        ordered = sorted([*ordered, WorkerPlace(first.seconds + place.seconds, place.long)])
    return ordered


def _level(free: Sequence[float], seconds: float) -> float:
    """Returns when a worker is free after these seconds of work, which goes to those that are free first."""
    ordered = sorted(free)
    level = ordered[0]
    for count, each in enumerate(ordered, 1):
        room = ordered[count] - each if count < len(ordered) else float("inf")
        if seconds <= room * count:
            return level + seconds / count
        seconds -= room * count
        level += room
    return level
