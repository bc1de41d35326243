"""The service's answers follow from its audit key: the same request gets the same bytes, whatever dies in between, and nobody sees the key."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest
from in_process import serving
from scoring_server import Server, User, becomes, running

from cloakwork.fhe_core.errors import FheError
from cloakwork.models.audit.audit_key import AuditKey, load_audit_key
from cloakwork.models.compiled import CompiledModel

HEADER = "Fhe-Audit-Key"


def test_answers_and_jobs_are_made_again_from_the_audit_key(server: Server, user: User, compiled: CompiledModel):
    user.upload()
    _, body = user.encrypt(samples=3)
    first, second = user.infer(body), user.infer(body)
    assert first.status_code == 200, first.text
    assert first.content == second.content
    key = load_audit_key(server.data / "audit.key")
    assert first.headers[HEADER] == key.id
    assert user.made_again(compiled, key, body) == first.content
    assert user.made_again(compiled, AuditKey(bytes(32)), body) != first.content
    job = user.http.post("/v2/models/toy/jobs", content=body).json()["id"]
    assert becomes(lambda: user.http.get(f"/v2/jobs/{job}").json()["state"], "done")
    result = user.http.get(f"/v2/jobs/{job}/result")
    assert result.content == first.content and result.headers[HEADER] == key.id


def test_another_request_another_key_and_other_evaluation_keys_have_other_randomness(http: httpx.Client, user: User):
    first = {"Fhe-Key-Id": user.upload()}
    x, body = user.encrypt(samples=1)
    again = user.specification.encrypt(user.key, x).to_bytes()
    assert user.infer(body).content != user.infer(again).content
    # The same secret key and request, other evaluation keys: what they compute is another thing, and so is the zero.
    other = User(http, user.model, user.key, user.key.evaluation_keys().to_bytes(), user.specification, user.facts)
    second = {"Fhe-Key-Id": other.upload()}
    answers = [user.infer(body, headers=headers).content for headers in (first, second, first)]
    assert answers[0] == answers[2] != answers[1]


def test_the_key_is_private_outlives_engines_and_services_and_is_told_to_nobody(
    tmp_path: Path, fill: Callable[[Path], Path]
):
    data = fill(tmp_path / "data")
    with serving(data) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        _, body = user.encrypt()
        before = user.infer(body)
        server.kill_engine()
        after_engine = user.infer(body)
        assert after_engine.content == before.content
        seen = [http.get(path).text for path in ("/metrics", "/openapi.json", "/v2", "/v2/models/toy", "/v2/usage")]
    path = data / "audit.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = path.read_bytes()
    with serving(data) as server, server.client() as http:
        assert replace(user, http=http).infer(body).content == before.content
        seen += [server.log.read_text(encoding="utf-8"), repr(dict(before.headers))]
    for text in seen:
        assert secret.hex() not in text and secret.decode("latin-1") not in text


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_no_list_of_processes_shows_the_key(tmp_path: Path, fill: Callable[[Path], Path]):
    with running(fill(tmp_path / "data")) as server:
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        arguments = [" ".join(each.cmdline()) for each in (process, *process.children(recursive=True))]
        secret = (server.data / "audit.key").read_bytes()
    assert len(arguments) == 2, "the web process and the engine"
    assert all(secret.hex() not in each and secret.decode("latin-1") not in each for each in arguments)


def test_a_named_key_is_taken_and_has_to_be_one(tmp_path: Path, fill: Callable[[Path], Path]):
    data, path = fill(tmp_path / "data"), tmp_path / "shared.key"
    path.write_bytes(bytes(range(32)))
    with serving(data, environment={"AUDIT_KEY": str(path)}) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        answer = user.infer(user.encrypt()[1])
        assert answer.headers[HEADER] == AuditKey(bytes(range(32))).id
    assert not (data / "audit.key").exists()
    path.write_bytes(b"too short")
    with (
        pytest.raises(FheError, match="expected 32 bytes") as error,
        serving(data, environment={"AUDIT_KEY": str(path)}),
    ):
        pass
    assert "too short" not in str(error.value)
