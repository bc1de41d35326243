"""Engines that hang: stopped, in a computation that never ends, or with a run that stands still. They are killed, and what they had is run again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fake_engines import FakeEngines
from scoring_server import User, becomes, eventually, metric, new_tenant, resident, running

from cloakwork.api.engine.messages import Pong
from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.scoring import engine_link as module
from cloakwork.api.service.scoring.engine_link import Patience, Watch
from cloakwork.api.settings import load_settings

# Python loads it before the engine: its next run hangs as a file says.
HANGS = """
import sys
if "cloakwork.api.engine" in sys.orig_argv:
    import ctypes, os, threading
    from cloakwork.api.engine.runner import Runner
    run = Runner.run
    def hang(self, *arguments):
        try:
            kind = open(os.environ["HANGS"]).read()
            os.remove(os.environ["HANGS"])
        except FileNotFoundError:
            return run(self, *arguments)
        if kind == "lock":
            ctypes.PyDLL(None).pause()  # it keeps the interpreter's lock
        threading.Event().wait()
    Runner.run = hang
"""


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_hung_engine_is_killed_and_its_runs_go_on(tmp_path: Path, fill: Callable[[Path], Path]):
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    hangs = tmp_path / "hangs"
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    limits = {"ENGINE_PING_SECONDS": "0.1", "ENGINE_MISSED_PINGS": "8", "ENGINE_STALL_SECONDS": "0.5", "THREADS": "1"}
    variables = {"PYTHONPATH": paths, "HANGS": str(hangs)}
    with running(fill(tmp_path / "data"), environment=limits, variables=variables) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt()[1]
        expected = user.infer(body).raise_for_status().content
        with ThreadPoolExecutor() as pool:
            for count, kind in enumerate(["stopped", "lock", "still"], 1):
                if kind == "stopped":
                    server.kill_engine(signal.SIGSTOP)
                else:
                    hangs.write_text(kind)
                asked = pool.submit(user.answer, body)
                job = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
                assert asked.result() == expected
                assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json()["state"], "done")
                assert becomes(lambda: metric(http, "fhe_engine_hangs"), count)
        assert metric(http, "fhe_engine_restarts") == 3 and metric(http, "fhe_engines_silent") == 0
        assert http.get("/v2/health/ready").status_code == 200
        reasons = [line["reason"] for line in server.log_lines() if "hangs" in line["message"]]
        assert reasons == ["it does not answer"] * 2 + ["a run stands still"]


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_what_hangs_every_engine_ends_as_what_kills_them(tmp_path: Path, fill: Callable[[Path], Path]):
    limits = {"ENGINE_PING_SECONDS": "0.2", "ENGINE_MISSED_PINGS": "40", "THREADS": "1", "MAX_ATTEMPTS": "1"}
    with running(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt()[1]
        with ThreadPoolExecutor() as pool:
            server.kill_engine(signal.SIGSTOP)
            answer = pool.submit(user.infer, body)
            assert becomes(lambda: metric(http, "fhe_engines_silent"), 1)
            not_ready = http.get("/v2/health/ready")
            assert (not_ready.status_code, "does not answer" in not_ready.text) == (503, True)
            assert (answer.result().status_code, answer.result().json()["code"]) == (503, "engine_lost")
        assert eventually(lambda: user.infer(body).status_code == 200)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_the_keys_of_a_hung_engine_are_not_resident_any_more(tmp_path: Path, fill: Callable[[Path], Path]):
    """They are read again when they are used next; metrics and the administrator's list say both."""
    data = fill(tmp_path / "data")
    tokens = {
        name: new_tenant(data, name, *scopes)
        for name, scopes in (("owner", ["admin", "metrics"]), ("alice", ["score"]))
    }
    limits = {"ENGINE_PING_SECONDS": "0.1", "ENGINE_MISSED_PINGS": "8", "THREADS": "1"}

    def http_of(name: str) -> httpx.Client:
        return server.client(headers={"Authorization": f"Bearer {tokens[name]}"})

    with (
        running(data, insecure=False, environment=limits) as server,
        http_of("owner") as admin,
        http_of("alice") as http,
    ):

        def listed() -> list[bool]:
            return [each["resident"] for each in admin.get("/v2/admin/keys").raise_for_status().json()["keys"]]

        user = User.of(http)
        user.upload()
        body = user.encrypt()[1]
        expected = user.infer(body).raise_for_status().content
        assert sum(resident(admin)) > 0 and becomes(listed, [True])
        server.kill_engine(signal.SIGSTOP)
        assert becomes(lambda: metric(admin, "fhe_engine_hangs"), 1)
        assert becomes(lambda: sum(resident(admin)), 0) and listed() == [False]
        assert eventually(lambda: user.infer(body).status_code == 200)
        assert user.infer(body).content == expected
        assert sum(resident(admin)) > 0 and becomes(listed, [True])


