"""What waits for the engine: by priority, and within a priority one tenant after the other."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    @property
    def tenant(self) -> str: ...
    @property
    def priority(self) -> int:
        """Larger goes first."""


W = TypeVar("W", bound=Queued)


class FairQueue(Generic[W]):
    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[str, deque[W]]] = {}

    def push(self, work: W, *, first: bool = False) -> None:
        """`first`: before what the tenant has waiting at this priority."""
        line = self._levels.setdefault(work.priority, OrderedDict()).setdefault(work.tenant, deque())
        (line.appendleft if first else line.append)(work)

    def pop(self, allowed: Callable[[W], bool] = lambda _: True) -> W | None:
        """The next one that is allowed; who waits behind one that is not stays behind it."""
        for priority in sorted(self._levels, reverse=True):
            tenants = self._levels[priority]
            for tenant, line in tenants.items():
                if allowed(line[0]):
                    work = line.popleft()
                    if line:
                        tenants.move_to_end(tenant)
                    else:
                        del tenants[tenant]
                        if not tenants:
                            del self._levels[priority]
                    return work
        return None

    def remove(self, wanted: Callable[[W], bool]) -> W | None:
        for tenants in self._levels.values():
            for line in tenants.values():
                for work in line:
                    if wanted(work):
                        line.remove(work)
                        self._sweep()
                        return work
        return None

    def __iter__(self) -> Iterator[W]:
        for tenants in self._levels.values():
            for line in tenants.values():
                yield from line

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def waiting_of(self, tenant: str) -> int:
        return sum(len(tenants.get(tenant, ())) for tenants in self._levels.values())

    def _sweep(self) -> None:
        for priority, tenants in list(self._levels.items()):
            for tenant in [tenant for tenant, line in tenants.items() if not line]:
                del tenants[tenant]
            if not tenants:
                del self._levels[priority]
