"""Fixtures around a running server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from scoring_server import Server, User, running, toy_model

from cloakwork.models.compiler import CompiledModel


@pytest.fixture(scope="session")
def compiled() -> CompiledModel:
    return toy_model()


@pytest.fixture(scope="session")
def fill(compiled: CompiledModel) -> Callable[[Path], Path]:
    """Puts the toy model into a data folder."""

    def put(data: Path) -> Path:
        folder = data / "models" / "toy"
        folder.mkdir(parents=True)
        compiled.save(folder / "1.clkm")
        return data

    return put


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    """One for all tests that leave it as they found it."""
    with running(fill(tmp_path_factory.mktemp("server") / "data")) as started:
        yield started


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def user(http: httpx.Client) -> User:
    return User.of(http)
