"""Servers with a toy model that the files share, and the command line inside this process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scoring_server import Server, running, toy_model

from cloakwork.app.cli import main

MODEL = "toy"
Call = Callable[..., subprocess.CompletedProcess[str]]


def with_toy_model(folder: Path) -> Path:
    (folder / "models" / MODEL).mkdir(parents=True)
    toy_model().save(folder / "models" / MODEL / "1.clkm")
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(with_toy_model(tmp_path_factory.mktemp("server"))) as started:
        yield started


@pytest.fixture(scope="session")
def job_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It answers nothing at once: every request becomes a job, of at most two samples."""
    data = with_toy_model(tmp_path_factory.mktemp("jobs"))
    with running(data, environment={"MAX_SAMPLES": "2", "SYNCHRONOUS_SECONDS": "1e-9"}) as started:
        yield started


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """call(*arguments, folder=, environment={}): a command in a folder, without a terminal, inside this process; its keys are in `home`."""

    def call(
        *arguments: str, folder: Path = tmp_path, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "stdin", io.StringIO())
            for name in [
                each for each in os.environ if each.startswith("CLOAKWORK_") and each != "CLOAKWORK_ALLOW_TOY"
            ]:
                patch.delenv(name)
            for name, value in {"CLOAKWORK_HOME": str(folder / "home"), **(environment or {})}.items():
                patch.setenv(name, value)
            capfd.readouterr()
            status = main.run(list(arguments))
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, status, output, errors)

    return call


@pytest.fixture(scope="session")
def wait_for() -> Callable[[Callable[[], Any], str], Any]:
    """wait_for(condition, what): asks again until it holds, and returns its last answer; fails after two minutes."""

    def wait(condition: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + 120
        while not (answer := condition()):
            assert time.monotonic() < end, f"waited in vain: {what}"
            time.sleep(0.02)
        return answer

    return wait
