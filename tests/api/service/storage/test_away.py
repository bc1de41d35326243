"""A storage and a database that do not answer: an error within seconds, which says that they are away, and nothing that is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from faulty_proxy import HANGS, PASS, REFUSED, FaultyProxy, faulty_proxy
from in_process import serving
from postgresql import needs_postgresql, postgresql
from scoring_server import User, becomes, eventually, job_result
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from two_services import pair, shared

from cloakwork.api.database import connection
from cloakwork.api.database.connection import Database
from cloakwork.api.service.storage import object_store, objects
from cloakwork.api.service.storage.disk import is_away
from cloakwork.api.service.storage.object_store import ObjectStore
from cloakwork.api.service.storage.objects import FileStorage, ObjectStorage

SECONDS = 0.3


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """Of a store that is not there."""
    pytest.importorskip("obstore")
    with faulty_proxy(9) as found:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{found.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(object_store, "ANSWER_SECONDS", SECONDS)
        monkeypatch.setattr(object_store, "_BYTES_A_SECOND", 1 << 30)
        yield found


@pytest.mark.os_entropy
@pytest.mark.parametrize("mode", [HANGS, "503", REFUSED])
def test_every_operation_ends_soon_and_says_that_the_storage_is_away(proxy: FaultyProxy, tmp_path: Path, mode: str):
    proxy.mode = mode
    store = ObjectStore("s3://bucket")
    large = tmp_path / "large"
    large.write_bytes(bytes(6 << 20))

    async def fails(work: Coroutine[Any, Any, object]) -> None:
        with pytest.raises(OSError, match="object storage") as raised:
            await work
        assert is_away(raised.value)  # not FileNotFoundError: nobody says that an object is gone

    async def run() -> None:
        await asyncio.gather(
            fails(store.put("a", b"x")),
            fails(store.put("a", large)),
            fails(store.read("a")),
            fails(store.fetch("a", tmp_path / "copy")),
            fails(store.byte_count("a")),
            fails(store.delete("a")),
            fails(store.names("a")),
        )

    began = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began < 20 * SECONDS
    assert not (tmp_path / "copy").exists()


def test_a_deletion_is_owed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    storage = ObjectStorage((tmp_path / "bucket").as_uri(), tmp_path / "cache")
    storage.place("keys/a").write_bytes(b"key")

    async def run() -> None:
        await storage.keep("keys/a")
        asked = 0

        async def away(name: str) -> None:
            nonlocal asked
            asked += 1
            raise OSError("away")

        with monkeypatch.context() as patched:
            patched.setattr(storage.store, "delete", away)
            await storage.delete("keys/a")
            await storage.delete("keys/b")  # nobody waits a second time
            assert storage.owed == ["keys/a", "keys/b"] and asked == 1
            with pytest.raises(OSError):
                await storage.settle("keys/a")
        assert storage.owed == ["keys/a", "keys/b"] and not storage.place("keys/a").exists()
        storage.excuse("keys/b")
        await storage.settle("keys/a")
        assert storage.owed == [] and await storage.names("keys") == []
        # What comes again under the same name is not deleted later.
        with monkeypatch.context() as patched:
            patched.setattr(storage.store, "delete", away)
            await storage.delete("keys/a")
        storage.place("keys/a").write_bytes(b"key")
        await storage.keep("keys/a")
        assert storage.owed == [] and await storage.names("keys") == ["keys/a"]

    asyncio.run(run())


def test_a_result_waits_for_the_storage_and_is_not_computed_again(
    tmp_path: Path, fill: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
):
    refused = 0

    async def keep(self: FileStorage, name: str) -> None:
        nonlocal refused
        if name.startswith("results/") and refused < 2:
            refused += 1
            raise OSError("away")

    monkeypatch.setattr(objects.FileStorage, "keep", keep)
    with serving(fill(tmp_path / "data")) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt()[1]
        expected = user.infer(body).content
        job = http.post("/v2/models/toy/jobs", content=body).json()["id"]
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        assert refused == 2 and http.get(f"/v2/jobs/{job}").json()["attempts"] == 1
        assert user.same_answer(http.get(f"/v2/jobs/{job}/result").content, expected)


@pytest.mark.os_entropy
@pytest.mark.parametrize("mode", [HANGS, REFUSED])
def test_a_database_that_takes_connections_and_says_nothing(mode: str, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("asyncpg")
    monkeypatch.setattr(connection, "_CONNECT_SECONDS", SECONDS)
    with faulty_proxy(9) as between:
        database = Database(f"postgresql://cloakwork@127.0.0.1:{between.port}/postgres")
        between.mode = mode

        async def run() -> None:
            with pytest.raises(OSError) as raised:
                async with database.read():
                    pass
            assert is_away(raised.value)
            await database.close()

        began = time.monotonic()
        asyncio.run(run())
        assert time.monotonic() - began < 20 * SECONDS


@pytest.mark.tier("release")
@pytest.mark.os_entropy
def test_a_database_that_hangs_costs_seconds(monkeypatch: pytest.MonkeyPatch):
    needs_postgresql()
    for name, seconds in (("_CONNECT_SECONDS", 2.0), ("_STATEMENT_SECONDS", 1.0), ("_POOL_SECONDS", 2.0)):
        monkeypatch.setattr(connection, name, seconds)
    with postgresql() as url, faulty_proxy(Path(url.partition("host=")[2]) / ".s.PGSQL.5432") as between:
        database = Database(f"postgresql://cloakwork@127.0.0.1:{between.port}/postgres")

        async def one() -> object:
            async with database.read() as opened:
                return (await opened.execute(text("SELECT 1"))).scalar()

        async def run() -> None:
            assert await asyncio.gather(*(one() for _ in range(5))) == [1] * 5
            await asyncio.to_thread(setattr, between, "mode", HANGS)
            began = time.monotonic()
            found = await asyncio.gather(*(one() for _ in range(25)), return_exceptions=True)  # more than the pool has
            assert all(isinstance(each, (OSError, SQLAlchemyError)) and is_away(each) for each in found), found
            assert time.monotonic() - began < 20
            await asyncio.to_thread(setattr, between, "mode", PASS)
            assert await asyncio.gather(*(one() for _ in range(5))) == [1] * 5
            await database.close()

        asyncio.run(run())


@pytest.mark.tier("release")
@pytest.mark.os_entropy
@pytest.mark.parametrize("mode", ["503", HANGS])
def test_two_services_without_their_storage(tmp_path: Path, fill: Callable[[Path], Path], mode: str):
    """What has its key goes on; what needs the storage gets 503 soon; afterwards all is there."""
    with shared(tmp_path, s3=True) as both:
        port = int(urlsplit(both.variables["AWS_ENDPOINT_URL"]).port or 0)
        with faulty_proxy(port) as between:
            both.variables["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{between.port}"
            with (
                pair(fill(tmp_path / "one"), tmp_path / "two", both) as (one, two),
                one.client() as http,
                two.client() as far,
            ):
                user, other = User.of(http), User.of(http)
                user.upload(), other.upload()
                body = user.encrypt()[1]
                expected = user.infer(body).raise_for_status().content
                job = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
                assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
                between.mode = mode
                began = time.monotonic()
                refused = http.post("/v2/models/toy/jobs", content=body)
                assert refused.status_code == 503 and refused.headers["Retry-After"] == "5", refused.text
                cold = far.post(
                    "/v2/models/toy/infer", content=other.encrypt()[1]
                )  # by the worker that has the key, if it asks first
                assert cold.status_code == 200 or (cold.status_code, cold.headers["Retry-After"]) == (503, "5"), (
                    cold.status_code
                )
                assert time.monotonic() - began < 60
                assert http.get("/v2/health/live").status_code == 200
                assert http.delete(f"/v2/jobs/{job}").status_code == 204
                between.mode = PASS
                assert eventually(
                    lambda: far.post("/v2/models/toy/infer", content=other.encrypt()[1]).status_code == 200
                )
                job = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
                assert user.same_answer(job_result(far, job), expected)
