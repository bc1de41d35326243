"""Sequences of requests against a service that runs: schemathesis follows the schema's links, with keys, ciphertexts and models of real clients."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from scoring_server import User, new_tenant, running, toy_model
from stateful import Traffic, covered, session

from cloakwork.models.compiler import CompiledModel

SECONDS = float(os.environ.get("CLOAKWORK_TEST_SECONDS", "0"))  # of each session; without them a few scenarios
SEED = int(os.environ.get("CLOAKWORK_TEST_SEED", "1"))
_SCOPES = ("score", "models", "metrics", "priority", "admin")
_SCENARIOS = 4


@pytest.mark.tier("all")
@pytest.mark.os_entropy
@pytest.mark.parametrize(
    "insecure",
    [
        pytest.param(False, id="tenants"),
        pytest.param(True, id="insecure-local", marks=pytest.mark.tier("release")),
    ],
)
def test_sequences_find_nothing(tmp_path: Path, fill: Callable[[Path], Path], compiled: CompiledModel, insecure: bool):
    """Ten minutes: CLOAKWORK_TEST_SECONDS=600 CLOAKWORK_TEST_SEED=2."""
    data = fill(tmp_path / "data")
    tokens = {} if insecure else {"mine": new_tenant(data, "mine", *_SCOPES), "theirs": new_tenant(data, "theirs")}
    spare = "" if insecure else new_tenant(data, "theirs").split("_")[1]
    with (
        running(data, insecure=insecure, environment={"BODY_IDLE_SECONDS": "2"}) as server,
        server.client(headers={} if insecure else {"Authorization": f"Bearer {tokens['mine']}"}) as http,
    ):
        users = [User.of(http) for _ in range(6)]
        traffic = Traffic(users, [compiled, toy_model(seed=1)], tokens, SEED, spare)
        limit = {"seconds": SECONDS} if SECONDS else {"rounds": 1, "each": _SCENARIOS}
        session(server.url, traffic, **limit)
        good, every = covered(http, traffic)
        counts = traffic.scenarios, traffic.statuses.total(), len(good), every
        logging.getLogger(__name__).info("%d scenarios, %d requests, %d of %d operations", *counts)
        assert not traffic.faults, "\n".join(f"{kind}: {text}" for kind, text in traffic.faults.items())
        assert {"POST /v2/models/{model}/infer", "POST /v2/models/{model}/jobs", "DELETE /v2/keys/{key}"} <= good
        assert http.get("/v2/health/ready").status_code == 200
        assert [line for line in server.log_lines() if line["level"] == "error"] == []
