"""Records of requests: what the log, the metrics and the load say of each, and whose address it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import serving
from scoring_server import Server, User, becomes, new_tenant
from sockets import ask, connect, head, read_reply

from cloakwork.api.http.observer import ClientAddresses


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("observer") / "data")
    new_tenant(data, "first")
    environment = {"TRUSTED_PROXIES": "127.0.0.1 ::1", "METRICS_PUBLIC": "true"}
    with serving(data, insecure=False, environment=environment) as started:
        yield started


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return new_tenant(server.data, "alice", "score", "models")


@pytest.fixture
def http(server: Server, token: str) -> Iterator[httpx.Client]:
    with server.client(headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


def line_of(server: Server, answer: httpx.Response | str) -> dict[str, Any]:
    """Of an answer, or by its request's id; it comes when the answer has gone out."""
    identity = answer if isinstance(answer, str) else answer.headers["x-request-id"]

    def lines() -> list[dict[str, Any]]:
        return [each for each in server.log_lines() if each.get("request_id") == identity]

    assert becomes(lambda: len(lines()), 1)
    return lines()[0]


def test_a_line_says_who_asked_what_and_what_came_of_it(server: Server, http: httpx.Client):
    user = User.of(http)
    user.upload()
    _, body = user.encrypt()
    answer = user.infer(body)
    line = line_of(server, answer)
    assert line["logger"] == "cloakwork.access" and line["message"] == "request"
    assert {name: line[name] for name in ("client", "method", "route", "path", "status", "tenant", "model")} == {
        "client": "127.0.0.1",
        "method": "POST",
        "route": "/v2/models/{model}/infer",
        "path": "/v2/models/toy/infer",
        "status": 200,
        "tenant": "alice",
        "model": "toy",
    }
    assert (line["received_bytes"], line["sent_bytes"]) == (len(body), len(answer.content))
    assert line["seconds"] > 0 and "code" not in line


def test_a_refusal_has_its_code_and_the_bytes_that_came(server: Server, http: httpx.Client):
    answer = http.post("/v2/keys", content=b"{}")
    line = line_of(server, answer)
    assert (line["status"], line["code"], line["route"], line["received_bytes"]) == (422, "malformed", "/v2/keys", 2)
    assert line["sent_bytes"] == len(answer.content)


def test_nobody_and_nowhere(server: Server):
    with server.client() as http:
        line = line_of(server, http.get("/nowhere/at/all"))
        assert (line["status"], line["route"], line["tenant"]) == (404, "none", None)
        assert line_of(server, http.get("/v2/jobs"))["code"] == "unauthorised"


def test_a_head_sends_nothing(server: Server, http: httpx.Client):
    user = User.of(http)
    identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
    line = line_of(server, http.head(f"/v2/keys/{identity}"))
    assert (line["route"], line["sent_bytes"]) == ("/v2/keys/{key}", 0)


def test_a_proxy_that_is_trusted_says_who_asks(server: Server, http: httpx.Client):
    answer = http.get("/v2/models", headers={"X-Forwarded-For": "198.51.100.7, 192.0.2.1"})
    assert line_of(server, answer)["client"] == "192.0.2.1"


def test_no_line_of_the_log_has_a_secret(server: Server, http: httpx.Client, token: str, tmp_path: Path):
    """Of the client, or of what it sent, in any of the ways in which things go wrong."""
    user = User.of(http)
    user.upload()
    _, body = user.encrypt()
    user.key.save(tmp_path / "client.key", "passphrase")
    secret = (tmp_path / "client.key").read_bytes()
    mark = "MARKED-BY-THE-CLIENT"
    user.infer(body)
    user.infer(secret[: len(body)].ljust(len(body), b"\0"))
    http.post("/v2/keys", json={"bytes": mark})
    http.post("/v2/keys", content=mark)
    http.get(
        "/v2/models", params={"q": mark}, headers={"Cookie": mark, "X-Mark": mark, "X-Request-Id": f"{mark}\t{mark}"}
    )
    http.get("/v2/models", headers={"Authorization": f"Bearer {mark}"})
    http.get("/v2/models", headers={"Authorization": f"Basic {mark}"})
    http.get("/v2/models", headers={"X-Forwarded-For": mark})
    ask(server, f"{mark} {mark}\r\n\r\n".encode())
    last = http.get("/v2/models")
    line_of(server, last)
    text = server.log.read_text(encoding="utf-8")
    assert mark not in text and token not in text and token.split("_")[-1] not in text
    assert body[40:60].hex() not in text and "passphrase" not in text


