"""Pages of long lists: complete, in order, each found by an index; on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from postgresql import needs_postgresql, postgresql
from scoring_server import with_tables
from sqlalchemy import event, insert, text

from cloakwork.api.database.connection import DATABASE_FILE, Database
from cloakwork.api.database.tables import answers, api_keys, evaluation_keys, jobs, tenants
from cloakwork.api.metrics import Activity
from cloakwork.api.service.administration.listings import Listings, Page
from cloakwork.api.service.clock import today
from cloakwork.api.service.jobs.store import JobEvents, JobProgress
from cloakwork.api.service.models.folder import Fault
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.api.settings import Settings, load_settings
from cloakwork.api.start_checks import migrate

JOBS, TENANTS = 5000, 450
STATES = ("queued", "running", "done", "failed", "cancelled")
SECRET = "s3cret-of-a-tenant"  # stands wherever a tenant's own text or digest may stand


POSTGRESQL = pytest.param("postgresql", marks=[pytest.mark.tier("all"), pytest.mark.os_entropy])


@pytest.fixture(params=["sqlite", POSTGRESQL])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        with_tables(tmp_path)
        yield f"sqlite:///{tmp_path / DATABASE_FILE}"
        return
    needs_postgresql()
    with postgresql() as found:
        yield found


def listings_of(database: Database, settings: Settings, models: Any = None) -> Listings:
    engines = SimpleNamespace(resident_keys=frozenset(["k" * 32]))
    dispatcher: Any = SimpleNamespace(engines=engines, waiting_of=lambda tenant: 3 if tenant == "tenant-7" else 0)
    events = JobEvents()
    events.heard(f"{1:032x}", JobProgress(5, 10, None))
    return Listings(settings, database, models, Usage(database, settings), dispatcher, events, Activity())


@asynccontextmanager
async def opened(url: str, tmp_path: Path) -> AsyncIterator[tuple[Listings, Database]]:
    database = Database(url)
    try:
        await migrate(database, url)
        yield listings_of(database, load_settings(data_folder=tmp_path)), database
    finally:
        await database.close()


def job_rows(count: int) -> list[dict[str, Any]]:
    """Many of the same moment, in no order."""
    rng = random.Random(1)
    rows = [
        {
            "id": f"{i:032x}",
            "tenant": "rare" if i % 1000 == 7 else f"tenant-{i % 5}",
            "model": "toy",
            "version": "1",
            "program_digest": "0" * 64,
            "evaluation_key": "e" * 32,
            "state": STATES[i % 5] if i < 100 else "done",
            "priority": 5,
            "samples": i,
            "bootstraps": 2 * i,
            "input_bytes": 10,
            "result_bytes": 4,
            "expected_bytes": 1,
            "idempotency_key": f"{SECRET}-{i}",
            "request_sha256": SECRET,
            "result_sha256": SECRET,
            "result_name": SECRET,
            "error_message": SECRET,
            "node": "n",
            "attempts": 1,
            "created_at": 1e9 + i // 7 + 0.1,
        }
        for i in range(count)
    ]
    rng.shuffle(rows)
    return rows


async def store(database: Database, table: Any, rows: list[dict[str, Any]]) -> None:
    async with database.write() as connection:
        for first in range(0, len(rows), 500):
            await connection.execute(insert(table), rows[first : first + 500])


async def all_pages(ask: Callable[[str | None], Awaitable[Page[dict[str, Any]]]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = None
    for _ in itertools.count():
        page = await ask(after)
        found += page.rows
        if page.next is None:
            return found
        assert page.next != after
        after = page.next
    raise AssertionError


def test_every_job_comes_once_the_newest_first(url: str, tmp_path: Path):
    async def run() -> None:
        async with opened(url, tmp_path) as (listings, database):
            rows = job_rows(JOBS)
            await store(database, jobs, rows)
            found = await all_pages(lambda after: listings.jobs(None, None, after, 200))
            expected = sorted(rows, key=lambda row: (row["created_at"], row["id"]), reverse=True)
            assert [row["id"] for row in found] == [row["id"] for row in expected]
            rare = await all_pages(lambda after: listings.jobs("rare", None, after, 2))
            assert [row["id"] for row in rare] == [row["id"] for row in expected if row["tenant"] == "rare"]
            for state in STATES:
                some = await all_pages(lambda after, state=state: listings.jobs(None, state, after, 7 + JOBS // 3))
                assert {row["id"] for row in some} == {row["id"] for row in rows if row["state"] == state}
            running = next(row for row in found if row["id"] == f"{1:032x}")
            assert running["progress"] == {"done": 5, "total": 10} and running["key"] == "e" * 32
            assert SECRET not in str(found)

    asyncio.run(run())


def test_jobs_that_come_between_pages_move_nothing(url: str, tmp_path: Path):
    async def run() -> None:
        async with opened(url, tmp_path) as (listings, database):
            rows = job_rows(40)
            await store(database, jobs, rows[:30])
            first = await listings.jobs(None, None, None, 10)
            newer = [{**row, "created_at": 2e9} for row in rows[30:]]
            await store(database, jobs, newer)
            rest = await all_pages(lambda after: listings.jobs(None, None, after or first.next, 10))
            found = [row["id"] for row in [*first.rows, *rest]]
            assert sorted(found) == sorted(row["id"] for row in rows[:30])

    asyncio.run(run())


def test_tenants_with_what_they_use(url: str, tmp_path: Path):
    async def run() -> None:
        async with opened(url, tmp_path) as (listings, database):
            names = [f"tenant-{i}" for i in range(TENANTS)]
            own = {"max_bytes": 9, "max_queue": None, "models": "a b"}
            no_own = dict.fromkeys(own)
            rows = [{"id": name, "created_at": 1.0, **(own if name == "tenant-2" else no_own)} for name in names]
            await store(database, tenants, rows)
            await store(database, jobs, job_rows(100))
            key = {"tenant": "tenant-1", "parameter_set": "lut2", "state": "ready", "created_at": 1.0, "used_at": 2.0}
            digests = {"parameter_digest": SECRET, "sha256": SECRET, "secret_id": SECRET}
            await store(database, evaluation_keys, [{**key, **digests, "id": "k" * 32, "bytes": 1000}])
            token = {"tenant": "tenant-1", "token_sha256": SECRET, "scopes": "metrics score", "created_at": 1.0}
            ends = [
                {"expires_at": e, "revoked_at": r} for e, r in ((None, None), (1.0, None), (None, 5.0), (9e9, None))
            ]
            await store(database, api_keys, [{**token, **end, "id": f"{i:016x}"} for i, end in enumerate(ends)])

            given = {"tenant": "tenant-1", "day": today()}
            await store(database, answers, [{**given, "model": m, "answers": n} for m, n in (("a", 5), ("b", 7))])

            found = await all_pages(lambda after: listings.tenants(after, 100))
            assert [row["tenant"] for row in found] == sorted(names)
            assert {row["tenant"]: row["most_answers_today"] for row in found} == {
                **dict.fromkeys(names, 0),
                "tenant-1": 7,
            }
            by_name = {row["tenant"]: row for row in found}
            assert by_name["tenant-2"]["models"] == ["a", "b"] and by_name["tenant-2"]["limits"]["bytes"] == 9
            default = load_settings(data_folder=tmp_path)
            assert by_name["tenant-3"]["limits"]["bytes"] == default.tenant_bytes
            assert by_name["tenant-3"]["models"] is None and by_name["tenant-7"]["waiting"] == 3
            # 100 jobs in turn of five tenants, one of them "rare": each has queued, running or neither
            assert by_name["tenant-1"]["bytes_stored"] == {
                "keys": 1000,
                "inputs": 200,
                "results": 80,
                "expected_results": 20,
                "total": 1300,
            }
            assert by_name["tenant-1"]["api_keys"] == 2 and by_name["tenant-9"]["api_keys"] == 0

            shown = (await listings.api_keys("tenant-1", None, 10)).rows
            assert [row["state"] for row in shown] == ["valid", "revoked", "expired", "valid"]
            (evaluation,) = (await listings.keys(None, None, 10)).rows
            assert evaluation["resident"] and evaluation["expires_at"] == 2.0 + default.key_retention_seconds
            assert SECRET not in str([found, shown, evaluation])

    asyncio.run(run())


def test_a_page_is_found_by_an_index(tmp_path: Path):
    """SQLite says how it goes about a statement: no table is read whole, nothing is sorted."""
    with_tables(tmp_path)

    async def run() -> None:
        async with opened(f"sqlite:///{tmp_path / DATABASE_FILE}", tmp_path) as (listings, database):
            await store(database, tenants, [{"id": "bob", "created_at": 1.0}])
            statements: list[tuple[str, Any]] = []
            event.listen(
                database._engine.sync_engine,
                "before_cursor_execute",
                lambda _c, _k, statement, parameters, *_: statements.append((statement, parameters)),
            )
            place = "41cdcd6500000000" + "0" * 32
            for after in (None, place):
                for tenant in (None, "alice"):
                    await listings.jobs(tenant, None, after, 50)
                    await listings.keys(tenant, after, 50)
                    await listings.api_keys(tenant, after and after[:32], 50)
                await listings.jobs(None, "done", after, 50)
            await listings.tenants("alice", 50)
            asked = [each for each in statements if each[0].startswith("SELECT")]
            assert len(asked) >= 15
            for statement, parameters in asked:
                async with database.read() as connection:
                    plan = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
                    steps = [str(row[3]) for row in plan]
                whole = [step for step in steps if step.startswith("SCAN") and "USING" not in step]
                assert whole == [], (statement, steps)
                if "sum(jobs." in statement:
                    assert any("COVERING INDEX job_bytes_by_tenant" in step for step in steps), (statement, steps)
                if "jobs" in statement and "LIMIT" in statement and "tenant =" not in statement:
                    assert not [step for step in steps if "TEMP B-TREE" in step], (statement, steps)

    asyncio.run(run())


def test_places_that_nobody_was_given_end_nothing(url: str, tmp_path: Path):
    """Times that are none, and those before and after everything."""

    async def run() -> None:
        async with opened(url, tmp_path) as (listings, database):
            await store(database, jobs, job_rows(10))
            sizes = [
                len((await listings.jobs(None, None, moment + "f" * 32, 50)).rows)
                for moment in ("7ff8000000000000", "7ff0000000000000", "fff0000000000000", "0" * 16, "f" * 16)
            ]
            assert all(size in (0, 10) for size in sizes) and sizes[1:4] == [10, 0, 0]

    asyncio.run(run())


def test_the_indices_are_those_of_the_tables(url: str, tmp_path: Path):
    """The steps make what `tables` says."""

    async def run() -> None:
        async with opened(url, tmp_path) as (_, database):
            query = (
                "SELECT name FROM sqlite_master WHERE type = 'index'"
                if database.is_sqlite
                else "SELECT indexname FROM pg_indexes"
            )
            async with database.read() as connection:
                made = {row[0] for row in await connection.execute(text(query))}
            declared = {str(index.name) for table in (jobs, evaluation_keys, api_keys) for index in table.indexes}
            assert declared <= made

    asyncio.run(run())


def model(name: str, version: str) -> tuple[Any, str]:
    return SimpleNamespace(name=name, version=version, bootstraps=1, facts={"parameter_set": "lut2"}), "loaded"


def test_versions_of_models_in_their_order(tmp_path: Path):
    names = [f"model-{i:03}" for i in range(40)]
    versions = ("2", "10", "10-beta", "latest")
    every = [model(name, version) for name in names for version in versions]
    fault = ("model-007", "11"), Fault("its file is damaged", None, 9)
    models: Any = SimpleNamespace(every=lambda: every, faults=lambda: [fault])
    database = Database(f"sqlite:///{tmp_path / 'test.db'}")
    listings = listings_of(database, load_settings(data_folder=tmp_path), models)

    async def run() -> list[dict[str, Any]]:
        async def ask(after: str | None) -> Page[dict[str, Any]]:
            return listings.models(after, 7)

        return await all_pages(ask)

    found = asyncio.run(run())
    places = [(name, version) for name in names for version in versions]
    places.insert(places.index(("model-007", "10")) + 1, fault[0])
    assert [(row["name"], row["version"]) for row in found] == places
    states = {(row["name"], row["version"]): (row["state"], row["reason"]) for row in found}
    assert states.pop(fault[0]) == ("unavailable", "its file is damaged") and set(states.values()) == {("loaded", "")}
    assert listings.models("model-039/zzz", 7).rows == [] and listings.models("zzz/1", 7).next is None
