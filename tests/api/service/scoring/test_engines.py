"""Several engine processes: which of them gets a run, and what the end of one leaves to the others."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fake_engines import FakeEngines
from scoring_server import Server, User, becomes, resident, running

from cloakwork.api.engine.messages import EngineOptions, Pong
from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.scoring import engines as module
from cloakwork.api.service.scoring.engines import Engines, Events
from cloakwork.models.audit.audit_key import AuditKey, load_audit_key
from cloakwork.models.compiled import CompiledModel

CARDS = ("cuda:0", "cuda:1")


def cards(**settings: Any) -> FakeEngines:
    return FakeEngines(workers=2, spread=1, devices=CARDS, **settings)


def test_the_least_busy_engine_gets_a_run_and_among_equals_one_that_has_the_key():
    engines = cards()
    first, second = engines.submit(key="a"), engines.submit(key="b")
    assert (engines.where(first), engines.where(second)) == ([0], [1])
    third, fourth = engines.submit(key="b"), engines.submit(key="b")
    assert (engines.where(third), engines.where(fourth)) == ([1], [0]), "busy alike: the key; then the less busy one"
    for identity in (first, second, third, fourth):
        engines.end(identity)
    engines.links[0].engine.keys.discard("b")  # as a ping tells that the cache has dropped it
    again = engines.submit(key="b")
    assert engines.where(again) == [1]


def test_a_key_is_forgotten_everywhere():
    engines = cards()
    engines.submit(key="a")
    engines.dispatcher.engines.forget("a")
    assert [link.forgotten for link in engines.links] == [["a"], ["a"]]
    assert [link.engine.keys for link in engines.links] == [set(), set()]


def test_what_a_dead_engine_had_goes_to_the_other_at_once_and_nothing_else_changes():
    engines = cards()
    mine = [engines.submit(key=f"key{i}") for i in range(4)]
    lost = [identity for identity in mine if engines.where(identity) == [0]]
    kept = [identity for identity in mine if identity not in lost]
    engines.links[0].die()
    assert [engines.heard[identity] for identity in mine] == [["lost"] if each in lost else [] for each in mine]
    assert engines.dispatcher.engines.up and engines.links[0].engine.keys == set()
    for identity in kept:
        engines.end(identity)
    assert engines.links[1].sent == kept + lost
    engines.links[0].start()
    assert engines.where(engines.submit()) == [0]


def test_parts_of_a_lost_run_may_run_on_different_engines():
    engines = cards()
    for number in range(6):
        engines.submit(f"other{number}-", key=f"other{number}")
    mine = [engines.submit() for _ in range(4)]
    engines.end(engines.links[0].sent[0])
    lost = engines.links[0].runs[-1]
    assert lost == mine[:2]
    engines.links[0].die()
    engines.links[0].start()
    for identity in list(engines.links[1].sent):
        engines.end(identity)
    out = {engines.where(work.id)[-1] for work in engines.dispatcher.in_flight() if work.id in lost}
    assert out == {0, 1} and all(len(run) == 1 for link in engines.links for run in link.runs[-2:])


def test_a_slow_device_takes_what_the_fast_one_would_not_have_done_by_then():
    """The CPU takes sixteen times as long: one of few requests would wait for nothing."""
    seconds = {"cuda:0": 0.01, "cpu": 0.16}.get
    engines = FakeEngines(workers=2, spread=1, devices=("cpu", "cuda:0"))
    mine = [engines.submit(f"tenant{i}-", key=f"key{i}", seconds_on=seconds) for i in range(10)]
    cpu, gpu = engines.links
    assert cpu.sent == [] and gpu.sent == mine[:3]
    mine += [engines.submit(f"tenant{i}-", key=f"key{i}", seconds_on=seconds) for i in range(10, 60)]
    assert cpu.sent != [] and gpu.sent == mine[:3]
    # What was never measured there is tried; what is nearly as fast is as good.
    for devices in ({"cuda:0": 0.01}, {"cuda:0": 0.01, "cpu": 0.013}):
        engines = FakeEngines(workers=2, spread=1, devices=("cpu", "cuda:0"))
        ids = [engines.submit(f"t{i}-", key=f"key{i}", seconds_on=devices.get) for i in range(4)]
        assert [engines.where(identity) for identity in ids] == [[0], [1]] * 2


def test_what_waits_together_is_spread_over_engines_that_are_as_fast():
    seconds = {"cuda:0": 0.01, "cuda:1": 0.012, "cpu": 0.5}.get
    engines = FakeEngines(workers=2, spread=1, devices=("cuda:0", "cuda:1", "cpu"))
    others = [engines.submit(f"t{i}-", key=f"key{i}", seconds_on=seconds) for i in range(6)]
    for _ in range(8):
        engines.submit(seconds_on=seconds)
    for identity in others[:4]:
        engines.end(identity)
    assert [len(link.runs[-1]) for link in engines.links[:2]] == [4, 2]  # half of eight, half of the four that are left
    assert engines.links[2].runs == []


def test_the_place_ahead_is_not_taken_while_an_engine_is_idle():
    engines = cards()
    flood = [engines.submit("a", key=f"key{i}", seconds=2.0) for i in range(10)]
    assert [len(link.sent) for link in engines.links] == [2, 2]
    other = engines.submit("b")
    assert sum(len(link.sent) for link in engines.links) == 5 and engines.where(other) != []
    (behind,) = engines.where(other)
    engines.end(next(each for each in flood if engines.where(each) == [behind]))
    assert sum(len(link.sent) for link in engines.links) == 5, "it runs now"
    engines.end(next(each for each in flood if engines.where(each) == [1 - behind]))
    assert sum(len(link.sent) for link in engines.links) == 6


def test_threads_and_memory_are_those_of_all_together():
    options = EngineOptions(threads=5, memory_key_bytes=300, device_key_bytes=70)
    engines = Engines((), options, AuditKey(bytes(32)), Events(lambda: None, lambda *_: None, lambda _: None))
    engines.make(("cpu", "cpu", "cuda:0"))
    made = [engine.link._options for engine in engines.all]
    assert [each.device for each in made] == ["cpu", "cpu", "cuda:0"]
    assert [each.threads for each in made] == [2, 2, 5]
    assert {each.memory_key_bytes for each in made} == {100} and {each.device_key_bytes for each in made} == {70}
    assert len({engine.name for engine in engines.all}) == 3


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_devices_are_looked_up_by_a_process_that_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "has_cuda", lambda: True)
    assert asyncio.run(module._usable_devices()) == asyncio.run(module._look()) != ()


def test_devices_are_looked_up_again_after_a_crash(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "has_cuda", lambda: True)
    monkeypatch.setattr(module, "RESTART_SECONDS", (0.0, 0.0))
    said: list[str] = []

    async def look() -> tuple[str, ...]:
        said.append("again")
        if len(said) < 4:
            raise (ValueError("a driver that crashes"), OSError("no process"), TimeoutError())[len(said) - 1]
        return CARDS

    monkeypatch.setattr(module, "_look", look)
    assert asyncio.run(module._usable_devices()) == CARDS and len(said) == 4
    monkeypatch.setattr(module, "has_cuda", lambda: False)
    assert asyncio.run(module._usable_devices()) == ("cpu",) and len(said) == 4


def test_one_that_does_not_answer_does_not_hide_the_others():
    async def run() -> None:
        engines = cards()

        pong = Pong("", "cuda:0", 0, 0, 1, 0, ["a"], {}, {})

        async def fine(timeout: float) -> Pong:
            return pong

        async def silent(timeout: float) -> Pong:
            raise UnavailableError("the engine does not answer")

        for link, ping in zip(engines.links, (fine, silent), strict=True):
            link.ping = ping  # type: ignore[attr-defined]
        assert await engines.dispatcher.engines.ping(1.0) == {"cuda:0": pong}
        engines.links[0].die()
        with pytest.raises(UnavailableError, match="does not answer"):
            await engines.dispatcher.engines.ping(1.0)
        engines.links[1].die()
        with pytest.raises(UnavailableError, match="starting"):
            await engines.dispatcher.engines.ping(1.0)

    asyncio.run(run())


# --- real ones, on the CPU ---

# Not watched: engines that are held on purpose are silent, and get nothing new after two seconds.
TWO = {
    "DEVICES": "cpu cpu",
    "THREADS": "2",
    "MAX_ATTEMPTS": "5",
    "SYNCHRONOUS_SECONDS": "60",
    "ENGINE_MISSED_PINGS": "0",
}


def attempts(server: Server, job: str) -> int:
    with sqlite3.connect(server.data / "cloakwork.db") as database:
        return int(database.execute("SELECT attempts FROM jobs WHERE id = ?", (job,)).fetchone()[0])


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_the_end_of_one_takes_its_own_run_alone(tmp_path: Path, fill: Callable[[Path], Path], compiled: CompiledModel):
    with running(fill(tmp_path / "data"), environment=TWO) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        bodies = [user.encrypt(samples=30, seed=number)[1] for number in range(2)]
        before = http.get("/v2/admin/load").json()["engine"]
        assert (before["workers"], before["devices"]) == (2, ["cpu", "cpu"])
        assert [each["answers"] for each in before["processes"]] == [True, True]
        with server.engine_held():
            jobs = [http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"] for body in bodies]
            assert becomes(lambda: [http.get(f"/v2/jobs/{job}").json()["state"] for job in jobs], ["running"] * 2)
            load = http.get("/v2/admin/load").json()["engine"]
            assert [each["running"] for each in load["processes"]] == [1, 1]
            assert len({each["process"] for each in load["processes"]}) == 2
            os.kill(load["processes"][0]["process"], signal.SIGKILL)
        for job in jobs:
            assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        assert sorted(attempts(server, job) for job in jobs) == [1, 2]
        key = load_audit_key(server.data / "audit.key")
        for job, body in zip(jobs, bodies, strict=True):
            assert http.get(f"/v2/jobs/{job}/result").content == user.made_again(compiled, key, body)
        after = http.get("/v2/admin/load").json()["engine"]
        assert [each["restarts"] for each in after["processes"]] == [1, 0] and after["restarts"] == 1
        assert after["processes"][1]["process"] == load["processes"][1]["process"]


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_keys_are_where_their_runs_were(tmp_path: Path, fill: Callable[[Path], Path]):
    """One after the other, a key's requests stay with one engine; at the same time they go to both; deleting it empties both."""
    with running(fill(tmp_path / "data"), environment=TWO) as server, server.client() as http:
        user = User.of(http)
        identity = user.upload()
        body = user.encrypt()[1]
        for _ in range(6):
            assert user.infer(body).status_code == 200
        memory, device = resident(http)
        assert memory > 0 < device
        many = user.encrypt(samples=300)[1]
        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(user.answer, [many] * 12))
        assert resident(http) == [2 * memory, 2 * device]
        text = http.get("/metrics").text
        (misses,) = [line.split()[1] for line in text.splitlines() if line.startswith("fhe_key_cache_misses_total ")]
        assert float(misses) == 2
        http.delete(f"/v2/keys/{identity}")
        assert becomes(lambda: resident(http), [0, 0])


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_the_end_of_the_service_is_no_loss(tmp_path: Path, fill: Callable[[Path], Path]):
    """Engines end one after another then: what one had is not another's, and has not failed."""
    limits = {**TWO, "DEVICES": "cpu cpu cpu", "MAX_ATTEMPTS": "1"}
    with running(fill(tmp_path / "data"), environment=limits) as server:
        with server.client() as http:
            user = User.of(http)
            user.upload()
            body = user.encrypt(samples=30)[1]
            with server.engine_held():
                jobs = [
                    http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"] for _ in range(3)
                ]
                assert becomes(lambda: [http.get(f"/v2/jobs/{job}").json()["state"] for job in jobs], ["running"] * 3)
                server.stop()
        server.start()
        with server.client() as http:
            for job in jobs:
                assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done")


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_the_service_is_ready_while_any_is_up(tmp_path: Path, fill: Callable[[Path], Path]):
    with running(fill(tmp_path / "data"), environment=TWO) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt(samples=30)[1]
        expected = user.infer(body).content
        first, second = (each["process"] for each in http.get("/v2/admin/load").json()["engine"]["processes"])
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(user.answer, body) for _ in range(20)]
            os.kill(first, signal.SIGKILL)
            assert http.get("/v2/health/ready").status_code == 200
            assert {answer.result() for answer in answers} == {expected}
        assert second in [each["process"] for each in http.get("/v2/admin/load").json()["engine"]["processes"]]
