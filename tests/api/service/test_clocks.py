"""Clocks that jump: nothing is deleted or ended by a jump, and what a clock that is set back would give again stays taken."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from in_process import LocalServer, serving
from scoring_server import User, becomes, eventually, new_tenant, running
from sqlalchemy import text

from cloakwork.api.service import clock as clock_module
from cloakwork.api.service.clock import DAY, SteadyClock


class Clocks:
    """A wall clock and a monotonic one."""

    def __init__(self) -> None:
        self.wall, self.moment = 1e9, 5.0

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.moment += seconds

    def steady(self, trusted: float = DAY) -> SteadyClock:
        return SteadyClock(lambda: self.wall, trusted, lambda: self.moment)


def test_a_small_step_counts_at_once():
    clocks = Clocks()
    steady = clocks.steady()
    for step in (3600.0, -3600.0, DAY, 5.0):
        clocks.wall += step
        assert steady.now() == steady.latest() == clocks.wall


@pytest.mark.parametrize("step", [100 * DAY, -100 * DAY])
def test_a_large_step_counts_when_it_has_lasted_for_a_day(step: float):
    clocks = Clocks()
    steady = clocks.steady()
    before = clocks.wall
    clocks.wall += step
    for _ in range(3):
        assert steady.now() == min(clocks.wall, clocks.wall - step) and steady.latest() == max(
            clocks.wall, clocks.wall - step
        )
        clocks.pass_seconds(DAY / 4)
    clocks.wall -= step  # it was a mistake
    assert steady.now() == clocks.wall == before + 3 * DAY / 4
    clocks.wall += step
    steady.now()
    clocks.pass_seconds(DAY)
    assert steady.now() == steady.latest() == clocks.wall


def test_a_step_of_minutes_counts_when_it_has_lasted_as_long():
    clocks = Clocks()
    steady = clocks.steady(60.0)
    clocks.wall += 1800
    assert steady.now() == clocks.wall - 1800
    clocks.pass_seconds(1799)
    assert steady.now() == clocks.wall - 1800
    clocks.pass_seconds(2)
    assert steady.now() == clocks.wall


def test_another_step_begins_to_wait_again():
    clocks = Clocks()
    steady = clocks.steady()
    clocks.wall += 10 * DAY
    steady.now()
    clocks.pass_seconds(DAY - 1)
    clocks.wall += 10 * DAY
    assert steady.now() == clocks.wall - 20 * DAY
    clocks.pass_seconds(2)
    assert steady.now() == clocks.wall - 20 * DAY


def test_a_clock_that_was_set_while_no_service_ran_is_doubted_too():
    clocks = Clocks()
    steady = clocks.steady()
    steady.remember(clocks.wall - 30 * DAY)
    assert steady.now() == clocks.wall - 30 * DAY
    steady = clocks.steady()
    for last in (clocks.wall - 60, clocks.wall + 100 * DAY):  # the last one looked at a clock that was wrong
        steady.remember(last)
        assert steady.now() == clocks.wall


# Python loads it before the service: its wall clock is so many seconds ahead as a file says.
AHEAD = """
import os, time
real = time.time
def ahead():
    try:
        return real() + float(open(os.environ["AHEAD"]).read())
    except (OSError, ValueError):
        return real()
