"""A service with another database, or an empty one, starts on no storage that is in use, and deletes nothing there."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from in_process import LocalServer, serving
from postgresql import needs_postgresql, postgresql
from scoring_server import User, becomes, with_tables

from cloakwork.api.database.connection import DATABASE_FILE, Database
from cloakwork.api.service.storage import pairing
from cloakwork.api.service.storage.objects import MARK, FileStorage
from cloakwork.fhe_core.errors import ParameterError

OLD_SECONDS = 7200
QUICK = {"RETENTION_CHECK_SECONDS": "0.05"}


@pytest.fixture
def used(tmp_path: Path, fill: Callable[[Path], Path]) -> Path:
    """The data folder of a service that has ended, with a key."""
    with serving(fill(tmp_path / "data")) as server, server.client() as http:
        User.of(http).upload()
    return tmp_path / "data"


def stored(data: Path) -> list[str]:
    """Keys, inputs and results."""
    return sorted(str(path.relative_to(data)) for path in (data / "objects").glob("*/*") if path.is_file())


def lose_database(data: Path) -> None:
    for file in data.glob(f"{DATABASE_FILE}*"):
        file.unlink()


def another_database(data: Path) -> None:
    """One that a service has used elsewhere."""
    lose_database(data)
    with serving(data.parent / "elsewhere"):
        pass
    shutil.copy(data.parent / "elsewhere" / DATABASE_FILE, data / DATABASE_FILE)


def empty_database(data: Path) -> None:
    lose_database(data)
    with_tables(data)


def make_old(path: Path) -> Path:
    os.utime(path, (time.time() - OLD_SECONDS,) * 2)
    return path


@contextmanager
def swept_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pairing, "ANNOUNCED_SECONDS", 0.0)
    yield


@pytest.mark.parametrize("change", [another_database, empty_database], ids=["another", "empty"])
def test_a_storage_of_another_database_is_refused(used: Path, change: Callable[[Path], None]):
    before = stored(used)
    change(used)
    with pytest.raises(ParameterError, match=r"belongs to another database .*adopt_storage") as refusal, serving(used):
        pass
    assert str(used / "objects") in str(refusal.value)
    assert stored(used) == before


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_lost_database_is_no_fresh_start(used: Path):
    """As a process: one line, status 2, and no empty database in the old one's place."""
    before = stored(used)
    lose_database(used)
    environment = {**os.environ, "CLOAKWORK_DATA_FOLDER": str(used), "CLOAKWORK_INSECURE_LOCAL": "true"}
    done = subprocess.run(
        [sys.executable, "-m", "cloakwork.api"], env=environment, capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and last.startswith("cloakwork: database: ") and DATABASE_FILE in last
    assert "Traceback" not in done.stderr
    assert stored(used) == before and not (used / DATABASE_FILE).exists()


def test_a_storage_of_an_earlier_release_is_known_by_its_objects(used: Path):
    """It carries nothing: the service that knows its objects goes on with it, another one does not."""
    (used / "objects" / MARK).unlink()
    with serving(used):
        pass
    assert (used / "objects" / MARK).exists()
    (used / "objects" / MARK).unlink()
    empty_database(used)
    with pytest.raises(ParameterError, match="1 of 1 objects"), serving(used):
        pass


def test_a_lost_audit_key_is_said(used: Path):
    (used / "audit.key").unlink()
    with serving(used) as server:
        assert said(server, "the audit key is missing") == 1


def test_an_empty_storage_beside_a_database_in_use_is_refused(used: Path):
    """A volume that is not mounted, a mistyped bucket: accepted jobs would fail for want of their inputs."""
    shutil.move(used / "objects", used / "elsewhere")
    with pytest.raises(ParameterError, match="is empty, and the database has 1 keys and jobs"), serving(used):
        pass


def test_whoever_says_so_takes_the_storage_over(used: Path, monkeypatch: pytest.MonkeyPatch):
    (key,) = (used / "objects" / "keys").iterdir()
    make_old(key)
    empty_database(used)
    with (
        swept_at_once(monkeypatch),
        serving(used, environment={**QUICK, "ADOPT_STORAGE": "true"}) as server,
    ):
        assert becomes(key.exists, False)
        said = [line["message"] for line in server.log_lines()]
    first, then = "objects without a row will be deleted", "objects without a row are deleted"
    assert said.index(first) < said.index(then)
    with serving(used):
        pass


@pytest.mark.parametrize("change", ["foreign", "emptied"])
def test_a_storage_that_changes_its_owner_is_noticed(tmp_path: Path, fill: Callable[[Path], Path], change: str):
    with serving(fill(tmp_path / "data"), environment=QUICK) as server, server.client() as http:
        mark = server.data / "objects" / MARK
        own = mark.read_text()
        mark.write_text("0" * 32) if change == "foreign" else mark.unlink()
        assert becomes(lambda: http.get("/v2/health/ready").status_code, 503)
        assert "another database" in http.get("/v2/health/ready").json()["error"]
        (said,) = [line for line in server.log_lines() if "do not belong together" in line["message"]]
        assert said["database_identity"] == own and said["level"] == "error"
        mark.write_text(own)
        assert becomes(lambda: http.get("/v2/health/ready").status_code, 200)


def test_nothing_is_deleted_when_most_objects_are_unknown(
    tmp_path: Path, fill: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
):
    """A copy of the database from before most of them came."""
    with (
        swept_at_once(monkeypatch),
        serving(fill(tmp_path / "data"), environment=QUICK) as server,
        server.client() as http,
    ):
        user = User.of(http)
        user.upload()
        keys = server.data / "objects" / "keys"
        unknown = [keys / f"{number:032x}" for number in range(2)]
        for path in unknown:
            path.write_bytes(b"x")
            make_old(path)
        assert becomes(lambda: said(server, "most objects of the storage have no row"), 1)
        unknown[1].unlink()
        assert becomes(lambda: said(server, "objects without a row are deleted"), 1), "half of them are not most"
        assert not unknown[0].exists() and stored(server.data)


class Interrupted:
    """Awaits `other` before the `turn`-th call of a method of `inner`; methods are counted over all that share `count`."""

    def __init__(
        self, inner: Any, methods: set[str], turn: int, count: Iterator[int], other: Callable[[], Awaitable[None]]
    ) -> None:
        self._inner, self._methods, self._turn, self._count, self._other = inner, methods, turn, count, other

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name not in self._methods:
            return inner
        if name in ("read", "write"):

            @asynccontextmanager
            async def transaction() -> AsyncIterator[Any]:
                await self._interrupt()
                async with inner() as connection:
                    yield connection

            return transaction

        async def call(*arguments: Any) -> Any:
            await self._interrupt()
            return await inner(*arguments)

        return call

    async def _interrupt(self) -> None:
        if next(self._count) == self._turn:
            await self._other()


def test_two_services_may_begin_on_a_new_database_and_storage_at_once(tmp_path: Path):
    """The second one begins and is done between any two steps of the first."""

    async def begin(folder: Path, turn: int) -> bool:
        with_tables(folder)
        database, storage = Database(f"sqlite:///{folder / DATABASE_FILE}"), FileStorage(folder / "objects")
        interrupted = False

        async def other() -> None:
            nonlocal interrupted
            interrupted = True
            await pairing.Pairing(database, storage, adopt=False).require([])

        count = itertools.count()
        first = pairing.Pairing(
            cast("Database", Interrupted(database, {"read", "write"}, turn, count, other)),
            cast("FileStorage", Interrupted(storage, {"mark", "set_mark"}, turn, count, other)),
            adopt=False,
        )
        await first.require([])
        await first.look()
        await database.close()
        assert not first.differs
        return interrupted

    turn = 0
    while asyncio.run(begin(tmp_path / str(turn), turn)):
        turn += 1
    assert turn > 5


def said(server: LocalServer, start: str) -> int:
    return sum(line["message"].startswith(start) for line in server.log_lines())


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_services_on_one_postgresql_and_a_mistyped_url(tmp_path: Path, fill: Callable[[Path], Path]):
    needs_postgresql()
    (tmp_path / "objects").mkdir()
    shared = {"STORAGE_URL": (tmp_path / "objects").as_uri(), "AUDIT_KEY": str(tmp_path / "audit.key")}
    (tmp_path / "audit.key").write_bytes(bytes(32))
    with postgresql() as first, postgresql() as second:
        right, wrong = ({**shared, "DATABASE_URL": url} for url in (first, second))
        with serving(fill(tmp_path / "a"), environment=right) as server, server.client() as http:
            User.of(http).upload()
            with serving(fill(tmp_path / "b"), environment=right):
                pass
            with pytest.raises(ParameterError, match="belongs to another database"):
                serving(fill(tmp_path / "c"), environment=wrong).__enter__()
        assert len(list((tmp_path / "objects" / "keys").iterdir())) == 1
