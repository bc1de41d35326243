"""Requests that a client gives up while they are on their way to the database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloakwork.api.engine.messages import KeyPlace, ModelPlace
from cloakwork.api.service.fleet import front as module
from cloakwork.api.service.fleet.front import ROW_BYTES, Front
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY, Subject, Work
from cloakwork.api.settings import Settings


class Rows:
    """The table of calls, whose inserts take as long as `held` is not set."""

    def __init__(self, broken: bool) -> None:
        self.held, self.broken = asyncio.Event(), broken
        self.asked = asyncio.Event()
        self.states: dict[str, str] = {}

    async def post(self, call: Any) -> None:
        self.asked.set()
        await self.held.wait()
        if self.broken:
            raise ConnectionError
        self.states[call.id] = "queued"

    async def withdraw(self, identity: str) -> bool:
        return self.states.pop(identity, None) in (None, "queued")


class Objects:
    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def delete(self, name: str) -> None:
        self.deleted.append(name)


def work(body: bytes) -> Work:
    subject = Subject("toy", "1", "toy_two_limb", 1)
    made = Work(
        "a" * 32,
        "alice",
        SYNCHRONOUS_PRIORITY,
        ModelPlace("program", "d", Path("m")),
        KeyPlace("k", Path("k")),
        lambda _: None,
        0.1,
        subject=subject,
    )
    made.body = body
    return made


async def turns() -> None:
    """Until every task has done what it can without waiting for another."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.mark.parametrize("broken", [False, True])
def test_a_call_that_is_given_up_before_its_row_is_there_leaves_none(broken: bool):
    async def run() -> tuple[Rows, Objects, int]:
        rows, objects, refunds = Rows(broken), Objects(), []
        members = SimpleNamespace(node="web")
        front = Front(Settings(), rows, members, objects, lambda name, version: "d")  # type: ignore[arg-type]
        call = work(b"x")
        assert len(call.body) <= ROW_BYTES
        front.submit(call)
        await rows.asked.wait()
        front.abandon(call.id, lambda: refunds.append(1))
        await turns()
        assert not refunds and not objects.deleted, "its row may still come"
        rows.held.set()
        await turns()
        front.abandon(call.id, lambda: refunds.append(1))  # once is enough
        await front.stop()
        return rows, objects, len(refunds)

    rows, objects, refunds = asyncio.run(run())
    assert rows.states == {} and objects.deleted == [f"inputs/{'a' * 32}"] and refunds == 1


def test_a_database_that_never_answers_holds_nobody_who_gave_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_POST_SECONDS", 0.01)

    async def run() -> tuple[Rows, Objects]:
        rows, objects, refunded = Rows(broken=False), Objects(), asyncio.Event()
        front = Front(Settings(), rows, SimpleNamespace(node="web"), objects, lambda name, version: "d")  # type: ignore[arg-type]
        call = work(b"x")
        front.submit(call)
        await rows.asked.wait()
        front.abandon(call.id, refunded.set)
        async with asyncio.timeout(10):
            await refunded.wait()
        rows.held.set()
        await turns()
        await front.stop()
        return rows, objects

    rows, objects = asyncio.run(run())
    assert rows.states == {} and objects.deleted == [f"inputs/{'a' * 32}"]


def test_what_a_worker_has_is_paid():
    async def run() -> int:
        rows, refunds = Rows(broken=False), []
        rows.held.set()
        front = Front(Settings(), rows, SimpleNamespace(node="web"), Objects(), lambda name, version: "d")  # type: ignore[arg-type]
        call = work(b"x")
        front.submit(call)
        await turns()
        assert rows.states == {call.id: "queued"}
        rows.states[call.id] = "leased"
        front.abandon(call.id, lambda: refunds.append(1))
        await turns()
        await front.stop()
        return len(refunds)

    assert asyncio.run(run()) == 0
