"""What a tenant may use: models, limits and scopes, changed and ended by the operator while the service runs."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import serving
from scoring_server import Server, User, becomes, new_tenant, resident, toy_model, with_tenants
from sqlalchemy import Connection, create_engine, text

from cloakwork.api.database import migrate as migrations
from cloakwork.app.cli.main import run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("terms") / "data")
    (data / "models" / "secret").mkdir()
    toy_model(seed=1).save(data / "models" / "secret" / "1.clkm")
    new_tenant(data, "first")
    with serving(data, insecure=False) as started:
        yield started


def as_tenant(server: Server, name: str, *scopes: str, **terms: Any) -> httpx.Client:
    return server.client(headers={"Authorization": f"Bearer {new_tenant(server.data, name, *scopes, **terms)}"})


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def command(server: Server, *arguments: str) -> Done:
    """`cloakwork tenants`, in this process."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        status = run(["tenants", *arguments, "--data", str(server.data)])
    return Done(status, output.getvalue(), errors.getvalue())


def every_answer_about(http: httpx.Client, model: str, body: bytes) -> list[tuple[int, str, str]]:
    """Of every route that takes a model's name, without what differs by the name alone."""
    answers = [
        http.get(f"/v2/models/{model}"),
        http.get(f"/v2/models/{model}/versions/1"),
        http.get(f"/v2/models/{model}/ready"),
        http.get(f"/v2/models/{model}/versions/1/ready"),
        http.get(f"/v2/models/{model}/client"),
        http.get(f"/v2/models/{model}/versions/1/client"),
        http.post(f"/v2/models/{model}/infer", content=body),
        http.post(f"/v2/models/{model}/versions/1/infer", content=body),
        http.post(f"/v2/models/{model}/jobs", content=body),
        http.post(f"/v2/repository/models/{model}/load"),
        http.post(f"/v2/repository/models/{model}/unload"),
        http.delete(f"/v2/repository/models/{model}/versions/1"),
    ]
    return [(a.status_code, a.json()["code"], a.json()["error"].replace(model, "NAME")) for a in answers]


def test_a_model_that_a_tenant_may_not_use_is_none(server: Server):
    with as_tenant(server, "narrow", "score", "models", "metrics", models=("toy",)) as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt()[1]
        assert user.infer(body).status_code == 200
        found, none = (every_answer_about(http, model, body) for model in ("secret", "not-there"))
        assert found == none and {status for status, _, _ in found} == {404}
        assert http.get("/v2/models").json() == {"models": ["toy"]}
        assert {entry["name"] for entry in http.post("/v2/repository/index").json()} == {"toy"}
        with as_tenant(server, "wide") as other:
            scorer = User.of(other, "secret")
            scorer.upload()
            assert scorer.infer(scorer.encrypt()[1]).status_code == 200
            assert other.get("/v2/models").json() == {"models": ["secret", "toy"]}
        assert 'model="toy"' in http.get("/metrics").text and "secret" not in http.get("/metrics").text


def test_the_scope_metrics_reads_no_model(server: Server):
    with as_tenant(server, "monitor", "metrics") as http:
        assert http.get("/metrics").status_code == 200
        for path in ("", "/toy", "/toy/versions/1", "/toy/ready", "/toy/client", "/toy/versions/1/client", "/none"):
            answer = http.get(f"/v2/models{path}")
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path


@pytest.mark.tier("all")
def test_terms_are_changed_while_the_service_runs(server: Server):
    with as_tenant(server, "changing", models=("secret",)) as http:
        assert http.get("/v2/models").json() == {"models": ["secret"]}
        for arguments, expected in [
            (("--model", "toy"), ["toy"]),
            (("--no-models",), []),
            (("--all-models",), ["secret", "toy"]),
        ]:
            changed = command(server, "set", "changing", *arguments)
            assert changed.returncode == 0, changed.stderr
            assert becomes(lambda: http.get("/v2/models").json()["models"], expected)
        limits = ("--max-bytes", "1000", "--max-bootstraps", "2000", "--max-queue", "3", "--max-answers", "4")
        assert command(server, "set", "changing", *limits, "--scope", "score", "--scope", "metrics").returncode == 0
        wanted = {"bytes": 1000, "bootstraps_per_day": 2000, "answers_per_day": 4, "queue": 3}
        assert becomes(lambda: http.get("/v2/usage").json()["limits"], wanted)
        assert http.get("/metrics").status_code == 200
        assert command(server, "set", "changing", "--max-bytes", "default", "--scope", "metrics").returncode == 0
        assert becomes(lambda: http.get("/v2/usage").status_code, 403)
    listed = command(server, "list").stdout
    assert "changing" in listed and "max_queue 3" in listed and "max_bytes" not in listed


def test_a_queue_of_its_own(server: Server):
    with as_tenant(server, "short-queue", max_queue=0) as http:
        user = User.of(http)
        user.upload()
        answer = user.infer(user.encrypt()[1])
        assert (answer.status_code, answer.json()["code"]) == (429, "busy")


