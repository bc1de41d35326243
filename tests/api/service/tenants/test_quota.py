"""Limits hold for many requests at once, not only for one after the other."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from in_process import serving
from postgresql import needs_postgresql, postgresql
from scoring_server import Server, User, new_tenant, running

AT_ONCE = 10
KEYS_ALLOWED = 3
BOOTSTRAPS_ALLOWED = 3  # in runs of one sample
ANSWERS_ALLOWED = 4


POSTGRESQL = pytest.param("postgresql", marks=[pytest.mark.tier("all"), pytest.mark.os_entropy])


@pytest.fixture(scope="module", params=["sqlite", POSTGRESQL])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]
) -> Iterator[list[Server]]:
    """One service, or two on one database."""
    folder = tmp_path_factory.mktemp("quota")
    if request.param == "sqlite":
        new_tenant(fill(folder / "data"), "first")
        with serving(folder / "data", insecure=False) as server:
            yield [server]
        return
    needs_postgresql()
    (folder / "objects").mkdir()
    with postgresql() as database:
        shared = {"DATABASE_URL": database, "STORAGE_URL": (folder / "objects").as_uri()}
        new_tenant(folder, "first", database=database)
        with (
            running(fill(folder / "one"), insecure=False, environment=shared) as one,
            running(fill(folder / "two"), insecure=False, environment=shared) as two,
        ):
            yield [one, two]


def tenant(servers: list[Server], name: str, **terms: int) -> dict[str, str]:
    token = new_tenant(servers[0].data, name, database=servers[0].environment.get("DATABASE_URL"), **terms)
    return {"Authorization": f"Bearer {token}"}


def at_once(
    servers: list[Server], headers: dict[str, str], send: Callable[[httpx.AsyncClient, int], object]
) -> list[int]:
    """Statuses of requests that all services get at the same time."""

    async def run() -> list[int]:
        clients = [httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) for server in servers]
        try:
            await asyncio.gather(*(client.get("/v2/usage") for client in clients))
            answers = await asyncio.gather(*(send(clients[i % len(clients)], i) for i in range(AT_ONCE)))  # type: ignore[call-overload]
            return [answer.status_code for answer in answers]
        finally:
            await asyncio.gather(*(client.aclose() for client in clients))

    return asyncio.run(run())


@pytest.mark.parametrize("announced", [True, False])
def test_announcements_at_once(servers: list[Server], announced: bool):
    with servers[0].client(headers=tenant(servers, "reader")) as http:
        announcement = User.of(http).announcement()
    headers = tenant(
        servers, "announced" if announced else "unannounced", max_bytes=KEYS_ALLOWED * announcement["bytes"]
    )
    statuses = at_once(
        servers,
        headers,
        lambda http, _: http.post(
            "/v2/keys", json={**announcement, "sha256": secrets.token_hex(32) if announced else None}
        ),
    )
    assert sorted(statuses) == [201] * KEYS_ALLOWED + [429] * (AT_ONCE - KEYS_ALLOWED)
    with servers[-1].client(headers=headers) as http:
        assert http.get("/v2/usage").json()["bytes_stored"]["total"] == KEYS_ALLOWED * announcement["bytes"]


def test_the_same_announcement_at_once_is_one_key(servers: list[Server]):
    headers = tenant(servers, "same")
    with servers[0].client(headers=headers) as http:
        announcement = User.of(http).announcement()
    statuses = at_once(servers, headers, lambda http, _: http.post("/v2/keys", json=announcement))
    assert sorted(statuses) == [200] * (AT_ONCE - 1) + [201]


def test_the_same_content_of_two_tenants_is_two_keys(servers: list[Server]):
    with (
        servers[0].client(headers=tenant(servers, "one")) as one,
        servers[0].client(headers=tenant(servers, "two")) as two,
    ):
        user = User.of(one)
        kept = user.upload()
        opened = two.post("/v2/keys", json=user.announcement(sha256=None)).json()["id"]
        done = two.patch(f"/v2/keys/{opened}", content=user.keys, headers={"Upload-Offset": "0"}).json()
        assert (done["id"], done["state"]) == (opened, "ready") and opened != kept
        assert [key["id"] for key in one.get("/v2/keys").json()["keys"]] == [kept]


def test_jobs_at_once_count_their_results_before_they_have_them(servers: list[Server]):
    with servers[0].client(headers=tenant(servers, "reader")) as http:
        facts = User.of(http).facts
    one_job = facts["input_bytes_one_sample"] + facts["output_bytes_one_sample"]
    headers = tenant(servers, "jobs", max_bytes=facts["evaluation_key_bytes"] + 3 * one_job)
    with servers[0].client(headers=headers) as http:
        user = User.of(http)
        user.upload()
        bodies = [user.encrypt(seed=seed)[1] for seed in range(AT_ONCE)]
    statuses = at_once(servers, headers, lambda http, i: http.post("/v2/models/toy/jobs", content=bodies[i]))
    assert set(statuses) == {202, 429}
    with servers[0].client(headers=headers) as http:
        assert http.get("/v2/usage").json()["bytes_stored"]["total"] <= facts["evaluation_key_bytes"] + 3 * one_job


@pytest.mark.parametrize("route", ["infer", "jobs"])
def test_bootstraps_at_once(servers: list[Server], route: str):
    with servers[0].client(headers=tenant(servers, "reader")) as http:
        bootstraps = User.of(http).facts["bootstraps"]
    headers = tenant(servers, f"runs-{route}", max_bootstraps_per_day=BOOTSTRAPS_ALLOWED * bootstraps)
    with servers[0].client(headers=headers) as http:
        user = User.of(http)
        user.upload()
        bodies = [user.encrypt(seed=seed)[1] for seed in range(AT_ONCE)]
    statuses = at_once(servers, headers, lambda http, i: http.post(f"/v2/models/toy/{route}", content=bodies[i]))
    assert statuses.count(429) == AT_ONCE - BOOTSTRAPS_ALLOWED and set(statuses) <= {200, 202, 429}
    with servers[-1].client(headers=headers) as http:
        assert http.get("/v2/usage").json()["bootstraps_today"] == BOOTSTRAPS_ALLOWED * bootstraps


@pytest.mark.parametrize("route", ["infer", "jobs"])
def test_answers_at_once(servers: list[Server], route: str):
    headers = tenant(servers, f"answers-{route}", max_answers_per_day=ANSWERS_ALLOWED)
    with servers[0].client(headers=headers) as http:
        user = User.of(http)
        user.upload()
        bodies = [user.encrypt(seed=seed)[1] for seed in range(AT_ONCE)]
    statuses = at_once(servers, headers, lambda http, i: http.post(f"/v2/models/toy/{route}", content=bodies[i]))
    assert statuses.count(429) == AT_ONCE - ANSWERS_ALLOWED and set(statuses) <= {200, 202, 429}
    with servers[-1].client(headers=headers) as http:
        used = http.get("/v2/usage").json()
        assert used["answers_today"] == {"toy": ANSWERS_ALLOWED}
        assert used["bootstraps_today"] == ANSWERS_ALLOWED * user.facts["bootstraps"]  # what is refused takes nothing


def test_what_does_not_run_is_given_back(servers: list[Server]):
    headers = tenant(servers, "given-back")
    with servers[0].client(headers=headers) as http:
        user = User.of(http)
        user.upload()
        damaged = bytearray(user.encrypt()[1])
        damaged[-1] ^= 1
        assert user.infer(bytes(damaged)).status_code == 422
        used = http.get("/v2/usage").json()
        assert (used["bootstraps_today"], used["answers_today"]) == (0, {})
        assert user.infer(user.encrypt()[1]).status_code == 200
        assert http.get("/v2/usage").json()["bootstraps_today"] == user.facts["bootstraps"]
