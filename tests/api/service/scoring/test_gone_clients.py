"""Clients that go while their request waits or runs: it is dropped, costs nothing that was not begun, and keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from scoring_server import User, becomes, running

from cloakwork.api.http.error_answers import CLIENT_GONE

WAIT_SECONDS = 1.0


def waiting(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("fhe_requests_waiting "))


def test_who_goes_takes_the_request_with_them(tmp_path: Path, fill: Callable[[Path], Path]):
    limits = {"THREADS": "1", "SYNCHRONOUS_SECONDS": "60"}
    with running(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        short = user.encrypt(samples=2, seed=1)[1]
        user.infer(short).raise_for_status()

        def paid() -> int:
            return int(http.get("/v2/usage").json()["bootstraps_today"])

        before = paid()
        with server.engine_held():
            job = http.post("/v2/models/toy/jobs", content=short).raise_for_status().json()["id"]
            assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "running")
            for _ in range(3):  # behind it, so that they wait
                with pytest.raises(httpx.ReadTimeout):
                    user.infer(short, timeout=WAIT_SECONDS)
            assert becomes(lambda: waiting(http), 0)
            assert becomes(paid, before + 2 * user.facts["bootstraps"])  # the job's
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        assert sum(line.get("status") == CLIENT_GONE for line in server.log_lines()) == 3

        # One that an engine has is cancelled there, and paid for.
        before = paid()
        with server.engine_held(), pytest.raises(httpx.ReadTimeout):
            user.infer(short, timeout=WAIT_SECONDS)
        assert user.infer(short).status_code == 200
        assert becomes(paid, before + 2 * 2 * user.facts["bootstraps"])
        assert http.get("/v2/usage").json()["days"][0]["requests"] == 3  # answers, and the job
