"""Bodies in memory: none before an API key, small ones where nothing is streamed, and answers that nobody reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from in_process import LocalServer, serving
from scoring_server import Server, User, becomes, eventually, new_tenant
from sockets import Reply, ask, connect, head, is_closed, many, read_reply

from cloakwork.api.application import create_app
from cloakwork.api.errors import SlowBodyError
from cloakwork.api.http import bodies
from cloakwork.api.http.gate import SMALL_BODY_BYTES, STREAMED
from cloakwork.api.service.services import wire
from cloakwork.api.settings import load_settings

LIMITS = {"BODY_IDLE_SECONDS": "600", "BODY_MEMORY_BYTES": "2000000", "TENANT_BODY_MEMORY_BYTES": "500000"}
CHUNKED, MANY_BYTES = "Transfer-Encoding: chunked", 300_000_000


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return new_tenant(server.data, "owner", "score", "models")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[LocalServer]:
    data = fill(tmp_path_factory.mktemp("bodies") / "data")
    new_tenant(data, "first")
    with serving(data, insecure=False, environment=LIMITS) as started:
        yield started


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[LocalServer]:
    """A server that waits for no body."""
    new_tenant(tmp_path / "data", "first")
    with serving(tmp_path / "data", insecure=False, environment={**LIMITS, "BODY_IDLE_SECONDS": "0.2"}) as started:
        yield started


def error_of(reply: Reply | None) -> tuple[int, str]:
    assert reply is not None
    found = reply.json()
    assert found["request_id"] == reply.headers["x-request-id"] and found["error"]
    assert reply.headers["connection"] == "close"
    return reply.status, found["code"]


def test_what_is_said_of_bodies_that_are_refused(server: Server, token: str):
    key = f"Authorization: Bearer {token}"
    large = f"Content-Length: {SMALL_BODY_BYTES + 1}"
    assert error_of(ask(server, head("POST /v2/keys", large))) == (401, "unauthorised")
    assert error_of(ask(server, head("POST /v2/keys", CHUNKED) + b"5\r\n[1,1,\r\n")) == (401, "unauthorised")
    assert error_of(ask(server, head("POST /v2/keys", large, key))) == (413, "too_large")
    chunks = b"4000\r\n" + b"1" * 0x4000 + b"\r\n1\r\n1\r\n"
    assert error_of(ask(server, head("POST /v2/keys", CHUNKED, key) + chunks)) == (413, "too_large")
    # Routes that take no body and ask for no API key do not read one.
    reply = ask(server, head("GET /v2", f"Content-Length: {MANY_BYTES}"))
    assert reply is not None and (reply.status, reply.headers["connection"]) == (200, "close")


def test_unfinished_bodies_do_not_stay_open(hasty: LocalServer):
    key = f"Authorization: Bearer {new_tenant(hasty.data, 'owner')}"
    for start in (head("POST /v2/keys", "Content-Length: 9", key) + b"{", head("POST /v2/keys", CHUNKED, key)):
        assert error_of(ask(hasty, start)) == (408, "slow_body")
    with many(hasty, 20, head("POST /v2/keys", "Content-Length: 9", key) + b"[1") as connections:
        for connection in connections:
            assert error_of(read_reply(connection)) == (408, "slow_body")
            assert is_closed(connection)


@pytest.mark.parametrize("slow", ["service", "client"])
def test_a_client_answers_only_for_its_own_time(monkeypatch: pytest.MonkeyPatch, slow: str):
    """What the service waits for between two parts, such as the database, is not the client's."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(bodies, "time", clock)

    async def stream() -> AsyncIterator[bytes]:
        for _ in range(10):
            clock.now += 3.0 if slow == "client" else 0.0
            yield b"part"

    async def read() -> int:
        count = 0
        async for _ in bodies.chunks(SimpleNamespace(stream=stream), 1000, idle_seconds=10.0):  # type: ignore[arg-type]
            clock.now += 3.0 if slow == "service" else 0.0
            count += 1
        return count

    if slow == "service":
        assert asyncio.run(read()) == 10
    else:
        with pytest.raises(SlowBodyError, match="less than 4096 bytes a second"):
            asyncio.run(read())


def test_a_small_body_reaches_its_route(server: Server, token: str):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with server.client(headers=headers) as http:
        assert http.post("/v2/repository/index", json={"ready": True}).status_code == 200
        content = b'{"ready": true' + b" " * (SMALL_BODY_BYTES - 15) + b"}"
        assert http.post("/v2/repository/index", content=content).status_code == 200
        chunked = http.post("/v2/repository/index", content=iter([b'{"ready":', b" true}"]))
        assert chunked.status_code == 200
        deep = http.post("/v2/repository/index", content=b"[" * SMALL_BODY_BYTES)
        assert 400 <= deep.status_code < 500
        assert http.post("/v2/repository/models/toy/load", json={}).headers.get("connection") != "close"


def test_streamed_routes_are_those_with_binary_bodies(tmp_path: Path):
    """The gate reads the body of every other route."""
    services = wire(load_settings(data_folder=tmp_path / "data", zoo=False))
    for path, methods in create_app(services).openapi()["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            place = path.replace("{model}", "m").replace("{version}", "1").replace("{key}", "k").replace("{job}", "j")
            streamed = any(name == method.upper() and pattern.match(place) for name, pattern in STREAMED)
            assert streamed == ("application/octet-stream" in content), (method, path)


@pytest.mark.tier("all")
def test_a_client_that_does_not_read_is_let_go(tmp_path: Path, fill: Callable[[Path], Path]):
    """Answers lie in memory only as long as somebody takes them."""
    limits = {"BODY_IDLE_SECONDS": "2", "SYNCHRONOUS_SECONDS": "600"}
    with serving(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        sent = user.encrypt(samples=3400)[1]
        answer = user.infer(sent)
        assert answer.status_code == 200 and len(answer.content) > 6 << 20  # more than the sockets take
        begin = head("POST /v2/models/toy/infer", f"Content-Length: {len(sent)}")
        with connect(server) as connection:
            connection.sendall(begin + sent)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
            assert becomes(lambda: open_connections(connection.getsockname()[1]), 0)


def open_connections(port: int) -> int:
    """The server's sides of connections to a port."""
    every = psutil.Process().net_connections("tcp")
    return sum(1 for each in every if each.raddr and each.raddr.port == port and each.status == "ESTABLISHED")


def test_one_tenants_bodies_leave_room_for_another(server: LocalServer):
    tokens = [new_tenant(server.data, name) for name in ("greedy", "modest")]
    greedy, modest = (server.client(headers={"Authorization": f"Bearer {token}"}) for token in tokens)
    with greedy, modest:
        user, other = User.of(modest), User.of(greedy)
        user.upload()
        other.upload()
        large = other.encrypt(samples=80)[1]
        begin = head("POST /v2/models/toy/infer", f"Content-Length: {len(large)}", f"Authorization: Bearer {tokens[0]}")
        with many(server, 6, begin + large[:-1]):  # each with an answer of 160,000 bytes to come: three have room
            assert eventually(lambda: server.services.bodies.facts()["held_bytes"] > 450_000)
            answer = greedy.post("/v2/models/toy/infer", content=large)
            assert (answer.status_code, answer.json()["code"]) == (429, "busy")
            assert user.infer(user.encrypt()[1]).status_code == 200
