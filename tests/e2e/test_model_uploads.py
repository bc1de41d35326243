"""A compiled model from a file to a server over HTTP, by the client and by the command line, and scored there."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scoring_server import Server, toy_model

from cloakwork.app.client import AsyncClient, Client
from cloakwork.app.client.errors import ServiceError
from cloakwork.app.client.keyring import Keyring

pytestmark = [pytest.mark.os_entropy, pytest.mark.tier("all")]
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "sent.clkm"
    toy_model(seed=2).save(path)
    return path


def record(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_client_adds_a_model_and_scores_with_it(server: Server, artefact: Path, tmp_path: Path):
    with Client(server.url, keyring=Keyring(tmp_path / "keys", "word")) as client:
        added = client.add_model(artefact)
        assert (added["name"], added["version"], added["state"]) == ("sent", "1", "READY")
        x = np.random.default_rng(0).uniform(-0.7, 0.7, (2, 4))
        np.testing.assert_allclose(client.predict("sent", x), toy_model(seed=2).predict(x), atol=0.1)
        assert client.add_model(artefact)["version"] == "2"
        assert client.add_model(artefact, version="2")["version"] == "2", "the same bytes"
        client.call("DELETE", "/v2/repository/models/sent/versions/2?remove=true")
        assert client.add_model(artefact, load=False)["version"] == "3", "retired numbers are not given again"
        with pytest.raises(ServiceError) as refused:
            client.add_model(artefact, version="2")
        assert refused.value.status == 410


def test_the_asynchronous_client_adds_a_model(server: Server, artefact: Path):
    async def run() -> dict[str, Any]:
        async with AsyncClient(server.url) as client:
            return await client.add_model(artefact, "asynchronous")

    assert asyncio.run(run())["state"] == "READY"


def test_a_refusal_comes_before_a_large_body_is_sent(server: Server, tmp_path: Path):
    """No broken connection, and no second try: the server's words."""
    large = tmp_path / "large.clkm"
    with large.open("wb") as stream:
        stream.write(b"PK\x03\x04")
        stream.truncate(200 << 20)
    with Client(server.url) as client, pytest.raises(ServiceError) as refused:
        client.add_model(large)
    assert (refused.value.status, refused.value.service_code) == (422, "malformed")


def test_the_command_line_adds_and_removes(server: Server, artefact: Path, call: Call):
    url = ("--url", server.url)
    added = record(call("models", "add", str(artefact), "--name", "by-hand", *url, "--json", "-"))
    assert (added["name"], added["version"], added["parameter_set"]) == ("by-hand", "1", "toy_two_limb")
    waiting = call("models", "add", str(artefact), "--name", "by-hand", "--no-load", *url, "--json", "-")
    assert record(waiting)["reason"] == "unloaded"
    assert call("models", "remove", "by-hand", "1", "--bytes", *url).returncode == 0
    for arguments, says in (
        (("models", "add", str(artefact)), "--data"),
        (("models", "add", str(artefact), "--name", "../x", *url), "--name"),
    ):
        result = call(*arguments)
        assert result.returncode in (1, 2) and says in result.stderr and "Traceback" not in result.stderr
