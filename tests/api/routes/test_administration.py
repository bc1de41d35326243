"""The administrator's routes over HTTP: who may ask, what is shown and what is not, what is changed and logged."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import LocalServer, serving
from postgresql import needs_postgresql, postgresql
from scoring_server import Server, User, becomes, new_tenant, running

from cloakwork.api import logs

LISTS = ("models", "tenants", "api-keys", "keys", "jobs")
NOBODY = "f" * 32
READING = tuple(("GET", f"/v2/admin/{name}") for name in ("load", *LISTS))
CHANGING = (
    ("POST", "/v2/admin/models/toy/load"),
    ("POST", "/v2/admin/models/toy/unload"),
    ("POST", f"/v2/admin/jobs/{NOBODY}/cancel"),
    ("DELETE", f"/v2/admin/keys/{NOBODY}"),
    ("POST", "/v2/admin/api-keys/ffffffffffffffff/revoke"),
    ("PATCH", "/v2/admin/tenants/alice"),
)


POSTGRESQL = pytest.param("postgresql", marks=[pytest.mark.tier("all"), pytest.mark.os_entropy])


@pytest.fixture(scope="module", params=["sqlite", POSTGRESQL])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]
) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("administration") / "data")
    environment = {"TENANT_BYTES": "1000000000"}
    if request.param == "sqlite":
        with started_with(data, environment) as started:
            yield started
        return
    needs_postgresql()
    with (
        postgresql() as url,
        started_with(data, {**environment, "DATABASE_URL": url, "SINGLE_HOST": "true"}) as started,
    ):
        yield started


def started_with(data: Path, environment: dict[str, str]) -> AbstractContextManager[Server]:
    """With PostgreSQL a process, which starts processes of its own."""
    database = environment.get("DATABASE_URL")
    new_tenant(data, "first", database=database)
    return (serving if database is None else running)(data, insecure=False, environment=environment)


def token_of(server: Server, name: str, *scopes: str, **terms: Any) -> str:
    return new_tenant(server.data, name, *scopes, database=server.environment.get("DATABASE_URL"), **terms)


def as_tenant(server: Server, name: str, *scopes: str, **terms: Any) -> httpx.Client:
    return server.client(headers={"Authorization": f"Bearer {token_of(server, name, *scopes, **terms)}"})


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with as_tenant(server, "owner", "admin") as http:
        yield http


def get(http: httpx.Client, path: str, **query: Any) -> dict[str, Any]:
    answer = http.get(f"/v2/admin/{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    return str(answer.json()["error"])


def audit(server: Server, target: str) -> list[tuple[str, str]]:
    lines = [each for each in server.log_lines() if each["logger"] == "cloakwork.administration"]
    return [(each["action"], each["outcome"]) for each in lines if each["target"] == target]


def job_of(user: User, samples: int = 1) -> str:
    answer = user.http.post("/v2/models/toy/jobs", content=user.encrypt(samples=samples)[1])
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


# --- who may ask ---


@pytest.mark.parametrize(("method", "path"), READING + CHANGING)
def test_every_route_needs_the_scope(server: Server, method: str, path: str):
    body = {"json": {"max_queue": 1}} if method == "PATCH" else {}
    with server.client() as nobody, as_tenant(server, "rest", "score", "models", "metrics", "priority") as others:
        refused(nobody.request(method, path, **body), 401, "unauthorised")
        assert "'admin'" in refused(others.request(method, path, **body), 403, "forbidden")


def test_the_scope_alone_is_nothing_else(admin: httpx.Client):
    for path in ("/v2/models", "/v2/keys", "/v2/jobs", "/v2/usage", "/metrics"):
        refused(admin.get(path), 403, "forbidden")
    refused(admin.post("/v2/repository/models/toy/unload"), 403, "forbidden")


def test_it_is_no_default(server: Server):
    with as_tenant(server, "plain") as http:
        refused(http.get("/v2/admin/load"), 403, "forbidden")


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
@pytest.mark.parametrize(("method", "path"), READING[:1] + CHANGING)
def test_pages_of_others_are_refused(admin: httpx.Client, method: str, path: str, headers: dict[str, str]):
    refused(admin.request(method, path, headers=headers), 403, "foreign_page")


def test_a_local_service_has_the_scope_and_refuses_pages_of_others(tmp_path: Path, fill: Callable[[Path], Path]):
    with serving(fill(tmp_path / "data")) as server, server.client() as http:
        assert [row["name"] for row in get(http, "models")["models"]] == ["toy"]
        refused(
            http.post("/v2/admin/models/toy/unload", headers={"Origin": "http://evil.example"}), 403, "foreign_page"
        )
        assert http.post("/v2/admin/models/toy/unload").status_code == 200
        line = [each for each in server.log_lines() if each["logger"] == "cloakwork.administration"][-1]
        assert (line["tenant"], line["api_key"], line["action"]) == ("local", None, "unload model")


# --- what is shown ---


def test_the_load_while_jobs_run(server: Server, admin: httpx.Client):
    with as_tenant(server, "busy") as http:
        user = User.of(http)
        user.upload()
        jobs = [job_of(user, 3000) for _ in range(4)]
        assert becomes(lambda: any(run["device"] for run in get(admin, "load")["runs"]), True)
        load = get(admin, "load")
        assert {run["id"] for run in load["runs"]} <= set(jobs)
        run = next(run for run in load["runs"] if run["device"])
        assert (run["tenant"], run["model"], run["version"], run["samples"]) == ("busy", "toy", "1", 3000)
        assert (run["kind"], run["parameter_set"], run["device"]) == ("job", "toy_two_limb", "cpu")
        assert run["seconds"] >= 0 and run["waited_seconds"] >= 0
        assert load["engine"]["answers"] and load["engine"]["devices"] == ["cpu"] and load["engine"]["workers"] >= 1
        assert load["jobs"]["queued"] + load["jobs"]["running"] >= 1
        assert 0 < load["keys"]["memory_bytes"] <= load["keys"]["memory_limit_bytes"] and load["keys"]["resident"] >= 1
        assert load["connections"]["busy"] >= 1 and load["disk"]["free_bytes"] >= load["disk"]["room_bytes"]
        assert len(load["requests"]["requests"]) == len(load["requests"]["failed"])
        for job in jobs:
            admin.post(f"/v2/admin/jobs/{job}/cancel")
    with as_tenant(server, "wrong") as http:
        assert http.get("/v2/models/none").status_code == 404
    assert becomes(lambda: get(admin, "load")["requests"]["codes"].get("unknown_model", 0) >= 1, True)


def test_an_engine_that_died_is_told(server: Server, admin: httpx.Client):
    before = get(admin, "load")["engine"]
    server.kill_engine()
    assert becomes(lambda: get(admin, "load")["engine"]["restarts"], before["restarts"] + 1)
    assert becomes(lambda: get(admin, "load")["engine"]["answers"], True)
    if not isinstance(server, LocalServer):
        assert get(admin, "load")["engine"]["processes"][0]["process"] != before["processes"][0]["process"]


def test_nothing_that_is_the_tenants_own_is_shown(server: Server, admin: httpx.Client):
    token = token_of(server, "private")
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        user = User.of(http)
        key = user.upload()
        announced = user.announcement()
        headers = {"Idempotency-Key": "name-of-a-patient"}
        body = user.encrypt()[1]
        job = http.post("/v2/models/toy/jobs", content=body, headers=headers).json()["id"]
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        digest = http.get(f"/v2/jobs/{job}").json()["result_sha256"]
    seen = {name: get(admin, name, limit=200) for name in ("load", *LISTS)}
    assert key in {row["id"] for row in seen["keys"]["keys"]} and job in {row["id"] for row in seen["jobs"]["jobs"]}
    assert token.split("_")[1] in {row["id"] for row in seen["api-keys"]["api_keys"]}
    told = json.dumps(seen)
    secrets = (token.split("_", 2)[2], hashlib.sha256(token.encode()).hexdigest(), announced["sha256"], digest)
    assert not [each for each in (*secrets, "name-of-a-patient", user.key.key_id.hex()) if each in told]
    assert "sha256" not in told and "idempotency" not in told


def test_lists_of_one_tenant(server: Server, admin: httpx.Client):
    keys, jobs = {}, {}
    for name in ("one", "two"):
        with as_tenant(server, name) as http:
            user = User.of(http)
            keys[name], jobs[name] = user.upload(), [job_of(user) for _ in range(3)]
            assert becomes(
                lambda http=http, name=name: [http.get(f"/v2/jobs/{j}").json()["state"] for j in jobs[name]],
                ["done"] * 3,
            )
    for name in ("one", "two"):
        assert [row["id"] for row in get(admin, "keys", tenant=name)["keys"]] == [keys[name]]
        pages, after = [], {}
        while True:
            page = get(admin, "jobs", tenant=name, state="done", limit=1, **after)
            pages += [row["id"] for row in page["jobs"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert pages == jobs[name][::-1]

        def row_of(name: str = name) -> dict[str, Any]:
            (found,) = (each for each in get(admin, "tenants", limit=200)["tenants"] if each["tenant"] == name)
            return dict(found)

        assert becomes(lambda row_of=row_of: row_of()["today"]["requests"], 3)
        row = row_of()
        assert row["bytes_stored"]["keys"] > 0 and row["api_keys"] == 1
        assert row["limits"]["bytes"] == 1_000_000_000 and row["max_bytes"] is None
    (model,) = get(admin, "models")["models"]
    assert model["runs"] >= 6 and model["samples"] >= 6 and model["run_seconds"] > 0 and model["state"] == "loaded"
    assert get(admin, "jobs", tenant="nobody") == {"jobs": [], "next": None}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=1e3",
        "limit=nan",
        "limit=99999999999999999999",
        "after=",
        "after=%00",
        "after=../../etc",
        "after=" + "g" * 48,
        "after=" + "0" * 47,
        "after=%27%20OR%201=1--",
        "after=" + "0" * 5000,
        "tenant=%27%3B%20DROP%20TABLE%20jobs",
        "tenant=A",
        "tenant=%F0%9F%92%A9",
        "state=lost",
        "state=done%00",
    ],
)
def test_hostile_queries(admin: httpx.Client, name: str, query: str):
    answer = admin.get(f"/v2/admin/{name}?{query}")
    known = {"models": ("limit", "after"), "tenants": ("limit", "after"), "jobs": ("limit", "after", "tenant", "state")}
    if query.partition("=")[0] in known.get(name, ("limit", "after", "tenant")) and not (
        name == "tenants" and query in ("after=" + "g" * 48, "after=" + "0" * 47)
    ):
        refused(answer, 422, "malformed")
    else:  # no parameter of this route, or a name that a tenant could have
        assert answer.status_code == 200


# --- what is changed ---


def test_a_job_is_cancelled(server: Server, admin: httpx.Client):
    with as_tenant(server, "waiting") as http:
        user = User.of(http)
        user.upload()
        jobs = [job_of(user, 3000) for _ in range(3)]
        assert admin.post(f"/v2/admin/jobs/{jobs[-1]}/cancel").status_code == 204
        assert http.get(f"/v2/jobs/{jobs[-1]}").json()["state"] == "cancelled"
        refused(admin.post(f"/v2/admin/jobs/{jobs[-1]}/cancel"), 409, "conflict")
        for job in jobs[:-1]:
            assert admin.post(f"/v2/admin/jobs/{job}/cancel").status_code == 204
        assert becomes(lambda: get(admin, "load")["runs"], [])
        used = http.get("/v2/usage").json()
        assert used["jobs"] == {"cancelled": 3} and used["bytes_stored"]["inputs"] == 0
        assert user.infer(user.encrypt()[1]).status_code == 200
    assert audit(server, jobs[-1]) == [("cancel job", "done"), ("cancel job", "conflict")]
    refused(admin.post(f"/v2/admin/jobs/{NOBODY}/cancel"), 404, "unknown_job")


def test_a_key_is_deleted(server: Server, admin: httpx.Client):
    with as_tenant(server, "careless") as http:
        user = User.of(http)
        key = user.upload()
        assert user.infer(user.encrypt()[1]).status_code == 200
        (row,) = get(admin, "keys", tenant="careless")["keys"]
        assert row["bytes"] == len(user.keys) and row["state"] == "ready" and row["expires_at"] > row["used_at"]
        assert becomes(lambda: get(admin, "keys", tenant="careless")["keys"][0]["resident"], True)
        assert admin.delete(f"/v2/admin/keys/{key}").status_code == 204
        assert user.infer(user.encrypt()[1]).status_code == 428
        assert not [path for path in (server.data / "objects").rglob(f"*{key}*") if path.is_file()]
    assert audit(server, key) == [("delete key", "done")]
    refused(admin.delete(f"/v2/admin/keys/{key}"), 404, "unknown_key")


def test_a_model_is_unloaded_and_loaded(server: Server):
    with as_tenant(server, "owner-of-none", "admin", "score", models=()) as admin, as_tenant(server, "user") as http:
        assert admin.get("/v2/models").json() == {"models": []}
        assert admin.post("/v2/admin/models/toy/unload").json() == {"name": "toy", "versions": []}
        assert http.get("/v2/models/toy").status_code == 410
        assert [row["state"] for row in get(admin, "models")["models"]] == ["unloaded"]
        assert admin.post("/v2/admin/models/toy/load").json() == {"name": "toy", "versions": ["1"]}
        assert http.get("/v2/models/toy").status_code == 200
        for action in ("load", "unload"):
            refused(admin.post(f"/v2/admin/models/none/{action}"), 404, "unknown_model")
    assert audit(server, "none") == [("load model", "unknown_model"), ("unload model", "unknown_model")]


def test_an_api_key_is_revoked(server: Server, admin: httpx.Client):
    token = token_of(server, "former", "score", "admin")
    identity = token.split("_")[1]
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        assert http.get("/v2/admin/load").status_code == 200
        assert "asks" in refused(http.post(f"/v2/admin/api-keys/{identity}/revoke"), 409, "conflict")
        assert http.get("/v2/admin/load").status_code == 200
        assert admin.post(f"/v2/admin/api-keys/{identity}/revoke").status_code == 204
        for path in ("/v2/keys", "/v2/admin/load", "/v2/admin/jobs"):
            refused(http.get(path), 401, "unauthorised")
    (row,) = get(admin, "api-keys", tenant="former")["api_keys"]
    assert (row["id"], row["state"], row["scopes"]) == (identity, "revoked", ["admin", "score"])
    refused(admin.post(f"/v2/admin/api-keys/{identity}/revoke"), 404, "unknown_api_key")
    lines = [each for each in server.log_lines() if each.get("target") == identity]
    assert [(line["tenant"], line["outcome"]) for line in lines] == [
        ("former", "conflict"),
        ("owner", "done"),
        ("owner", "unknown_api_key"),
    ]
    assert lines[0]["api_key"] == identity and all(token not in json.dumps(line) for line in server.log_lines())


def test_limits_and_models_of_a_tenant(server: Server, admin: httpx.Client):
    with as_tenant(server, "changing") as http:
        assert http.get("/v2/models").json() == {"models": ["toy"]}
        path = "/v2/admin/tenants/changing"
        change = {"max_bytes": 1000, "max_bootstraps_per_day": 2000, "max_queue": 3, "max_answers_per_day": 4}
        change |= {"models": ["other", "toy"]}
        assert admin.patch(path, json=change).status_code == 204
        limits = {"bytes": 1000, "bootstraps_per_day": 2000, "answers_per_day": 4, "queue": 3}
        assert http.get("/v2/usage").json()["limits"] == limits
        assert admin.patch(path, json={"models": []}).status_code == 204
        assert http.get("/v2/models").json() == {"models": []}
        assert admin.patch(path, json={"models": None, "max_bytes": None}).status_code == 204
        assert http.get("/v2/models").json() == {"models": ["toy"]}
        limits = http.get("/v2/usage").json()["limits"]
        assert (limits["bytes"], limits["queue"]) == (1_000_000_000, 3)
    lines = [each for each in server.log_lines() if each.get("target") == "changing"]
    assert lines[0]["changes"] == change and [each["outcome"] for each in lines] == ["done"] * 3


def test_a_tenant_is_suspended_and_comes_back(server: Server, admin: httpx.Client):
    with as_tenant(server, "resting") as http:
        assert http.get("/v2/keys").status_code == 200
        assert admin.patch("/v2/admin/tenants/resting", json={"suspended": True}).status_code == 204
        refused(http.get("/v2/keys"), 403, "suspended")
        (row,) = (each for each in get(admin, "tenants", limit=200)["tenants"] if each["tenant"] == "resting")
        assert row["suspended"] is True
        assert admin.patch("/v2/admin/tenants/resting", json={"suspended": False}).status_code == 204
        assert http.get("/v2/keys").status_code == 200


def test_nobody_suspends_himself(server: Server, admin: httpx.Client):
    refused(admin.patch("/v2/admin/tenants/owner", json={"suspended": True}), 409, "conflict")
    assert admin.get("/v2/admin/load").status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {},
        [],
        None,
        "max_bytes",
        {"max_bytes": -1},
        {"max_bytes": 1 << 70},
        {"max_bytes": "1"},
        {"max_bytes": True},
        {"max_bytes": 1.5},
        {"max_queue": 1 << 40},
        {"models": "toy"},
        {"models": ["../etc"]},
        {"models": ["a b"]},
        {"models": [""]},
        {"models": [None]},
        {"models": ["m"] * 201},
        {"id": "other"},
        {"scopes": ["admin"]},
        {"suspended": None},
        {"suspended": "true"},
        {"suspended": 1},
        {"max_bytes": 1, "created_at": 0},
    ],
)
def test_changes_that_make_no_sense(server: Server, admin: httpx.Client, change: Any):
    before = get(admin, "tenants", limit=200)
    refused(admin.patch("/v2/admin/tenants/first", json=change), 422, "malformed")
    assert get(admin, "tenants", limit=200) == before


def test_changes_of_nobody(server: Server, admin: httpx.Client):
    refused(admin.patch("/v2/admin/tenants/nobody", json={"max_queue": 1}), 404, "unknown_tenant")
    assert admin.patch("/v2/admin/tenants/..%2fetc", json={"max_queue": 1}).status_code in (404, 422)
    large = {"models": ["m" * 60] * 300}
    refused(admin.patch("/v2/admin/tenants/first", json=large), 413, "too_large")


def test_what_administrators_do_is_logged_whatever_the_level(capsys: pytest.CaptureFixture[str]):
    root, names = logging.getLogger(), (None, "cloakwork", logs.AUDIT, "uvicorn.error")
    handlers, levels = root.handlers[:], [logging.getLogger(name).level for name in names]
    try:
        logs.set_up("error")
        for name in (logs.AUDIT, "cloakwork.access"):
            logging.getLogger(name).info(name)
    finally:
        root.handlers[:] = handlers
        for name, level in zip(names, levels, strict=True):
            logging.getLogger(name).setLevel(level)
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == [
        "cloakwork.administration"
    ]
