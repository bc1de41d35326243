"""A server with a toy model, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scoring_server import Server, running, toy_model

MODEL = "toy"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("server")
    (data / "models" / MODEL).mkdir(parents=True)
    toy_model().save(data / "models" / MODEL / "1.clkm")
    with running(data) as started:
        yield started