def test_a_tenant_is_removed_with_everything(server: Server):
    with as_tenant(server, "leaving") as http, as_tenant(server, "operator", "metrics") as operator:
        before = resident(operator)
        user = User.of(http)
        key = user.upload()
        assert user.infer(user.encrypt()[1]).status_code == 200
        assert all(now > was for now, was in zip(resident(operator), before, strict=True))
        done = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        assert becomes(lambda: http.get(f"/v2/jobs/{done}").json()["state"], "done")
        half = http.post("/v2/keys", json=User.of(http).announcement()).json()["id"]
        http.patch(f"/v2/keys/{half}", content=user.keys[:1000], headers={"Upload-Offset": "0"})
        jobs = [http.post("/v2/models/toy/jobs", content=user.encrypt(samples=3000)[1]).json()["id"] for _ in range(3)]
        assert command(server, "remove", "leaving").returncode == 2, "it must be meant"
        removed = command(server, "remove", "leaving", "--yes")
        assert removed.returncode == 0, removed.stderr
        assert becomes(lambda: http.get("/v2/keys").status_code, 401)
        names = (key, half, done, *jobs)

        def files() -> list[str]:
            left = (server.data / "objects").rglob("*")
            return [path.name for path in left if path.is_file() and path.name.lstrip(".").startswith(names)]

        assert becomes(files, []), files()
        assert becomes(lambda: resident(operator), before)
        assert 'fhe_jobs{state="running"} 0.0' in operator.get("/metrics").text
    again = command(server, "remove", "leaving", "--yes")
    assert again.returncode == 2 and "there is no 'leaving'" in again.stderr
    # One of the same name begins with nothing.
    with as_tenant(server, "leaving") as http:
        assert http.get("/v2/keys").json() == {"keys": []} and http.get("/v2/jobs").json() == {"jobs": []}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set", "first"), "nothing to change"),
        (("set", "nobody", "--no-models"), "there is no 'nobody'"),
        (("set", "first", "--no-models", "--all-models"), "exclude each other"),
        (("set", "first", "--model", "../etc"), "models' names"),
        (("set", "first", "--max-bytes", "many"), "a number or 'default'"),
        (("set", "first", "--scope", "everything"), "scopes"),
        (("set", "first", "--max-queue", "1", "--api-key", "00"), "--scope"),
    ],
)
def test_wrong_calls(server: Server, arguments: tuple[str, ...], says: str):
    result = command(server, *arguments)
    assert result.returncode == 2 and says in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr


def test_who_was_there_before_keeps_every_model(tmp_path: Path, fill: Callable[[Path], Path]):
    """A database of the first release."""
    data = fill(tmp_path / "data")
    token = f"cw_{'0' * 16}_{'A' * 43}"

    def first_release(connection: Connection) -> None:
        migrations.migrate(connection, steps=1)
        connection.execute(text("INSERT INTO tenants (id, created_at) VALUES ('old', 0)"))
        columns = {"id": "0" * 16, "tenant": "old", "scopes": "score", "created_at": 0.0}
        columns["token_sha256"] = hashlib.sha256(token.encode()).hexdigest()
        names = ", ".join(columns)
        values = ", ".join(f":{name}" for name in columns)
        connection.execute(text(f"INSERT INTO api_keys ({names}) VALUES ({values})"), columns)

    engine = create_engine(f"sqlite:///{data / 'cloakwork.db'}")
    with engine.begin() as connection:
        first_release(connection)
    engine.dispose()
    asyncio.run(migrations.migrate_url(f"sqlite:///{data / 'cloakwork.db'}"))  # what a service starts a process for
    with (
        serving(data, insecure=False) as server,
        server.client(headers={"Authorization": f"Bearer {token}"}) as http,
    ):
        assert http.get("/v2/models").json() == {"models": ["toy"]}
    overview = with_tenants(data, lambda tenants: tenants.overview())
    assert [(each["tenant"], each["models"]) for each in overview] == [("old", None)]


@pytest.mark.tier("all")
def test_a_suspended_tenant_is_kept_out_and_keeps_what_it_has(server: Server):
    with as_tenant(server, "resting") as http:
        user = User.of(http)
        identity = user.upload()
        body = user.encrypt(samples=2)[1]
        job = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
        assert command(server, "suspend", "resting").returncode == 0
        assert becomes(lambda: http.get("/v2/usage").status_code, 403)
        refused = [http.get("/v2/keys"), http.get(f"/v2/jobs/{job}"), user.infer(body), http.get("/v2/models")]
        assert [answer.json()["code"] for answer in refused] == ["suspended"] * 4
        assert command(server, "resume", "resting").returncode == 0
        assert becomes(lambda: http.get("/v2/usage").status_code, 200)
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        assert [key["id"] for key in http.get("/v2/keys").json()["keys"]] == [identity]
        assert user.infer(body).status_code == 200
    assert "there is no 'nobody'" in command(server, "suspend", "nobody").stderr


def test_what_a_tenant_used_is_told_by_day(server: Server):
    with as_tenant(server, "counted") as http:
        user = User.of(http)
        user.upload()
        assert user.infer(user.encrypt(samples=3)[1]).status_code == 200

        def used(*more: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = json.loads(command(server, "usage", "counted", *more, "--json", "-").stdout)[
                "usage"
            ]
            return found

        assert becomes(lambda: sum(day["samples"] for day in used()), 3)
        (day,) = used()
        bootstraps = 3 * user.facts["bootstraps"]
        assert (day["tenant"], day["requests"], day["bootstraps"]) == ("counted", 1, bootstraps)
        assert day["uploaded_bytes"] == len(user.keys)
        assert used("--since", day["day"], "--until", day["day"]) == [day]
        assert used("--since", "2999-01-01") == used("--until", "1999-12-31") == []
    assert "there is no 'nobody'" in command(server, "usage", "nobody").stderr
    assert "2026-11-01" in command(server, "usage", "counted", "--since", "yesterday").stderr
