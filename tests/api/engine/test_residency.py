"""Programs and keys that stay in memory: made once, the least recently used goes first."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scoring_server import toy_model

from cloakwork.api.engine.messages import KeyPlace
from cloakwork.api.engine.residency import LeastRecentlyUsed, Residency
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys


def test_the_least_recently_used_goes_first():
    cache: LeastRecentlyUsed[str] = LeastRecentlyUsed(limit=10)
    made: list[str] = []

    def get(name: str, size: int = 4) -> str:
        def make() -> str:
            made.append(name)
            return name.upper()

        return cache.get(name, make, lambda _: size)

    assert [get("a"), get("b"), get("a"), get("c")] == ["A", "B", "A", "C"]
    assert made == ["a", "b", "c"] and "b" not in cache and "a" in cache and cache.nbytes() == 8
    get("huge", 100)
    assert "huge" in cache and "a" not in cache
    cache.drop("huge")
    assert cache.nbytes() == 0 and (cache.hits, cache.misses) == (1, 4)


def test_a_value_is_made_once_for_many_threads_and_again_after_a_failure():
    cache: LeastRecentlyUsed[int] = LeastRecentlyUsed(limit=10)
    calls: list[int] = []
    gate = threading.Event()

    def make() -> int:
        gate.wait(10)
        calls.append(1)
        return 7

    threads = [threading.Thread(target=lambda: cache.get("x", make, lambda _: 1)) for _ in range(8)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
    assert calls == [1]
    with pytest.raises(ZeroDivisionError):
        cache.get("y", lambda: 1 // 0, lambda _: 1)
    assert cache.get("y", lambda: 3, lambda _: 1) == 3


def test_keys_are_resident_within_their_limits_and_forgotten(tmp_path: Path):
    places = []
    for name in ("one", "two"):
        path = tmp_path / name
        ClientKey.generate(parameter_set("toy")).evaluation_keys().save(path)
        places.append(KeyPlace(name, path))
    residency = Residency("cpu", memory_bytes=1 << 30, device_bytes=1)
    first = residency.expanded(places[0])
    assert residency.expanded(places[0]) is first
    second = residency.expanded(places[1])
    assert residency.facts()["device_bytes"] == second.nbytes, "one key is above the limit: only the newest stays"
    facts = residency.facts()
    assert (facts["hits"], facts["misses"]) == (1, 2) and facts["memory_bytes"] > 0 < facts["device_bytes"]
    residency.forget("two")
    residency.forget("one")
    assert residency.facts()["memory_bytes"] == residency.facts()["device_bytes"] == 0


def test_room_is_made_before_a_value_is(tmp_path: Path):
    cache: LeastRecentlyUsed[str] = LeastRecentlyUsed(limit=10, dropped=(dropped := list[str]()).append)
    for name in ("a", "b"):
        cache.get(name, lambda: "value", lambda _: 5)

    def make() -> str:
        cache.reserve("c", 8)
        assert (dropped, cache.nbytes()) == (["a", "b"], 8), "nothing is beside it while it is made"
        return "made"

    assert cache.get("c", make, lambda _: 6) == "made" and cache.nbytes() == 6
    cache.get("d", lambda: "value", lambda _: 1)
    cache.drop_others("d")
    assert cache.names() == {"d"} and dropped == ["a", "b", "c"]


def test_a_key_that_finds_no_memory_has_that_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    places = []
    for name in ("one", "two"):
        path = tmp_path / name
        ClientKey.generate(parameter_set("toy")).evaluation_keys().save(path)
        places.append(KeyPlace(name, path))
    residency = Residency("cpu", memory_bytes=1 << 30, device_bytes=1 << 30)
    residency.expanded(places[0])
    expand, tries = EvaluationKeys.expand, list[list[str]]()

    def scarce(keys: EvaluationKeys, *given: Any) -> Any:
        tries.append(residency.names())
        if len(tries) == 1:
            raise MemoryError
        return expand(keys, *given)

    monkeypatch.setattr(EvaluationKeys, "expand", scarce)
    assert residency.expanded(places[1]).nbytes > 0
    assert tries == [["one", "two"], ["two"]] and residency.names() == ["two"]


def test_a_program_that_is_dropped_is_kept_by_no_key(tmp_path: Path):
    program, path = toy_model().program, tmp_path / "key"
    ClientKey.generate(program.parameters).evaluation_keys().save(path)
    residency = Residency("cpu", memory_bytes=1 << 30, device_bytes=1 << 30)
    programs: LeastRecentlyUsed[Any] = LeastRecentlyUsed(1, residency.forget_program)
    programs.get("digest", partial(_same, program), lambda _: 2)
    key = residency.expanded(KeyPlace("key", path))
    with key.runtime("digest", program, 1) as first:
        pass
    with key.runtime("digest", program, 1) as again:
        assert again is first
    kept, known = weakref.ref(program), weakref.ref(first)
    del program, first, again
    gc.collect()
    assert kept() is not None
    programs.get("other", lambda: None, lambda _: 2)
    gc.collect()
    assert kept() is None and known() is None


def _same(value: Any) -> Any:
    return value
