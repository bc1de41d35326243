"""Many keys cost a database that answers late no more round trips than a few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from in_process import LocalServer, serving
from scoring_server import User
from sqlalchemy import event

from cloakwork.api.service.keys.shared_parts import PartRows, SharedParts


@pytest.fixture
def service(tmp_path: Path, fill: Callable[[Path], Path]) -> Iterator[LocalServer]:
    """Its uploads are rows, as of one that shares its database."""
    with serving(fill(tmp_path / "data")) as server:
        services, folder = server.services, tmp_path / "scratch"
        folder.mkdir()
        parts = PartRows(services.database), services.keys, folder, services.usage, services.disk
        services.uploads.parts = SharedParts(None, *parts)  # type: ignore[arg-type]
        yield server


@contextmanager
def statements(server: LocalServer, *words: str) -> Iterator[list[str]]:
    """What the database is asked meanwhile that has these words, once each time it travels."""
    found: list[str] = []

    def listen(_: object, __: object, statement: str, *___: object) -> None:
        if all(word in statement for word in words):
            found.append(statement)

    engine = server.services.database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", listen)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", listen)


def opened(http: httpx.Client, user: User, number: int) -> str:
    key: str = http.post("/v2/keys", json=user.announcement(sha256=f"{number:064x}")).raise_for_status().json()["id"]
    return key


def test_a_list_of_open_uploads_is_one_statement(service: LocalServer):
    with service.client() as http:
        user, counts = User.of(http), []
        for number in range(8):
            opened(http, user, number)
            with statements(service, "SELECT", "FROM evaluation_keys") as asked:
                keys = http.get("/v2/keys").raise_for_status().json()["keys"]
            assert len(keys) == number + 1 and {key["offset"] for key in keys} == {0}
            counts.append(len(asked))
        assert set(counts) == {1}


def test_uses_of_many_keys_are_written_together(service: LocalServer):
    with service.client() as http:
        user = User.of(http)
        keys = [opened(http, user, number) for number in range(8)]
        later = max(key["used_at"] for key in http.get("/v2/keys").json()["keys"]) + 1000

        async def use() -> None:
            service.services.keys._used = {**dict.fromkeys(keys[1:], later), keys[0]: 1.0}
            await service.services.keys.flush_used()

        with statements(service, "UPDATE evaluation_keys") as asked:
            service.do(use())
        assert len(asked) == 1
        used = {key["id"]: key["used_at"] for key in http.get("/v2/keys").json()["keys"]}
        assert {used[key] for key in keys[1:]} == {later} and used[keys[0]] > 1.0, "no use is set back"
