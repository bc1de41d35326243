"""Processes that a service starts and waits for: one that hangs is killed, and what waited for it goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from scoring_server import toy_model

from cloakwork.api.database.connection import Database
from cloakwork.api.errors import UnavailableError
from cloakwork.api.service import children
from cloakwork.api.service.models.folder import Incoming
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.models.records import ModelRecords
from cloakwork.api.start_checks import migrate
from cloakwork.fhe_core.errors import ParameterError

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

# Python loads it first: a process whose arguments have this module sends itself this signal while the file is there.
STOPS = """
import os, signal, sys
if os.environ["STOPS_MODULE"] in sys.orig_argv and os.path.exists(os.environ["STOPS"]):
    os.kill(os.getpid(), int(os.environ["STOPS_BY"]))
"""


@pytest.fixture
def stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Lets processes of a module stop, until the file that it gives is gone."""
    folder, file = tmp_path / "site", tmp_path / "stops"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(STOPS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("STOPS", str(file))
    monkeypatch.setattr(children, "STILL_SECONDS", 1.0)
    monkeypatch.setattr(children, "_LOOK_SECONDS", 0.2)

    def stop(module: str, by: signal.Signals = signal.SIGSTOP) -> Path:
        file.touch()
        monkeypatch.setenv("STOPS_BY", str(int(by)))
        monkeypatch.setenv("STOPS_MODULE", module)
        return file

    yield stop
    assert [each for each in psutil.Process().children() if each.status() == psutil.STATUS_STOPPED] == []


@pytest.mark.parametrize("by, why", [(signal.SIGSTOP, "stood still"), (signal.SIGKILL, "signal 9")])
def test_models_whose_description_hangs_or_is_killed_are_unavailable_and_described_later(
    tmp_path: Path, stops: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, by: signal.Signals, why: str
):
    file = stops("cloakwork.models.repository", by)
    (tmp_path / "models" / "toy").mkdir(parents=True)
    toy_model().save(tmp_path / "models" / "toy" / "1.clkm")
    monkeypatch.setattr("cloakwork.api.service.models.models._LOOK_SECONDS", 0.1)
    monkeypatch.setattr("cloakwork.api.service.models.models._AGAIN_SECONDS", 0.1)

    async def run() -> None:
        database = Database(f"sqlite:///{tmp_path / 'cloakwork.db'}")
        file_of_tables = file.rename(tmp_path / "later")
        await migrate(database, f"sqlite:///{tmp_path / 'cloakwork.db'}")
        file_of_tables.rename(file)
        models = Models(tmp_path / "models", ModelRecords(database), zoo=False)
        try:
            await models.begin()
            (entry,) = models.index()
            assert (entry["state"], why in entry["reason"]) == ("UNAVAILABLE", True)
            with pytest.raises(UnavailableError, match=why):
                models.find("toy")
            file.unlink()
            async with asyncio.timeout(60):
                while models.index()[0]["state"] != "READY":
                    await asyncio.sleep(0.05)
            assert models.find("toy").version == "1" and models.faults() == []
        finally:
            await models.end()
            await database.close()

    asyncio.run(run())


@pytest.mark.parametrize("by, why", [(signal.SIGSTOP, "does not end"), (signal.SIGKILL, "was killed")])
def test_a_model_that_was_sent_and_whose_description_hangs_or_is_killed_is_refused_for_now(
    tmp_path: Path, stops: Callable[..., Path], by: signal.Signals, why: str
):
    file = stops("cloakwork.models.repository", by)
    toy_model().save(tmp_path / "toy.clkm")
    (tmp_path / "models").mkdir()

    async def run() -> None:
        incoming = Incoming(tmp_path / "models")
        artefact = incoming.new(".clkm")
        shutil.copy(tmp_path / "toy.clkm", artefact)
        with pytest.raises(UnavailableError, match=why):
            await incoming.describe(artefact)
        file.unlink()
        await incoming.describe(artefact)
        assert artefact.with_suffix(".json").exists()

    asyncio.run(run())


def test_a_start_whose_migration_hangs_ends_with_the_reason(tmp_path: Path, stops: Callable[..., Path]):
    stops("cloakwork.api.database.migrate")
    url = f"sqlite:///{tmp_path / 'cloakwork.db'}"

    async def run() -> None:
        database = Database(url)
        try:
            with pytest.raises(ParameterError, match=r"cloakwork\.db are not made .*stood still.*start again"):
                await migrate(database, url)
        finally:
            await database.close()

    asyncio.run(run())


def test_what_computes_is_not_hung_and_what_is_cancelled_is_killed(
    tmp_path: Path, stops: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    """Longer than it may stand still; it computes all the while."""
    (tmp_path / "site" / "busy_module.py").write_text(
        "import sys, time\nend = time.process_time() + 2\nwhile time.process_time() < end: pass\nsys.exit(3)\n"
    )
    stops("nothing")
    assert asyncio.run(children.run_module("busy_module")).status == 3

    async def cancelled() -> None:
        others = set(psutil.Process().children())  # of this worker's other tests
        task = asyncio.create_task(children.run_module("busy_module"))
        while not (started := set(psutil.Process().children()) - others):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert all(not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in started)

    asyncio.run(cancelled())
