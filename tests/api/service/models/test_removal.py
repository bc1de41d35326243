"""The bytes of a version that is removed: kept for jobs, gone after them, and the number stays taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from in_process import describe
from scoring_server import with_tables
from sqlalchemy import insert, update

from cloakwork.api.database.connection import DATABASE_FILE, Database
from cloakwork.api.database.tables import jobs
from cloakwork.api.errors import GoneError, UnknownModelError
from cloakwork.api.service.clock import now
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.models.records import ModelRecords
from cloakwork.api.service.storage.object_store import ObjectStore
from cloakwork.api.start_checks import migrate
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.repository_files import next_version

Work = Callable[[Models, Database], Awaitable[None]]


def on_folder(data: Path, store: ObjectStore | None, work: Work) -> None:
    url = f"sqlite:///{data / DATABASE_FILE}"
    with_tables(data)

    async def run() -> None:
        database = Database(url)
        await migrate(database, url)
        models = Models(data / "models", ModelRecords(database), zoo=False, store=store)
        models._describe = partial(describe, models)  # type: ignore[method-assign]
        try:
            await models.scan()
            await work(models, database)
        finally:
            await models.end()
            await database.close()

    asyncio.run(run())


async def waiting_job(database: Database, model: str) -> None:
    numbers = {"priority": 5, "samples": 1, "bootstraps": 1, "input_bytes": 1, "attempts": 0, "created_at": now()}
    texts = {"tenant": "t", "program_digest": "", "evaluation_key": "", "request_sha256": "", "node": ""}
    row = {"id": "job", "model": model, "version": "1", "state": "queued", **numbers, **texts}
    async with database.write() as connection:
        await connection.execute(insert(jobs).values(**row))


async def end_job(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(update(jobs).values(state="done"))


@pytest.mark.parametrize("is_shared", [False, True])
def test_bytes_go_when_no_job_needs_them(
    tmp_path: Path, fill: Callable[[Path], Path], compiled: CompiledModel, is_shared: bool
):
    store = None
    if is_shared:
        pytest.importorskip("obstore")
        (tmp_path / "bucket").mkdir()
        store = ObjectStore((tmp_path / "bucket").as_uri())
    folder = fill(tmp_path / "data") / "models" / "toy"

    def files() -> list[str]:
        return sorted(path.name for path in folder.iterdir())

    def objects() -> int:
        return sum(path.is_file() for path in (tmp_path / "bucket").rglob("*"))

    async def work(models: Models, database: Database) -> None:
        assert objects() == (2 if is_shared else 0), "the artefact and its facts"
        await waiting_job(database, "toy")
        await models.retire("toy", "1", remove=True)
        with pytest.raises(GoneError):
            models.find("toy", "1")
        await models.remove_ended()
        await models.remove_ended(keep_seconds=-1)
        assert files() == ["1.clkm", "1.json"]
        assert models.accepted("toy", "1").version == "1", "what was accepted ends"
        await end_job(database)
        await models.remove_ended()
        assert files() == ["1.clkm", "1.json"], "a request may just have been accepted"
        await models.remove_ended(keep_seconds=-1)
        assert files() == ["1.retired"] and next_version(folder) == 2
        assert objects() == 0
        with pytest.raises(UnknownModelError):
            await models.retire("toy", "1", remove=True)
        assert models.index() == [{"name": "toy", "version": "1", "state": "UNAVAILABLE", "reason": "removed"}]
        compiled.save(folder / "1.clkm")
        await models.scan()
        with pytest.raises(GoneError):
            models.find("toy", "1")

    on_folder(tmp_path / "data", store, work)


def test_objects_of_no_version_are_unknown(tmp_path: Path, fill: Callable[[Path], Path]):
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    store = ObjectStore((tmp_path / "bucket").as_uri())

    async def work(models: Models, _: Database) -> None:
        assert models.shared is not None
        for name in ("models/toy/1/" + "0" * 64 + ".clkm", "models/toy/2/" + "0" * 64 + ".clkm"):
            await store.put(name, b"of a service that was killed")
        folder = models.shared.folder()
        assert await folder.names(3600.0) == [], "perhaps being published"
        (row,) = (await models.records.all()).values()
        left = sorted(name.rpartition("/")[2] for name in await folder.known(await folder.names(0.0)))
        assert left == [f"{row.artefact_sha256}.clkm", f"{row.artefact_sha256}.json"]

    on_folder(fill(tmp_path / "data"), store, work)


class FailingStore(ObjectStore):
    """Takes nothing until it is mended."""

    broken = True

    async def put(self, name: str, content: Path | bytes) -> None:
        if self.broken:
            raise OSError("the storage does not answer")
        await super().put(name, content)


def test_a_storage_that_does_not_answer_at_the_start(tmp_path: Path, fill: Callable[[Path], Path]):
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    store = FailingStore((tmp_path / "bucket").as_uri())

    async def work(models: Models, _: Database) -> None:
        assert models.index() == [], "nothing is served that others could not have"
        store.broken = False
        models._publish_at = 0.0
        await models.refresh()
        assert models.find("toy").version == "1"

    on_folder(fill(tmp_path / "data"), store, work)
