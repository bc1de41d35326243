"""Tenants: API keys, scopes, isolation, quotas."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import serving
from scoring_server import Server, User, becomes, new_tenant, with_tenants

from cloakwork.api.errors import UnauthorisedError
from cloakwork.api.service.tenants.tenants import Tenants
from cloakwork.fhe_core.errors import FheError, ParameterError


def identity(token: str) -> str:
    return token.split("_")[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("tenants") / "data")
    new_tenant(data, "first")
    with serving(data, insecure=False) as started:
        yield started


def as_tenant(server: Server, name: str, *scopes: str, **limits: int) -> httpx.Client:
    return server.client(headers={"Authorization": f"Bearer {new_tenant(server.data, name, *scopes, **limits)}"})


def test_without_a_valid_api_key_nothing_is_told(server: Server):
    token = new_tenant(server.data, "somebody")
    wrong = [None, "nonsense", "cw_0000000000000000_" + "a" * 43, token[:-1] + ("a" if token[-1] != "a" else "b")]
    with server.client() as http:
        answers = set()
        for each in wrong:
            headers = {} if each is None else {"Authorization": f"Bearer {each}"}
            for path in ("/v2/models", "/v2/keys", "/v2/jobs", "/v2/usage", "/metrics"):
                answer = http.get(path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                answers.add(answer.json()["error"])
        assert http.get("/v2/health/ready").status_code == 200
    assert all(token not in answer for answer in answers)


def test_scopes(server: Server):
    with as_tenant(server, "scorer") as http:
        assert http.get("/v2/models").status_code == 200
        for answer in (http.post("/v2/repository/models/toy/unload"), http.get("/metrics")):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    with as_tenant(server, "operator", "models", "metrics") as http:
        assert http.post("/v2/repository/index").status_code == 200
        assert http.get("/metrics").status_code == 200
        assert http.get("/v2/keys").status_code == 403


def test_a_tenant_never_sees_another_one(server: Server):
    with as_tenant(server, "alice") as alice, as_tenant(server, "mallory") as mallory:
        user = User.of(alice)
        key = user.upload()
        _, body = user.encrypt()
        job = alice.post("/v2/models/toy/jobs", content=body).json()["id"]
        for answer in (
            mallory.get(f"/v2/keys/{key}"),
            mallory.head(f"/v2/keys/{key}"),
            mallory.delete(f"/v2/keys/{key}"),
            mallory.patch(f"/v2/keys/{key}", content=b"x", headers={"Upload-Offset": "0"}),
            mallory.get(f"/v2/jobs/{job}"),
            mallory.get(f"/v2/jobs/{job}/result"),
            mallory.get(f"/v2/jobs/{job}/events"),
            mallory.delete(f"/v2/jobs/{job}"),
            mallory.post("/v2/models/toy/infer", content=body, headers={"Fhe-Key-Id": key}),
        ):
            assert answer.status_code == 404, answer.request.url
        assert mallory.post("/v2/models/toy/infer", content=body).status_code == 428
        assert mallory.get("/v2/keys").json() == {"keys": []}
        assert mallory.get("/v2/jobs").json() == {"jobs": []}
        # The same content announced by another tenant is new: it does not tell that somebody has it.
        assert mallory.post("/v2/keys", json=user.announcement()).status_code == 201
        assert alice.get(f"/v2/keys/{key}").json()["state"] == "ready"


def test_an_idempotency_key_is_the_tenants_own(server: Server):
    with as_tenant(server, "carol") as carol, as_tenant(server, "dave") as dave:
        jobs = []
        for http in (carol, dave):
            user = User.of(http)
            user.upload()
            answer = http.post("/v2/models/toy/jobs", content=user.encrypt()[1], headers={"Idempotency-Key": "1"})
            jobs.append(answer.json()["id"])
        assert jobs[0] != jobs[1]


def test_bootstraps_are_limited(server: Server):
    with as_tenant(server, "small", max_bootstraps_per_day=20) as http:
        user = User.of(http)
        user.upload()
        assert user.infer(user.encrypt(samples=3)[1]).status_code == 200
        over = user.infer(user.encrypt(samples=3)[1])
        assert (over.status_code, over.json()["code"]) == (429, "quota_exceeded")
        assert 0 < int(over.headers["retry-after"]) <= 86400
        assert http.get("/v2/usage").json()["limits"]["bootstraps_per_day"] == 20


def test_answers_of_a_model_are_limited(server: Server):
    with as_tenant(server, "copyist", max_answers_per_day=5) as http:
        user = User.of(http)
        user.upload()
        assert user.infer(user.encrypt(samples=3)[1]).status_code == 200
        for route in ("infer", "jobs"):
            over = http.post(f"/v2/models/toy/{route}", content=user.encrypt(samples=3)[1])
            assert (over.status_code, over.json()["code"]) == (429, "quota_exceeded")
            assert "3 of today's 5" in over.json()["error"] and 0 < int(over.headers["retry-after"]) <= 86400
        used = http.get("/v2/usage").json()
        assert (used["answers_today"], used["limits"]["answers_per_day"]) == ({"toy": 3}, 5)
        assert user.infer(user.encrypt(samples=2)[1]).status_code == 200


def test_a_restart_forgets_no_answer(tmp_path: Path, fill: Callable[[Path], Path]):
    data = fill(tmp_path / "data")
    token = new_tenant(data, "patient", max_answers_per_day=4)
    headers = {"Authorization": f"Bearer {token}"}
    with serving(data, insecure=False) as server, server.client(headers=headers) as http:
        user = User.of(http)
        user.upload()
        assert user.infer(user.encrypt(samples=3)[1]).status_code == 200
        body = user.encrypt(samples=2)[1]
    with serving(data, insecure=False) as server, server.client(headers=headers) as http:
        assert http.get("/v2/usage").json()["answers_today"] == {"toy": 3}
        assert http.post("/v2/models/toy/infer", content=body).json()["code"] == "quota_exceeded"


def test_stored_bytes_are_limited(server: Server):
    with as_tenant(server, "tight", max_bytes=1000) as http:
        answer = http.post("/v2/keys", json=User.of(http).announcement())
        assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
        assert int(answer.headers["retry-after"]) > 0


def test_revoked_rotated_and_expired_api_keys(server: Server):
    old = new_tenant(server.data, "erin")
    new = with_tenants(server.data, lambda tenants: tenants.rotate(identity(old), grace_seconds=3600))
    short = with_tenants(server.data, lambda tenants: tenants.new_api_key("erin", ("score",), -1.0))

    def status(token: str) -> int:
        with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
            return http.get("/v2/keys").status_code

    assert (status(old), status(new), status(short)) == (200, 200, 401)
    with_tenants(server.data, lambda tenants: tenants.revoke(identity(new)))
    assert becomes(lambda: status(new), 401), "a valid API key is remembered for five seconds"
    assert status(old) == 200
    with pytest.raises(ParameterError, match="no valid one"):  # an expired key does not come back
        with_tenants(server.data, lambda tenants: tenants.rotate(identity(short), grace_seconds=3600))
    soon = with_tenants(server.data, lambda tenants: tenants.new_api_key("erin", ("score",), 5.0))
    with_tenants(server.data, lambda tenants: tenants.rotate(soon, grace_seconds=3600))  # by the whole token too
    (row,) = [
        each for each in with_tenants(server.data, lambda tenants: tenants.overview()) if each["tenant"] == "erin"
    ]
    (end,) = [key["expires_at"] - key["created_at"] for key in row["api_keys"] if key["id"] == identity(soon)]
    assert end == pytest.approx(5.0, abs=1.0), "no longer than before"


def test_secrets_are_neither_stored_nor_logged(server: Server):
    token = new_tenant(server.data, "frank")
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        assert http.get("/v2/keys").status_code == 200
    secret = token.split("_", 2)[2].encode()  # which may have underscores of its own
    for file in [*server.data.glob("cloakwork.db*"), server.log]:
        assert secret not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda t: t.add("Bad Name"), "a-z"),
        (lambda t: t.add("../etc"), "a-z"),
        (lambda t: t.new_api_key("nobody-there", ("score",)), "'tenants add' adds one"),
        (lambda t: t.new_api_key("first", ("everything",)), "scopes"),
        (lambda t: t.revoke("0000"), "no valid one"),
    ],
)
def test_wrong_calls(server: Server, work: Callable[[Tenants], Awaitable[Any]], says: str):
    with pytest.raises(ParameterError, match=says):
        with_tenants(server.data, work)


def test_services_that_do_not_start(server: Server, tmp_path: Path):
    with pytest.raises(FheError, match="no API key"), serving(tmp_path / "data", insecure=False):
        pass
    with pytest.raises(FheError, match="another service is running"), serving(server.data, insecure=False):
        pass


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_the_service_does_not_start_without_api_keys(tmp_path: Path):
    environment = {
        **os.environ,
        "CLOAKWORK_DATA_FOLDER": str(tmp_path / "d"),
        "CLOAKWORK_ZOO": "false",
        "CLOAKWORK_PORT": "0",
    }
    result = subprocess.run(
        [sys.executable, "-m", "cloakwork.api"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode != 0
    assert "no API key" in result.stderr


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_one_service_on_a_data_folder(server: Server):
    environment = {**os.environ, "CLOAKWORK_DATA_FOLDER": str(server.data), "CLOAKWORK_PORT": "0"}
    result = subprocess.run(
        [sys.executable, "-m", "cloakwork.api"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2 and re.search("another service is running", result.stderr)


def test_a_clock_that_is_set_back_does_not_lengthen_a_revoked_api_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token = new_tenant(tmp_path, "gina")

    async def use(tenants: Tenants) -> None:
        assert (await tenants.authenticate(token)).name == "gina"
        await tenants.revoke(identity(token))
        wall, steady = time.time(), time.monotonic()
        monkeypatch.setattr(time, "time", lambda: wall - 86400)
        monkeypatch.setattr(time, "monotonic", lambda: steady + 6)  # a valid API key is remembered for five seconds
        with pytest.raises(UnauthorisedError):
            await tenants.authenticate(token)
        monkeypatch.undo()

    with_tenants(tmp_path, use)
