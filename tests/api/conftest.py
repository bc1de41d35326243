"""Fixtures around a running server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from in_process import Clock, LocalServer, Restarts, serving
from scoring_server import User, toy_model, with_model

from cloakwork.api.service import clock as clock_module
from cloakwork.models.compiled import CompiledModel


@pytest.fixture(scope="session")
def compiled() -> CompiledModel:
    return toy_model()


@pytest.fixture(scope="session")
def fill(compiled: CompiledModel) -> Callable[[Path], Path]:
    """Puts the toy model and its facts into a data folder."""

    return partial(with_model, compiled=compiled)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[LocalServer]:
    """One for all tests of a module that leave it as they found it."""
    with serving(fill(tmp_path_factory.mktemp("server") / "data")) as started:
        yield started


@pytest.fixture(
    params=["stopped", pytest.param("killed", marks=[pytest.mark.tier("all"), pytest.mark.os_entropy])],
)
def restart(request: pytest.FixtureRequest) -> Restarts:
    return Restarts(request.param == "killed")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which keys and results expire, of a server in this process."""
    ahead = Clock()
    monkeypatch.setattr(clock_module, "time", ahead)
    monkeypatch.setattr(clock_module.retention, "_moment", ahead.monotonic)
    return ahead


@pytest.fixture
def http(server: LocalServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def user(http: httpx.Client) -> User:
    return User.of(http)
