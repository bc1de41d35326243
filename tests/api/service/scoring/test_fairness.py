"""Who goes next: tenants by the seconds that their work takes, whatever they send and however much. Orders are asserted, not times."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fake_engines import FakeEngines
from in_process import serving
from scoring_server import Server, User, becomes, eventually, new_tenant, running

from cloakwork.api.service.scoring import engines as engines_module
from cloakwork.api.service.scoring.work import DEFAULT_PRIORITY, SYNCHRONOUS_PRIORITY, FairQueue


@dataclass(frozen=True)
class Item:
    name: str
    tenant: str = "a"
    seconds: float = 1.0
    priority: int = 5
    level: int = 0


def order(queue: FairQueue[Item], most: int = 1000) -> list[Item]:
    items: list[Item] = []
    while len(items) < most and (item := queue.pop()) is not None:
        items.append(item)
    return items


def names(items: list[Item]) -> str:
    return " ".join(item.name for item in items)


def test_tenants_take_turns():
    queue: FairQueue[Item] = FairQueue()
    for name, tenant in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c")]:
        queue.push(Item(name, tenant))
    assert len(queue) == 6 and queue.waiting_of("a") == 3
    assert names(order(queue)) == "a1 b1 c1 a2 b2 a3"
    assert len(queue) == 0


def test_turns_are_seconds_not_requests():
    """Who sends work of ten seconds gets a tenth as many turns as who sends work of one."""
    queue: FairQueue[Item] = FairQueue()
    for i in range(100):
        queue.push(Item(f"long{i}", "a", 10.0))
        queue.push(Item(f"short{i}", "b", 1.0))
    seconds: Counter[str] = Counter()
    for item in order(queue, 55):
        seconds[item.tenant] += item.seconds
    assert abs(seconds["a"] - seconds["b"]) <= 10


def test_what_runs_take_counts_not_what_was_estimated():
    queue: FairQueue[Item] = FairQueue()
    for _ in range(30):
        queue.push(Item("", "a", 1.0))
        queue.push(Item("", "b", 1.0))
    turns: Counter[str] = Counter()
    for _ in range(30):
        item = queue.pop()
        assert item is not None
        turns[item.tenant] += 1
        if item.tenant == "a":
            queue.charge(item, 4.0)  # five times its estimate
    assert turns["a"] * 4 <= turns["b"] <= turns["a"] * 6


def test_nobody_saves_up_turns_and_nobody_leaves_a_debt():
    queue: FairQueue[Item] = FairQueue()
    for _ in range(50):
        queue.push(Item("", "a"))
    order(queue, 40)
    for _ in range(10):
        queue.push(Item("late", "b"))  # away so far: no forty turns in a row
    assert [item.tenant for item in order(queue, 10)].count("b") in (5, 6)
    queue = FairQueue()
    queue.push(Item("big", "a", 20.0))
    queue.push(Item("small", "b"))
    order(queue)
    queue.push(Item("again", "a"))
    for _ in range(10):
        queue.push(Item("b", "b"))
    assert names(order(queue)).endswith("again")


def test_infer_goes_before_jobs_of_the_same_tenant_alone():
    queue: FairQueue[Item] = FairQueue()
    for i in range(5):
        queue.push(Item(f"job{i}", "a", priority=DEFAULT_PRIORITY))
    queue.push(Item("urgent", "a", priority=SYNCHRONOUS_PRIORITY))
    queue.push(Item("other", "b", priority=0))
    queue.push(Item("granted", "c", priority=9, level=9))
    assert names(order(queue, 4)) == "granted urgent other job0"


def test_many_tenants_who_came_once_are_not_remembered():
    queue: FairQueue[Item] = FairQueue()
    for i in range(3000):
        queue.push(Item("", f"tenant-{i}"))
        assert queue.pop() is not None
    assert len(queue._levels[0]._clocks) < 2000


def test_the_place_ahead_is_for_a_tenant_that_has_none(monkeypatch: pytest.MonkeyPatch):
    """A flood holds the workers and not what waits behind them: another tenant is next."""
    monkeypatch.setattr(engines_module, "time", SimpleNamespace(monotonic=lambda: 1.0))
    engine = FakeEngines()
    dispatcher = engine.dispatcher

    def submit(tenant: str, priority: int) -> str:
        return engine.submit(tenant, priority, seconds=1.5)  # longer than works that are joined

    for _ in range(100):
        submit("a", SYNCHRONOUS_PRIORITY)
    assert len(engine.only.sent) == 2
    # 150 seconds wait; another tenant's run waits for two that run and for one turn of the others.
    assert dispatcher.wait_seconds("b", 1.5) == pytest.approx(2.25)
    assert dispatcher.wait_seconds("a", 1.5) == pytest.approx(75.0)
    job = submit("b", 0)
    assert engine.only.sent[-1] == job and len(engine.only.sent) == 3
    submit("b", 0)
    for i in range(3):
        engine.end(engine.only.sent[i], busy_seconds=1.5)
    assert [name[0] for name in engine.only.sent[3:5]].count("b") == 1


# --- two tenants and a server ---


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("fairness") / "data")
    new_tenant(data, "first")
    with serving(data, insecure=False, environment={"SYNCHRONOUS_SECONDS": "1000"}) as started:
        yield started


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    """A process, so that those who flood it do not take its time."""
    data = fill(tmp_path_factory.mktemp("flooded") / "data")
    new_tenant(data, "first")
    with running(data, insecure=False, environment={"SYNCHRONOUS_SECONDS": "1000"}) as started:
        yield started


def as_tenant(server: Server, name: str, *scopes: str) -> httpx.Client:
    return server.client(headers={"Authorization": f"Bearer {new_tenant(server.data, name, *scopes)}"})


def finished(http: httpx.Client, jobs: list[str]) -> list[float]:
    """When each began."""
    for job in jobs:
        assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done", 300)
    return [http.get(f"/v2/jobs/{job}").json()["started_at"] for job in jobs]


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_flood_of_infer_does_not_hold_another_tenants_jobs(flooded: Server):
    """Eight connections that ask all the time: of theirs, hardly more than turns of the same length pass before each job."""
    with as_tenant(flooded, "flood") as flooding, as_tenant(flooded, "calm") as calm:
        flood, user = User.of(flooding), User.of(calm)
        flood.upload()
        user.upload()
        many, own = flood.encrypt(samples=40)[1], user.encrypt(samples=40)[1]
        over, answered, times = threading.Event(), Counter[str](), []

        def keep_asking() -> None:
            with flooded.client(headers=dict(flooding.headers)) as http:
                while not over.is_set():
                    answered[str(http.post("/v2/models/toy/infer", content=many).status_code)] += 1
                    times.append(time.time())

        threads = [threading.Thread(target=keep_asking, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: answered["200"] >= 4, every=0.01)
        jobs = [calm.post("/v2/models/toy/jobs", content=own).json() for _ in range(6)]
        began = finished(calm, [job["id"] for job in jobs])
        over.set()
        for thread in threads:
            thread.join(60)
    assert set(answered) == {"200"}
    # While a job waited and none of its own kind ran before it; runs under way let a few more pass.
    waited = [(max(job["created_at"], *began[:i], 0.0), began[i]) for i, job in enumerate(jobs)]
    passed = sum(start < answer <= end for start, end in waited for answer in times)
    assert passed < 6 * 8, passed


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_flood_of_jobs_does_not_hold_another_tenant(flooded: Server):
    with as_tenant(flooded, "hoarder") as hoarding, as_tenant(flooded, "patient") as calm:
        hoard, user = User.of(hoarding), User.of(calm)
        hoard.upload()
        user.upload()
        many, own = hoard.encrypt(samples=100)[1], user.encrypt(samples=100)[1]
        theirs = [hoarding.post("/v2/models/toy/jobs", content=many).json()["id"] for _ in range(60)]
        mine = [calm.post("/v2/models/toy/jobs", content=own).json() for _ in range(3)]
        at_once = user.infer(own)
        assert at_once.status_code == 200  # and not 202: their backlog is not this tenant's
        begun = finished(calm, [each["id"] for each in mine])
        began = finished(hoarding, theirs)
    for position, (job, start) in enumerate(zip(mine, begun, strict=True), 1):
        before = sum(job["created_at"] < other < start for other in began)
        assert before <= 2 * (position + 1) + 3, (position, before)


def test_who_asks_again_at_once_is_answered_late(server: Server):
    """Refusals take the web process's time too: a tenant over its quota, with six connections that never pause."""
    token = new_tenant(server.data, "restless", max_bootstraps_per_day=0)
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt()[1]
    refused: list[int] = []
    began = time.monotonic()

    def keep_asking() -> None:
        with server.client(headers={"Authorization": f"Bearer {token}"}) as own:
            for _ in range(4):
                refused.append(own.post("/v2/models/toy/infer", content=body).status_code)

    threads = [threading.Thread(target=keep_asking) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(refused) == {429} and len(refused) == 24
    assert time.monotonic() - began > 3 * 0.5, "half a second before each answer after the first"


def test_a_priority_above_the_default_needs_a_scope(server: Server):
    with as_tenant(server, "plain") as plain, as_tenant(server, "granted", "score", "priority") as granted:
        for http, status in ((plain, 403), (granted, 202)):
            user = User.of(http)
            user.upload()
            body = user.encrypt()[1]
            answer = http.post("/v2/models/toy/jobs", content=body, params={"priority": 6})
            assert answer.status_code == status, answer.text
            assert http.post("/v2/models/toy/jobs", content=body, params={"priority": 5}).status_code == 202
        assert "priority" in plain.post("/v2/models/toy/jobs", content=b"", params={"priority": 9}).json()["error"]
