"""Models for batches from a server process: added, asked and replayed on the command line; labels are those in clear."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from batch_user import models, table
from scoring_server import Server, running

from cloakwork.app.cli.main import run
from cloakwork.models.batches.model import BatchModel

pytestmark = [pytest.mark.os_entropy, pytest.mark.tier("all")]
NAMES = ["sums", "queries", "program", "powers"]
X = table(seed=5)[0][:4]


@pytest.fixture(scope="module")
def batches() -> dict[str, BatchModel]:
    return models()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, batches: dict[str, BatchModel]) -> Path:
    made = tmp_path_factory.mktemp("batches")
    np.save(made / "x.npy", X)
    (made / "data").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        for name, model in batches.items():
            model.save(made / f"{name}.clkb")
            assert run(["models", "add", f"{name}.clkb", "--data", "data"]) == 0
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with running(folder / "data") as started:
        yield started


@pytest.fixture
def record(call: Callable[..., CompletedProcess[str]], folder: Path) -> Callable[..., dict[str, Any]]:
    """What a command says in JSON."""

    def ask(*arguments: str) -> dict[str, Any]:
        done = call(*arguments, "--json", "-", folder=folder, environment={"CLOAKWORK_PASSPHRASE": "word"})
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return ask


@pytest.mark.parametrize("name", NAMES)
def test_scored_and_replayed(
    server: Server, batches: dict[str, BatchModel], record: Callable[..., dict[str, Any]], name: str
) -> None:
    """Also with the evaluation keys that the service has."""
    asked = ("score", "x.npy", "--model", name, "--url", server.url)
    for audit, more in ((f"{name}.clka", ()), (f"{name}-keyless.clka", ("--no-audit-keys",))):
        found = record(*asked, "--audit", audit, *more)
        assert found["predictions"] == list(batches[name].predict(X))
        again = record("replay", audit, "--data", "data")
        assert again["equal"] and again["result"] == "the same, byte for byte"
