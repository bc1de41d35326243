"""Pages of other sites in a browser on the service's machine: whatever they ask, they are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from in_process import serving
from scoring_server import Server, new_tenant

OWN = "https://fhe.example"


@pytest.fixture(scope="module", params=[True, False], ids=["insecure-local", "api-keys"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]
) -> Iterator[httpx.Client]:
    data = fill(tmp_path_factory.mktemp("pages") / "data")
    token = new_tenant(data, "owner", "score", "models")
    with (
        serving(
            data, insecure=request.param, environment={"ALLOWED_ORIGINS": f"https://other.example {OWN}/"}
        ) as server,
        server.client(headers={"Authorization": f"Bearer {token}"}) as http,
    ):
        yield http


def port_of(client: httpx.Client) -> int | None:
    return client.base_url.port


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Content-Type": "text/plain"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
def test_a_foreign_page_is_refused(client: httpx.Client, headers: dict[str, str]):
    sent = {name: value.format(port=port_of(client)) for name, value in headers.items()}
    for method, path in (
        ("POST", "/v2/repository/models/toy/unload"),
        ("DELETE", "/v2/repository/models/toy/versions/1"),
        ("POST", "/v2/repository/index"),
        ("GET", "/v2/models"),
        ("GET", "/v2/health/live"),
        ("OPTIONS", "/v2/models"),
        ("GET", "/openapi.json"),
        ("GET", "/nowhere"),
    ):
        answer = client.request(method, path, headers=sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_page"), (method, path)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.get("/v2/models").json() == {"models": ["toy"]}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "HTTP://127.0.0.1:{port}"},
        {"Origin": OWN, "Sec-Fetch-Site": "same-origin"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
def test_the_services_own_pages_and_other_clients_are_served(client: httpx.Client, headers: dict[str, str]):
    sent = {name: value.format(port=port_of(client)) for name, value in headers.items()}
    for path in ("/docs", "/openapi.json", "/v2/models"):
        assert client.get(path, headers=sent).status_code == 200
    assert client.post("/v2/repository/models/toy/load", headers=sent).status_code == 200


def test_a_page_that_has_the_service_under_its_own_name_is_refused(server: Server):
    """DNS rebinding: the browser thinks that it is the page's own site."""
    with server.client() as http:
        for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", "[::2]", "@", "[", ""):
            answer = http.get("/v2/models", headers={"Host": host})
            assert answer.status_code in (400, 403), host
            assert answer.json()["code"] in ("foreign_page", "bad_request")
        assert http.get("/v2/models", headers={"Host": "evil.example"}).json()["code"] == "foreign_page"
        for host in ("localhost", f"localhost:{server.port}", "[::1]:80", "127.0.0.2", "LOCALHOST"):
            assert http.get("/v2/models", headers={"Host": host}).status_code == 200, host