time.time = ahead
"""


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_clock_100_days_ahead_for_a_moment_deletes_no_key(tmp_path: Path, fill: Callable[[Path], Path]):
    (tmp_path / "sitecustomize.py").write_text(AHEAD)
    ahead = tmp_path / "ahead"
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    often = {"RETENTION_CHECK_SECONDS": "0.05"}
    variables = {"PYTHONPATH": paths, "AHEAD": str(ahead)}
    with running(fill(tmp_path / "data"), environment=often, variables=variables) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt()[1]
        expected = user.infer(body).raise_for_status().content

        def keys() -> int:
            return len(http.get("/v2/keys").json()["keys"])

        def said() -> bool:
            return any("the clock was set" in line["message"] for line in server.log_lines())

        ahead.write_text(str(100 * DAY))
        assert eventually(lambda: said() or not keys())
        old = ("0" * 32, "local", "toy", "", 1, "ready", 0.0, time.time() - 200 * DAY)
        with sqlite3.connect(server.data / "cloakwork.db", timeout=60) as database:
            columns = "id, tenant, parameter_set, parameter_digest, bytes, state, created_at, used_at"
            database.execute(f"INSERT INTO evaluation_keys ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", old)
        assert becomes(keys, 1), "retention goes on, by the time that the clock had"
        ahead.unlink()
        assert user.infer(body).raise_for_status().content == expected


class Wall:
    """The service's wall clock, which a test sets."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    monkeypatch.setattr(clock_module, "time", made)
    return made


def used_at(server: LocalServer, key: str) -> float:
    async def ask() -> float:
        async with server.services.database.read() as connection:
            query = text("SELECT used_at FROM evaluation_keys WHERE id = :id")
            return float((await connection.execute(query, {"id": key})).scalar_one())

    return float(server.do(ask()))


def test_a_clock_that_jumps_deletes_nothing_and_takes_no_use_back(
    tmp_path: Path, fill: Callable[[Path], Path], wall: Wall
):
    often = {"RETENTION_CHECK_SECONDS": "0.05"}
    with serving(fill(tmp_path / "data"), environment=often) as server, server.client() as http:
        user = User.of(http)
        key = user.upload()
        body = user.encrypt()[1]
        user.infer(body).raise_for_status()
        job = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        server.do(server.services.keys.flush_used())
        first = used_at(server, key)

        wall.ahead = 100 * DAY
        with server.engine_held():
            timed = (
                http.post("/v2/models/toy/jobs?deadline_seconds=86400", content=body).raise_for_status().json()["id"]
            )
        assert becomes(lambda: any("clock was set" in line["message"] for line in server.log_lines()), True)
        server.do(server.services.housekeeping._retention())
        assert http.get(f"/v2/jobs/{job}/result").status_code == 200
        assert user.answer(body), "the key is there"

        wall.ahead = -100 * DAY
        assert user.answer(body)
        server.do(server.services.keys.flush_used())
        assert used_at(server, key) >= first
        wall.ahead = 0.0
        server.do(server.services.housekeeping._retention())
        assert [each["id"] for each in http.get("/v2/keys").json()["keys"]] == [key]
        assert becomes(lambda: http.get(f"/v2/jobs/{timed}").json()["state"], "done")


def test_a_jump_ends_no_job_and_gives_no_expired_api_key_again(
    tmp_path: Path, fill: Callable[[Path], Path], wall: Wall
):
    data = fill(tmp_path / "data")
    token = new_tenant(data, "alice")
    with serving(data, insecure=False) as server:
        headers = {"Authorization": f"Bearer {token}"}
        with server.client(headers=headers) as http:
            user = User.of(http)
            user.upload()
            with server.engine_held():
                answer = http.post("/v2/models/toy/jobs?deadline_seconds=3600", content=user.encrypt()[1])
                job = answer.raise_for_status().json()["id"]
                wall.ahead = 2 * 3600.0
                server.do(server.services.housekeeping._deadlines())
                assert http.get(f"/v2/jobs/{job}").json()["state"] in ("queued", "running")
            wall.ahead = 0.0
            assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")

        async def expire() -> None:
            async with server.services.database.write() as connection:
                query = text("UPDATE api_keys SET expires_at = :moment")
                await connection.execute(query, {"moment": time.time() - 1.0})
            server.services.tenants._known.clear()

        server.do(expire())
        for ahead in (0.0, -100 * DAY):
            wall.ahead = ahead
            assert httpx.get(f"{server.url}/v2/models", headers=headers, trust_env=False).status_code == 401
