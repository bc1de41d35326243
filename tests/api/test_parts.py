"""The parts without a server: queue, residency, frames, storage, telemetry."""

from __future__ import annotations

import asyncio
import io
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloakwork.api.engine.devices import chosen_devices, worker_count
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.engine.protocol import pack, receive, receive_blocking
from cloakwork.api.engine.residency import KeyPlace, KeyResidency, LeastRecentlyUsed
from cloakwork.api.errors import BusyError, UnavailableError
from cloakwork.api.service.budget import BodyBudget
from cloakwork.api.service.node import Node
from cloakwork.api.service.queue import FairQueue
from cloakwork.api.service.readiness import Readiness
from cloakwork.api.service.storage import FileStorage, ObjectStorage, Storage
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import DeviceError, ParameterError
from cloakwork.fhe_core.parameters import parameter_set


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
    residency = KeyResidency(("cpu",), memory_bytes=1 << 30, device_bytes=1)
    first = residency.expanded(places[0], "cpu")
    assert residency.expanded(places[0], "cpu") is first and residency.devices_with("one") == ["cpu"]
    residency.expanded(places[1], "cpu")
    assert residency.devices_with("one") == []  # one key is above the limit, so that only the newest stays
    facts = residency.facts()
    assert (facts["hits"], facts["misses"]) == (1, 2) and facts["memory_bytes"] > 0 < facts["device_bytes"]
    residency.forget("two")
    residency.forget("one")
    assert residency.facts()["memory_bytes"] == residency.facts()["device_bytes"] == 0


def test_frames_pass_both_ways():
    data = pack({"op": "run", "id": "1"}, b"body") + pack({"op": "ping"})
    stream = io.BytesIO(data)
    assert receive_blocking(stream) == ({"op": "run", "id": "1"}, b"body")
    assert receive_blocking(stream) == ({"op": "ping"}, b"")
    assert receive_blocking(stream) is None
    assert receive_blocking(io.BytesIO(data[:20])) is None

    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        assert await receive(reader) == ({"op": "run", "id": "1"}, b"body")
        assert await receive(reader) == ({"op": "ping"}, b"")
        with pytest.raises(asyncio.IncompleteReadError):
            await receive(reader)

    asyncio.run(read())


def test_options_pass_to_the_engine():
    options = EngineOptions(("cuda:0", "cuda:1"), 4, 1, 2, "debug")
    assert EngineOptions.from_json(options.to_json()) == options
    assert worker_count(options.devices, 4) == 4 and worker_count(("cpu",), 3) == 3
    assert chosen_devices(("cpu",)) == ("cpu",) and chosen_devices(()) != ()
    with pytest.raises(DeviceError, match="tpu"):
        chosen_devices(("tpu",))


def check_storage(storage: Storage) -> None:
    async def run() -> None:
        storage.place("keys/a").write_bytes(b"content")
        await storage.keep("keys/a")
        assert (await storage.local("keys/a")).read_bytes() == b"content"
        assert await storage.names("keys") == ["keys/a"]
        assert await storage.names("keys", older_than=3600) == []
        assert (await storage.holds("keys/a", 7), await storage.holds("keys/a", 8)) == (True, False)
        assert not await storage.holds("keys/b", 7)
        assert await storage.names("results") == []
        await storage.delete("keys/a")
        await storage.delete("keys/a")
        with pytest.raises(FileNotFoundError):
            await storage.local("keys/a")

    asyncio.run(run())


def test_files(tmp_path: Path):
    storage = FileStorage(tmp_path)
    check_storage(storage)
    unfinished = storage.place("results/.x.tmp")
    unfinished.touch()
    storage.sweep(3600)
    assert unfinished.exists()
    storage.sweep(-1)
    assert not unfinished.exists()


def test_object_storage(tmp_path: Path):
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    check_storage(ObjectStorage(url, tmp_path / "first"))
    first, second = (ObjectStorage(url, tmp_path / name) for name in ("first", "second"))

    async def run() -> None:
        first.place("results/b").write_bytes(b"of the first")
        await first.keep("results/b")
        assert (await second.local("results/b")).read_bytes() == b"of the first"
        await first.delete("results/b")
        assert second.copies("results") == ["results/b"] and first.copies("results") == []
        await second.drop_copy("results/b")
        assert second.copies("results") == []

    asyncio.run(run())
    with pytest.raises(ParameterError, match="storage"):
        ObjectStorage("nonsense", tmp_path)


def test_bodies_in_memory_are_limited():
    budget = BodyBudget(10, 10)
    with budget.hold("a", 20), pytest.raises(BusyError), budget.hold("a", 1):  # its model limits the first one
        pass
    with budget.hold("a", 5), budget.hold("a", 5):
        pass
    shared = BodyBudget(10, 4)
    with shared.hold("a", 4), pytest.raises(BusyError, match="your requests"), shared.hold("a", 1):
        pass
    with shared.hold("a", 4), shared.hold("b", 4), pytest.raises(BusyError, match="too many requests"):
        shared.hold("c", 4).__enter__()


def test_readiness_is_looked_up_once_for_many():
    looked: list[int] = []

    async def check() -> None:
        looked.append(1)
        await asyncio.sleep(0.01)
        if len(looked) > 1:
            raise UnavailableError("gone")

    async def run() -> None:
        readiness = Readiness(check)
        await asyncio.gather(*(readiness.require() for _ in range(50)))
        await readiness.require()
        assert len(looked) == 1
        readiness._until = 0.0
        for outcome in await asyncio.gather(*(readiness.require() for _ in range(50)), return_exceptions=True):
            assert isinstance(outcome, UnavailableError)
        assert len(looked) == 2

    asyncio.run(run())


def test_a_data_folder_has_one_service_and_keeps_its_name(tmp_path: Path):
    first = Node(tmp_path)
    with pytest.raises(ParameterError, match="another service"):
        Node(tmp_path)
    first.release()
    again = Node(tmp_path)
    assert again.name == first.name
    again.release()
