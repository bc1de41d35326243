"""Statements of housekeeping have longer than those of requests: a large sweep does not fail for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgresql import needs_postgresql, postgresql
from sqlalchemy import text

from cloakwork.api.database import connection as module
from cloakwork.api.database.connection import Database
from cloakwork.api.service.fleet.members import Members
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.keys.shared_parts import PartRows
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.api.settings import load_settings
from cloakwork.api.start_checks import migrate

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

_HELD = "LOCK TABLE answers, evaluation_keys, jobs, nodes, turns, upload_parts IN ACCESS EXCLUSIVE MODE"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    needs_postgresql()
    with postgresql() as made:
        yield made


def test_chores_outlast_the_limit_of_a_request(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All of them find their tables locked for longer than that, as after very many rows."""

    async def run() -> list[BaseException | object]:
        patient = Database(url, patient=True)
        await migrate(patient, url)
        monkeypatch.setattr(module, "_STATEMENT_SECONDS", 0.2)
        hurried = Database(url)
        locked = asyncio.Event()

        async def hold() -> None:
            async with patient.write() as connection:
                await connection.execute(text(_HELD))
                locked.set()
                await connection.execute(text("SELECT pg_sleep(1)"))

        async def request() -> None:
            async with hurried.read() as connection:
                await connection.execute(text("SELECT count(*) FROM jobs"))

        holding = asyncio.create_task(hold())
        await locked.wait()
        chores = (
            JobStore(hurried, "me").past_retention(1.0),
            Keys(hurried).expired(1.0, 1.0),
            Usage(hurried, load_settings(data_folder=tmp_path)).forget_old(),
            PartRows(hurried).names(),
            Members(hurried, "me", 1.0).sweep(),
            WorkQueue(hurried, "me", 1.0, 3).sweep(),
        )
        try:
            return await asyncio.gather(request(), *chores, return_exceptions=True)
        finally:
            await holding
            await hurried.close()
            await patient.close()

    request, *chores = asyncio.run(run())
    assert isinstance(request, TimeoutError)
    assert not [each for each in chores if isinstance(each, BaseException)]
