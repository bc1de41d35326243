"""The fair queues, of a process and of a fleet, beside their ideal: tenants served all at once, each with an equal part of one engine.

Times are computed, not measured.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from cloakwork.api.service.fleet.queue import HEADS
from cloakwork.api.service.fleet.turns import Head, Time, Turns, choose
from cloakwork.api.service.scoring.work import FairQueue


@dataclass(frozen=True)
class Item:
    name: int
    tenant: str
    arrives: float
    seconds: float
    priority: int = 5
    level: int = 0


def steady(tenants: int, load: float, seconds: float, until: float = 600.0) -> list[Item]:
    """Tenants of equal load who ask at random times."""
    draw, items = random.Random(20), []
    for tenant in range(tenants):
        time = draw.expovariate(load / tenants / seconds)
        while time < until:
            items.append(Item(len(items), f"tenant-{tenant}", time, seconds))
            time += draw.expovariate(load / tenants / seconds)
    return sorted(items, key=lambda item: item.arrives)


class LeasedQueue:
    """What waits in the database of a fleet, for one worker that takes run by run."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[tuple[Item, Head]]] = defaultdict(deque)
        self._turns, self._count = Turns(), 0

    def push(self, item: Item) -> None:
        self._count += 1
        name, time = str(self._count), self._turns.times.get(0, Time()).clock
        head = Head(name, True, item.tenant, name, "program", item.seconds, 0, item.priority, self._count, time)
        self._lines[item.tenant].append((item, head))

    def pop(self) -> Item | None:
        heads = [head for line in self._lines.values() for _, head in list(line)[:HEADS]]
        for pick in choose(heads, self._turns.clocks, 1, 2, True):
            item, _ = self._lines[pick.head.tenant].popleft()
            self._turns.charge(pick, item.seconds)
            return item
        return None

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))


Queue: TypeAlias = type[FairQueue[Item]] | type[LeasedQueue]
both = pytest.mark.parametrize("kind", [FairQueue, LeasedQueue])


def queued(kind: Queue, items: Iterable[Item]) -> dict[Item, float]:
    """When each ends on one engine that takes what the queue gives it."""
    queue = kind()
    ends: dict[Item, float] = {}
    coming, time = deque(items), 0.0
    while coming or len(queue):
        if not len(queue):
            time = max(time, coming[0].arrives)
        while coming and coming[0].arrives <= time:
            queue.push(coming.popleft())
        item = queue.pop()
        assert item is not None
        time += item.seconds
        ends[item] = time
    return ends


def shared(items: Iterable[Item]) -> dict[Item, float]:
    """When each ends if the first of every tenant is served at 1/n of the engine's speed, n tenants waiting (generalised processor sharing)."""
    lines: dict[str, deque[Item]] = defaultdict(deque)
    ends: dict[Item, float] = {}
    left: dict[Item, float] = {}
    coming, time = deque(items), 0.0
    while coming or any(lines.values()):
        heads = [line[0] for line in lines.values() if line]
        until = coming[0].arrives if coming else float("inf")
        if not heads:
            time = until
        else:
            first = min(heads, key=left.__getitem__)
            step = min(left[first], (until - time) / len(heads))
            for head in heads:
                left[head] -= step
            time += step * len(heads)
            if left[first] <= 1e-12:
                ends[first] = time
                lines[first.tenant].popleft()
        while coming and coming[0].arrives <= time:
            item = coming.popleft()
            lines[item.tenant].append(item)
            left[item] = item.seconds
    return ends


def percentile(ends: dict[Item, float], share: float) -> float:
    """Of the seconds from arrival to end, heavy tenants excepted."""
    waits = sorted(end - item.arrives for item, end in ends.items() if item.tenant != "heavy")
    return waits[int(share * len(waits))]


@both
@pytest.mark.parametrize("tenants, load", [(10, 0.9), (50, 0.9), (50, 0.95)])
def test_tenants_of_equal_load_end_when_they_would_if_all_were_served_at_once(kind: Queue, tenants: int, load: float):
    """Earlier, a tenant that had just run waited behind each newcomer: p99 of 50 tenants was 70% above this."""
    items = steady(tenants, load, 0.1)
    ends, ideal = queued(kind, items), shared(items)
    assert set(ends) == set(ideal) == set(items)
    assert max(ends[item] - ideal[item] for item in items) < 5 * 0.1
    assert percentile(ends, 0.99) < percentile(ideal, 0.99)


@both
def test_a_heavy_tenant_takes_its_part_and_no_more(kind: Queue):
    """400 runs of a second that wait from the start, beside 50 tenants with runs of 0.1 seconds."""
    heavy = [Item(-1 - i, "heavy", 0.0, 1.0) for i in range(400)]
    items = [*heavy, *steady(50, 0.8, 0.1)]
    ends, ideal = queued(kind, items), shared(items)
    assert percentile(ends, 0.99) < percentile(ideal, 0.99) + 1.0  # a run that has begun is not interrupted
    assert max(ends[item] - ideal[item] for item in items) < 3 * 1.0
    last = {
        name: max(end for item, end in each.items() if item.tenant == "heavy")
        for name, each in (("queue", ends), ("ideal", ideal))
    }
    assert abs(last["queue"] - last["ideal"]) < 2.0


@both
def test_what_has_waited_all_the_time_is_served_equally(kind: Queue):
    """|W_a - W_b| <= l_a + l_b between any two, at any time, whatever comes and goes beside them (start-time fair queueing, theorem 1)."""
    queue = kind()
    sizes, draw = {"a": 1.0, "b": 3.0, "c": 0.2}, random.Random(21)
    for tenant, seconds in sizes.items():
        for i in range(3000):
            queue.push(Item(i, tenant, 0.0, seconds))
    served: Counter[str] = Counter()
    for i in range(2000):
        if draw.random() < 0.3:
            queue.push(Item(i, f"guest-{draw.randrange(20)}", 0.0, draw.choice([0.1, 5.0])))
        item = queue.pop()
        assert item is not None
        served[item.tenant] += item.seconds
        for one in sizes:
            for other in sizes:
                assert abs(served[one] - served[other]) <= sizes[one] + sizes[other] + 1e-9


@both
def test_who_comes_while_one_tenant_is_served_goes_next(kind: Queue):
    queue = kind()
    for i in range(100):
        queue.push(Item(i, "heavy", 0.0, 1.0))
    for _ in range(50):
        queue.pop()
    queue.push(Item(0, "late", 50.0, 1.0))
    item = queue.pop()
    assert item is not None and item.tenant == "late"
