"""Servers with a toy model that the files share, and the command line inside this process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scoring_server import Server, running, toy_model

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
def call(call: Call, tmp_path: Path) -> Call:
    """As everywhere; its keys are in `home`."""

    def with_home(*arguments: str, folder: Path = tmp_path, environment: dict[str, str] | None = None) -> Any:
        home = {"CLOAKWORK_HOME": str(folder / "home")}
        return call(*arguments, folder=folder, environment={**home, **(environment or {})})

    return with_home
