"""Leases in the database: each row once, only by its attempt's worker, given back, recovered, in the order of tenants."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from cloakwork.api.database.connection import Database
from cloakwork.api.engine.messages import Done, Failed
from cloakwork.api.service.clock import new_id
from cloakwork.api.service.fleet import members as members_module
from cloakwork.api.service.fleet.backlog import Out
from cloakwork.api.service.fleet.members import MemberFacts, Members
from cloakwork.api.service.fleet.notices import Call
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.fleet.turns import LongRuns
from cloakwork.api.start_checks import migrate

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

DIGEST = "d" * 64
DONE = Done("", 0.1, "cpu", 6, busy_seconds=0.1)


class Room:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def worker(self, name: str, role: str = "worker", most: int = 3) -> tuple[WorkQueue, Members]:
        members = Members(self.database, name, 30.0)
        await members.arrive(MemberFacts(role, "1"))
        return WorkQueue(self.database, name, 30.0, most), members

    async def sql(self, query: str) -> list[Any]:
        async with self.database.write() as connection:
            result = await connection.execute(text(query))
            return list(result.all()) if result.returns_rows else []


@asynccontextmanager
async def room(url: str) -> AsyncIterator[Room]:
    database = Database(url)
    try:
        await migrate(database, url)
        async with database.write() as connection:
            await connection.execute(text("TRUNCATE calls, jobs, nodes, turns, resident_keys"))
        yield Room(database)
    finally:
        await database.close()


def in_room(url: str, test: Callable[[Room], Awaitable[None]]) -> None:
    async def run() -> None:
        async with room(url) as here:
            await test(here)

    asyncio.run(run())


def call(tenant: str = "a", key: str | None = None, seconds: float = 1.0) -> Call:
    return Call(new_id(), tenant, "web", "toy", "1", DIGEST, key or new_id(), 1, seconds, b"body")


def test_two_workers_take_each_row_once(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        posted = [call(f"tenant-{number % 5}") for number in range(60)]
        for each in posted:
            await web.post(each)
        queues = [(await here.worker(name))[0] for name in ("one", "two", "three")]
        taken: Counter[str] = Counter()

        async def work(queue: WorkQueue) -> None:
            while await queue.anything_waits():
                for each in (await queue.take([DIGEST], 3, True)).calls:
                    taken[each.id] += 1
                    assert await queue.end(each, replace(DONE, body=b"answer"))

        await asyncio.gather(*(work(queue) for queue in queues))
        assert taken == Counter(each.id for each in posted)
        ended = await web.collect([each.id for each in posted])
        assert len(ended) == len(posted) and {getattr(end, "body", b"") for end in ended} == {b"answer"}

    in_room(database, test)


def test_models_that_a_worker_does_not_have_are_left(database: str):
    async def test(here: Room) -> None:
        queue, _ = await here.worker("one")
        await queue.post(call())
        assert len(await queue.take(["e" * 64], 1, True)) == 0
        assert len(await queue.take([DIGEST], 1, True)) == 1

    in_room(database, test)


def test_a_worker_that_comes_back_cannot_write_over_another(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        lost, _ = await here.worker("lost")
        other, _ = await here.worker("other")
        await web.post(call())
        (first,) = (await lost.take([DIGEST], 1, True)).calls
        await here.sql("UPDATE nodes SET heartbeat_at = heartbeat_at - 60 WHERE id = 'lost'")
        assert await other.recover() == (1, [])
        (second,) = (await other.take([DIGEST], 1, True)).calls
        assert (first.attempts, second.attempts) == (1, 2)
        assert not await lost.end(first, replace(DONE, body=b"late"))
        assert await other.end(second, replace(DONE, body=b"right"))
        assert await web.collect([first.id]) == [replace(DONE, id=first.id, worker="other", body=b"right")]

    in_room(database, test)


def test_after_the_last_attempt_a_call_fails(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        await web.post(call())
        for attempt in range(3):
            queue, _ = await here.worker(f"worker-{attempt}")
            (taken,) = (await queue.take([DIGEST], 1, True)).calls
            await here.sql(f"DELETE FROM nodes WHERE id = 'worker-{attempt}'")
            await web.recover()
        (end,) = await web.collect([taken.id])
        assert isinstance(end, Failed) and (end.code, end.http_status) == ("engine_lost", 503)

    in_room(database, test)


def test_what_is_given_back_counts_no_attempt_and_nobody_dead_keeps_calls(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        queue, _ = await here.worker("one")
        await web.post(call())
        (taken,) = (await queue.take([DIGEST], 1, True)).calls
        await queue.give_back([taken], [])
        assert [tuple(row) for row in await here.sql("SELECT state, worker, attempts FROM calls")] == [
            ("queued", "", 0)
        ]
        await here.sql("DELETE FROM nodes WHERE id = 'web'")
        await queue.recover()
        assert await here.sql("SELECT id FROM calls") == []

    in_room(database, test)


def test_two_tenants_through_two_web_processes_take_turns(database: str):
    async def test(here: Room) -> None:
        first, _ = await here.worker("web-1", "web")
        second, _ = await here.worker("web-2", "web")
        queue, _ = await here.worker("one")
        for _ in range(20):
            await first.post(call("many"))
        for _ in range(5):
            await second.post(call("few"))
        order = []
        for _ in range(10):
            (taken,) = (await queue.take([DIGEST], 1, True)).calls
            order.append(taken.tenant)
            await queue.end(taken, replace(DONE, busy_seconds=1.0))
        assert Counter(order) == {"many": 5, "few": 5}

    in_room(database, test)


def test_work_waits_for_the_worker_that_has_its_key_and_not_for_ever(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        holder, facts = await here.worker("holder")
        other, _ = await here.worker("other")
        key = new_id()
        await facts.publish({key})
        await web.post(call(key=key))
        assert len(await other.take([DIGEST], 1, True)) == 0
        assert len(await holder.take([DIGEST], 1, True)) == 1
        await web.post(call(key=key))
        await here.sql("UPDATE calls SET created_at = created_at - 5")
        assert len(await other.take([DIGEST], 1, True)) == 1  # it has waited long enough
        lonely = new_id()
        await facts.publish({lonely})
        await facts.beat(MemberFacts("worker", "1", draining=True))
        await web.post(call(key=lonely))
        assert len(await other.take([DIGEST], 1, True)) == 1

    in_room(database, test)


def test_keys_that_others_forgot_while_a_worker_was_silent_are_published_again(
    database: str, monkeypatch: pytest.MonkeyPatch
):
    async def test(here: Room) -> None:
        _, members = await here.worker("one")
        query = "SELECT evaluation_key FROM resident_keys ORDER BY 1"
        await members.publish({"a", "b"})
        await here.sql("DELETE FROM resident_keys WHERE evaluation_key = 'a'")
        await here.sql("INSERT INTO resident_keys VALUES ('c', 'one')")
        await members.publish({"a", "b"})
        assert [row[0] for row in await here.sql(query)] == ["b", "c"], "what is written is believed for a while"
        monkeypatch.setattr(members_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 60))
        await members.publish({"a", "b"})
        assert [row[0] for row in await here.sql(query)] == ["a", "b"]
        await members.publish({"b"})
        assert [row[0] for row in await here.sql(query)] == ["b"]

    in_room(database, test)


def test_turns_in_the_database_are_those_of_one_process(database: str):
    """What two workers take in turn of three tenants, one of whom comes later, and what is given back is not charged."""

    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        workers = [(await here.worker(name))[0] for name in ("one", "two")]
        for _ in range(8):
            for tenant in ("a", "b"):
                await web.post(call(tenant, seconds=1.0))
        took = []
        for turn in range(12):
            if turn == 4:
                for _ in range(4):
                    await web.post(call("late", seconds=1.0))
            (taken,) = (await workers[turn % 2].take([DIGEST], 1, True)).calls
            took.append(taken.tenant)
            await workers[turn % 2].end(taken, replace(DONE, busy_seconds=1.0))
        assert Counter(took[:4]) == {"a": 2, "b": 2}
        assert [Counter(took[first : first + 3]) for first in (4, 7)] == [Counter(("a", "b", "late"))] * 2
        query = "SELECT tenant, clock FROM turns WHERE level = 0 AND tenant <> '' ORDER BY tenant"
        before = [tuple(row) for row in await here.sql(query)]
        (taken,) = (await workers[0].take([DIGEST], 1, True)).calls
        assert [tuple(row) for row in await here.sql(query)] != before
        await workers[0].give_back([taken], [])
        assert [tuple(row) for row in await here.sql(query)] == before
        await workers[1].give_back([taken], [])  # which does not have it
        assert [tuple(row) for row in await here.sql(query)] == before

    in_room(database, test)


def test_kin_is_taken_with_its_head(database: str):
    async def test(here: Room) -> None:
        queue, _ = await here.worker("one")
        key = new_id()
        for _ in range(5):
            await queue.post(call(key=key, seconds=0.01))
        await queue.post(call(seconds=0.01))
        assert len((await queue.take([DIGEST], 1, True)).calls) == 5

    in_room(database, test)


def test_what_waits_and_what_is_out(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        queue, _ = await here.worker("one")
        for tenant, seconds in (("a", 1.0), ("a", 2.0), ("a", 9.0), ("b", 1.0)):
            await web.post(call(tenant, seconds=seconds))
        lines, out = await web.waiting(5.0)
        assert sorted((line.tenant, line.long, line.count, line.seconds) for line in lines) == [
            ("a", False, 2, 3.0),
            ("a", True, 1, 9.0),
            ("b", False, 1, 1.0),
        ]
        (taken,) = (await queue.take([DIGEST], 1, True)).calls
        lines, out = await web.waiting(5.0)
        assert sum(line.count for line in lines) == 3 and out == [
            Out(taken.id, "one", (False, taken.tenant, taken.evaluation_key, DIGEST), taken.seconds, None)
        ]

    in_room(database, test)


def test_a_fleet_leaves_one_worker_to_short_runs(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        queues = [(await here.worker(name))[0] for name in ("one", "two", "three")]
        for _ in range(4):
            await web.post(call("greedy", seconds=1800.0))
        took = [len(await queue.take([DIGEST], 2, True, LongRuns(5.0, 1))) for queue in queues]
        assert took == [1, 1, 0]
        await web.post(call("calm", seconds=0.01))
        assert [each.tenant for each in (await queues[2].take([DIGEST], 2, True, LongRuns(5.0, 1))).calls] == ["calm"]

    in_room(database, test)


def test_what_a_hung_engine_had_waits_again_or_has_failed_and_the_rest_is_left(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web", most=2)
        queue, _ = await here.worker("one", most=2)
        for _ in range(2):
            await web.post(call())
        first, second = (await queue.take([DIGEST], 2, True)).calls
        assert await queue.lose({first.id}) == []
        query = "SELECT id, state, attempts FROM calls ORDER BY state"
        assert [tuple(row) for row in await here.sql(query)] == [(second.id, "leased", 1), (first.id, "queued", 1)]
        (again,) = (await queue.take([DIGEST], 1, False)).calls or (await queue.take([DIGEST], 1, True)).calls
        await queue.lose({again.id})
        (end,) = await web.collect([first.id, second.id])
        assert isinstance(end, Failed) and (end.code, end.http_status) == ("engine_lost", 503)

    in_room(database, test)


def test_a_database_whose_clock_is_set_makes_nobody_dead(database: str):
    async def test(here: Room) -> None:
        web, members = await here.worker("web", "web")
        queue, other = await here.worker("one")
        await web.post(call())
        assert len(await queue.take([DIGEST], 1, True)) == 1
        assert set(await members.heard()) == {"web", "one"}
        for step in (-3600, 3600):  # heartbeats seem old, or of the future
            await here.sql(f"UPDATE nodes SET heartbeat_at = heartbeat_at + {step}")
            heard = await members.heard()
            assert set(heard) == {"web", "one"} and not await web.anything_lost(heard)
            assert await web.recover(heard) == (0, [])
            await members.beat(MemberFacts("web", "1"))
            await other.beat(MemberFacts("worker", "1"))
        await here.sql("UPDATE nodes SET heartbeat_at = heartbeat_at - 60 WHERE id = 'one'")
        members.silent_seconds = 0.0  # nothing was heard of it in this time
        heard = [each for each in await members.heard() if each != "one"]
        assert await web.anything_lost(heard) and await web.recover(heard) == (1, [])

    in_room(database, test)


def test_a_tenant_by_itself_has_all_workers(database: str):
    async def test(here: Room) -> None:
        web, _ = await here.worker("web", "web")
        queues = [(await here.worker(name))[0] for name in ("one", "two")]
        values = "'{}', 'greedy', 'toy', '', '', 1, 'ready', '', 0, 0"
        await here.sql("DELETE FROM evaluation_keys")
        await here.sql(
            "INSERT INTO evaluation_keys (id, tenant, parameter_set, parameter_digest, sha256, bytes, state, secret_id, created_at, used_at) "
            f"VALUES ({values.format('a')})"
        )
        for _ in range(2):
            await web.post(call("greedy", seconds=1800.0))
        took = [len(await queue.take([DIGEST], 2, True, LongRuns(5.0, 1))) for queue in queues]
        await here.sql("DELETE FROM evaluation_keys")
        assert took == [1, 1]

    in_room(database, test)
