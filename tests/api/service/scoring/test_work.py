"""The fair queue by itself."""

from __future__ import annotations

from dataclasses import dataclass

from cloakwork.api.service.scoring.work import FairQueue


@dataclass(frozen=True)
class Item:
    name: str
    tenant: str = "a"
    priority: int = 5
    seconds: float = 1.0
    level: int = 0


def drain(queue: FairQueue[Item]) -> str:
    names = []
    while (item := queue.pop()) is not None:
        names.append(item.name)
    return " ".join(names)


def test_what_was_dropped_goes_first_and_what_is_not_allowed_waits():
    queue: FairQueue[Item] = FairQueue()
    for name in ("1", "2"):
        queue.push(Item(name))
    queue.push(Item("0"), first=True)
    queue.push(Item("other", "b"))
    assert queue.pop(lambda item: item.tenant == "b") == Item("other", "b")
    assert queue.pop(lambda item: False) is None
    assert queue.remove(lambda item: item.name == "1") == Item("1")
    assert queue.remove(lambda item: item.name == "1") is None
    assert drain(queue) == "0 2"