PONG = Pong("", "cpu", 0, 0, 0, 0, [], {}, {})


class Link:
    """Of an engine that a test watches; `pongs`: what it answers, None: nothing."""

    def __init__(self, *pongs: Pong | None) -> None:
        self.up, self.words, self.starting_seconds, self.killed = True, 0, 0.0, 0
        self.pongs = list(pongs)

    def kill(self) -> None:
        self.killed += 1


def watched(link: Link, missed: int = 3, late: bool = False) -> tuple[Any, list[bool]]:
    """An engine after as many looks as it has answers, and what was said of it when it came back."""
    (engine,) = FakeEngines().dispatcher.engines.all
    engine.link = link  # type: ignore[assignment]
    back: list[bool] = []

    async def ping(timeout: float) -> Pong:
        pong = link.pongs.pop(0)
        link.words += late
        if pong is None:
            raise UnavailableError("the engine does not answer")
        return pong

    engine.ping = ping  # type: ignore[method-assign]

    async def run() -> None:
        watch = Watch(engine, Patience(0.0, missed, 5.0), lambda: back.append(engine.silent))
        for _ in range(len(link.pongs)):
            await watch.look()

    asyncio.run(run())
    return engine, back


def test_only_pings_missed_in_a_row_count_and_a_late_answer_is_one():
    engine, _ = watched(Link(None, None, PONG, None, None))
    assert (engine.link.killed, engine.silent) == (0, True)
    engine, back = watched(Link(None, None, PONG))
    assert (engine.silent, back) == (False, [False]), "what waits goes on"
    engine, _ = watched(Link(None, None, None))
    assert (engine.link.killed, engine.hangs, engine.hung) == (1, 1, True)
    engine, _ = watched(Link(*[None] * 9), late=True)
    assert engine.link.killed == 0, "something came, though no answer in time"


def test_a_silent_engine_gets_nothing_and_the_others_everything():
    engines = FakeEngines(workers=1, devices=("cuda:0", "cuda:1"))
    engines.dispatcher.engines.all[0].silent = True
    for number in range(3):
        engines.submit(f"tenant{number}", key=f"key{number}")
    assert engines.links[0].sent == [] and len(engines.links[1].sent) == 2
    assert engines.dispatcher.workers == 1


@pytest.mark.parametrize(
    ("estimate", "progress", "quiet", "killed"),
    [
        (0.1, 0.0, 4.9, 0),
        (0.1, 0.0, 5.1, 1),
        (10.0, 0.0, 29.0, 0),
        (10.0, 0.0, 31.0, 1),
        (10.0, 0.5, 4.9, 0),
        (10.0, 0.5, 5.1, 1),
    ],
)
def test_a_run_may_be_still_for_some_time_and_three_times_its_estimate_before_it_reports(
    estimate: float, progress: float, quiet: float, killed: int
):
    link = Link(replace(PONG, quiet={"one": quiet, "gone": 1e9}))
    (engine,) = FakeEngines().dispatcher.engines.all
    engine.runs.append(SimpleNamespace(works={"one": None}, estimated=estimate, progress=progress))  # type: ignore[arg-type]
    engine.link = link  # type: ignore[assignment]

    async def ping(timeout: float) -> Pong:
        return link.pongs.pop() or PONG

    engine.ping = ping  # type: ignore[method-assign]
    asyncio.run(Watch(engine, Patience(0.0, 3, 5.0), lambda: None).look())
    assert link.killed == killed


def test_an_engine_that_does_not_start_is_killed_too():
    link = Link(PONG)
    link.up = False
    for seconds, killed in ((module.START_SECONDS - 1, 0), (module.START_SECONDS + 1, 1)):
        link.starting_seconds, link.pongs = seconds, [PONG]
        watched(link)
        assert link.killed == killed


def test_in_a_fleet_an_engine_has_no_longer_than_a_process():
    shared = {"database_url": "postgresql://host/name", "storage_url": "file:///objects"}
    patience = Patience.of(load_settings(takeover_seconds=4.0, **shared))
    assert patience.ping_seconds * (patience.missed_pings + 1) == pytest.approx(4.0)
    assert Patience.of(load_settings(takeover_seconds=4.0)).ping_seconds == 1.0