def test_requests_that_are_none_have_a_line_too(server: Server):
    with connect(server) as connection:
        connection.sendall(head("GET /v2", "Content-Length: -5"))
        reply = read_reply(connection)
    assert reply is not None
    line = line_of(server, reply.headers["x-request-id"])
    assert (line["client"], line["method"], line["route"], line["status"]) == ("127.0.0.1", None, "none", 400)
    assert line["code"] == "bad_request"


def routes_and_methods(http: httpx.Client) -> set[tuple[str, str, str]]:
    text = http.get("/metrics").text
    return set(re.findall(r'fhe_http_requests_total\{method="([^"]*)",route="([^"]*)",status="([^"]*)"\}', text))


def test_made_up_paths_and_methods_are_one_label(server: Server, http: httpx.Client):
    http.get("/v2/models/toy")
    http.get("/v2/nowhere")
    http.request("BREW", "/v2/nowhere")
    http.get("/metrics")
    before = routes_and_methods(http)
    for i in range(50):
        assert http.get(f"/v2/nowhere/{i}").status_code == 404
        assert http.request(f"BREW{i}", "/v2/nowhere").status_code == 404
        assert http.get(f"/v2/models/made-up-{i}").status_code == 404
    after = routes_and_methods(http)
    assert after - before <= {("GET", "/v2/models/{model}", "404")}
    assert {("GET", "none", "404"), ("other", "none", "404"), ("GET", "/v2/models/{model}", "200")} <= after


def test_the_duration_of_each_route(http: httpx.Client):
    http.get("/v2/usage")
    text = http.get("/metrics").text
    (count,) = re.findall(r'fhe_http_request_seconds_count\{method="GET",route="/v2/usage"\} ([\d.]+)', text)
    assert float(count) >= 1
    assert 'fhe_http_request_seconds_bucket{le="0.1",method="GET",route="/v2/usage"}' in text


def found(peer: str | None, *forwarded: str, proxies: str = "10.0.0.0/8 fd00::/8") -> str | None:
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    client = None if peer is None else (peer, 40_000)
    return ClientAddresses(proxies.split()).of({"client": client, "headers": headers})


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", (), "203.0.113.9"),
        ("203.0.113.9", ("192.0.2.1",), "203.0.113.9"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.7, 192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("192.0.2.1, 10.0.0.2",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.7", "192.0.2.1"), "192.0.2.1"),
        ("10.0.0.1", ("10.9.9.9, 10.0.0.2",), "10.9.9.9"),
        ("10.0.0.1", ("192.0.2.1:1234",), "192.0.2.1"),
        ("10.0.0.1", ("[2001:db8::1]:1234",), "2001:db8::1"),
        ("10.0.0.1", ("2001:db8::1",), "2001:db8::1"),
        ("::ffff:10.0.0.1", ("192.0.2.1",), "192.0.2.1"),
        ("fd00::1", ("2001:DB8::0:1",), "2001:db8::1"),
        ("10.0.0.1", ('192.0.2.1, "} made up {',), "10.0.0.1"),
        ("10.0.0.1", ("unknown",), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1, unknown, 10.0.0.2",), "10.0.0.2"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("," * 5000,), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1," + "10.0.0.2," * 14 + "10.0.0.2",), "192.0.2.1"),
        ("10.0.0.1", ("192.0.2.1," + "10.0.0.3," * 3000 + "10.0.0.2",), "10.0.0.3"),
        ("fe80::1%eth0", (), "fe80::1"),
        (None, ("192.0.2.1",), None),
        ("", ("192.0.2.1",), None),
    ],
)
def test_addresses(peer: str | None, forwarded: tuple[str, ...], client: str | None):
    assert found(peer, *forwarded) == client


def test_without_trusted_proxies_nobody_is_believed():
    assert found("10.0.0.1", "192.0.2.1", proxies="") == "10.0.0.1"
