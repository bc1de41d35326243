"""Many cards on one database and one object store, simulated from measured parts: what the keys, the database and the store then carry.

python tests/benchmarks/fleet/hundred_cards.py --cards 8 32 104 --load 0.8 --workload cnn --json simulated.json

Time is simulated; which work a worker takes is decided by the service's own `choose`, with its patience and its rule of keys at others. A worker is a
host of eight cards. Leases go one after the other, as the advisory lock makes them. What is measured and what is assumed is in `Measured` and
`Assumed`; docs/benchmarks/fleet.md has what comes out.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from cloakwork.api.service.fleet.queue import HEADS, PATIENCE_SECONDS
from cloakwork.api.service.fleet.turns import Head, Time, Turns, choose

_RUNS_PER_CARD: Final = 2
_POLL_SECONDS: Final = 0.1  # of a worker that is left without work while something waits


@dataclass(frozen=True)
class Measured:
    """docs/benchmarks/fleet.md and docs/decisions/service-fleet.md: two virtual CPUs; a key on one H100."""

    lease_seconds: float = 0.0073  # the lock, held for one run
    lease_seconds_more: float = 0.0006  # for each further run of the lease
    empty_lease_seconds: float = 0.0045  # without an UPDATE
    call_seconds: float = 0.0049  # of the database for one call: posted, leased, ended, collected, one after the other
    expand_seconds: float = 0.065  # a key of `lut2` from a file to the card: read 0.05, expanded 0.015
    upload_bytes: int = 24 << 20  # `lut2`
    expanded_bytes: int = 95 << 20


@dataclass(frozen=True)
class Assumed:
    cards_per_host: int = 8
    device_key_bytes: int = 24 << 30  # as values-gpu.yaml has it
    disk_key_bytes: int = 200 << 30  # copies that a host keeps
    network_bytes: float = 1.25e9  # a second, of a host: 10 Gbit/s
    tenants: int = 100


@dataclass(frozen=True)
class Workload:
    """Requests of so many samples. A run takes `run_seconds` + samples x `sample_seconds` on a card: an H200 of docs/benchmarks/cuda.md."""

    name: str
    samples: int
    sample_seconds: float
    run_seconds: float

    @property
    def seconds(self) -> float:
        return self.run_seconds + self.samples * self.sample_seconds


WORKLOADS: Final = {
    each.name: each
    for each in (
        Workload("cnn", 1, 0.069, 0.007),  # mnist-cnn: 14.5 images/s, one in 76 ms
        Workload("digits-1000", 1000, 1 / 4146, 0.001),  # mnist-mlp-1x30
        Workload("digits-1", 1, 1 / 4146, 0.001),
    )
}


class Kept:
    """Names that fit into so many bytes, the least recently used go first."""

    def __init__(self, most: int, each: int) -> None:
        self._most = max(1, most // each)
        self._names: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def use(self, name: str) -> list[str]:
        """What went for it."""
        self._names[name] = None
        self._names.move_to_end(name)
        return [self._names.popitem(last=False)[0]] if len(self._names) > self._most else []


@dataclass
class Card:
    keys: Kept
    free_at: float = 0.0
    running: int = 0


@dataclass
class Host:
    cards: list[Card]
    disk: Kept
    network_free_at: float = 0.0
    asking: bool = False
    holds: Counter[str] = field(default_factory=Counter)  # keys, by the number of its cards that have them

    @property
    def slots(self) -> int:
        return len(self.cards) * _RUNS_PER_CARD + 1 - sum(card.running for card in self.cards)

    def place(self, key: str) -> Card:
        return min(self.cards, key=lambda card: (card.running, key not in card.keys))


class Simulation:
    def __init__(
        self, cards: int, load: float, workload: Workload, users: int, seconds: float, patience: float
    ) -> None:
        self.measured, self.assumed, self.workload = Measured(), Assumed(), workload
        self._cards, self._users, self._end, self._patience = cards, users, seconds, patience
        self._random = np.random.default_rng(0)
        self._rate = load * cards / workload.seconds
        weights = 1 / np.arange(1, users + 1)
        self._cumulative = np.cumsum(weights / weights.sum())
        self.hosts = list(self._hosts(cards))
        self._held: Counter[str] = Counter()  # keys, by the number of cards that have them
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._waiting: dict[str, deque[Head]] = defaultdict(deque)
        self._turns = Turns()
        self._lock_free_at = 0.0
        self.now = 0.0
        self.latencies: list[float] = []
        self.counts: dict[str, float] = defaultdict(float)

    def _hosts(self, cards: int) -> Iterator[Host]:
        assumed, measured = self.assumed, self.measured
        for first in range(0, cards, assumed.cards_per_host):
            there = min(assumed.cards_per_host, cards - first)
            each = [Card(Kept(assumed.device_key_bytes, measured.expanded_bytes)) for _ in range(there)]
            yield Host(each, Kept(assumed.disk_key_bytes, measured.upload_bytes))

    def run(self, warm_seconds: float) -> None:
        """What is counted begins after so many seconds, with keys where they are by then."""
        self._at(self._random.exponential(1 / self._rate), self._arrive)
        counted = False
        while self._events and self._events[0][0] < warm_seconds + self._end:
            self.now, _, action = heapq.heappop(self._events)
            if not counted and self.now >= warm_seconds:
                counted = True
                self.latencies.clear()
                self.counts.clear()
            action()

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), action))

    # --- web processes ---

    def _arrive(self) -> None:
        user = int(np.searchsorted(self._cumulative, self._random.random()))
        tenant = f"t{user % self.assumed.tenants}"
        time = self._turns.times.get(0, Time()).clock
        number, seconds = str(next(self._numbers)), self.workload.seconds
        head = Head(number, False, tenant, f"k{user}", "m", seconds, 0, 10, self.now, time)
        self._waiting[tenant].append(head)
        self.counts["requests"] += 1
        self.counts["database_seconds"] += self.measured.call_seconds
        for host in self.hosts:
            self._ask(host)
        self._at(self.now + self._random.exponential(1 / self._rate), self._arrive)

    # --- leases, one after the other ---

    def _ask(self, host: Host) -> None:
        """Each host has one lease under way at most."""
        if host.asking or host.slots <= 0 or not any(self._waiting.values()):
            return
        host.asking = True
        self._at(max(self.now, self._lock_free_at), lambda: self._choose(host))
        self._lock_free_at = max(self.now, self._lock_free_at) + self.measured.empty_lease_seconds

    def _choose(self, host: Host) -> None:
        picks = choose(self._heads(host), self._turns.clocks, max(0, host.slots), 2, idle=False)
        held = self.measured.empty_lease_seconds
        if picks:
            held = self.measured.lease_seconds + (len(picks) - 1) * self.measured.lease_seconds_more
        self._lock_free_at += held - self.measured.empty_lease_seconds
        self.counts["leases"] += 1
        self.counts["empty_leases"] += not picks
        self.counts["lock_seconds"] += held
        for pick in picks:
            rows = [head for head in self._waiting[pick.head.tenant] if head.kin == pick.head.kin][: pick.count]
            for row in rows:
                self._waiting[row.tenant].remove(row)
            self._turns.charge(pick, sum(row.seconds for row in rows))
            card = host.place(pick.head.evaluation_key)
            card.running += 1
            self._at(self.now + held, partial(self._begin, host, card, rows))

        def again() -> None:
            host.asking = False
            self._ask(host)

        def finished() -> None:  # with nothing, it waits for a notice or a while
            host.asking = False
            self._at(self.now + _POLL_SECONDS, partial(self._ask, host))

        self._at(self.now + held, again if picks else finished)

    def _heads(self, host: Host) -> list[Head]:
        return [head for line in self._waiting.values() for head in itertools.islice(self._allowed(line, host), HEADS)]

    def _allowed(self, line: deque[Head], host: Host) -> Iterator[Head]:
        for head in line:
            old = self.now - head.created_at > self._patience
            if old or host.holds[head.evaluation_key] or not self._held[head.evaluation_key]:
                yield head

    # --- cards ---

    def _begin(self, host: Host, card: Card, rows: list[Head]) -> None:
        key, ready = rows[0].evaluation_key, self.now
        if key not in host.disk:
            host.disk.use(key)
            start = max(self.now, host.network_free_at)
            ready = host.network_free_at = start + self.measured.upload_bytes / self.assumed.network_bytes
            self.counts["fetched_bytes"] += self.measured.upload_bytes
        seconds = self.workload.run_seconds + len(rows) * self.workload.samples * self.workload.sample_seconds
        if key not in card.keys:
            self.counts["expansions"] += 1
            seconds += self.measured.expand_seconds
            for counter in (host.holds, self._held):
                counter[key] += 1
        for gone in card.keys.use(key):
            for counter in (host.holds, self._held):
                counter[gone] -= 1
        card.free_at = max(ready, card.free_at) + seconds
        self.counts["busy_seconds"] += seconds
        self.counts["runs"] += 1
        self._at(card.free_at, partial(self._over, host, card, rows))

    def _over(self, host: Host, card: Card, rows: list[Head]) -> None:
        card.running -= 1
        self.latencies += [self.now - row.created_at for row in rows]
        self._ask(host)

    # --- what it carried ---

    def record(self) -> dict[str, Any]:
        end, counts = self._end, self.counts
        done = len(self.latencies)
        median, late = np.percentile(self.latencies, [50, 95]) if done else (float("nan"), float("nan"))
        return {
            "workload": self.workload.name,
            "cards": self._cards,
            "hosts": len(self.hosts),
            "users": self._users,
            "patience": self._patience,
            "offered_per_second": self._rate,
            "answered_per_second": done / end,
            "samples_per_second": done * self.workload.samples / end,
            "cards_busy": counts["busy_seconds"] / (end * self._cards),
            "median_seconds": float(median),
            "p95_seconds": float(late),
            "leases_per_second": counts["leases"] / end,
            "empty_leases": counts["empty_leases"] / max(1.0, counts["leases"]),
            "lock_busy": counts["lock_seconds"] / end,
            "database_cores": counts["database_seconds"] / end,
            "rows_per_run": done / max(1.0, counts["runs"]),
            "expansions_per_second": counts["expansions"] / end,
            "store_megabytes_per_second": counts["fetched_bytes"] / end / 1e6,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", type=int, nargs="+", default=[8, 32, 104])
    parser.add_argument(
        "--load", type=float, default=0.8, help="of what the cards could do without keys, leases and gaps"
    )
    parser.add_argument("--workload", choices=sorted(WORKLOADS), nargs="+", default=sorted(WORKLOADS))
    parser.add_argument(
        "--users", type=int, default=10000, help="with a key each; the k-th asks 1/k as often as the first"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=120.0, help="seconds before that")
    parser.add_argument("--patience", type=float, nargs="+", default=[PATIENCE_SECONDS], help="0: keys play no part")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    records = []
    for name, cards, patience in itertools.product(arguments.workload, arguments.cards, arguments.patience):
        simulation = Simulation(cards, arguments.load, WORKLOADS[name], arguments.users, arguments.seconds, patience)
        simulation.run(arguments.warm)
        records.append(simulation.record())
        print(
            json.dumps(
                {key: round(value, 4) if isinstance(value, float) else value for key, value in records[-1].items()}
            ),
            flush=True,
        )
    if arguments.json is not None:
        facts = {"measured": asdict(Measured()), "assumed": asdict(Assumed()), "records": records}
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
