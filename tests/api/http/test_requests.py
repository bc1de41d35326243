"""Requests that are odd in form: framing, sizes, methods, pipelines, upgrades."""

from __future__ import annotations

import httpx
import pytest
from scoring_server import Server, eventually
from sockets import Reply, ask, connect, head, is_closed, read_reply


def refused(reply: Reply | None, status: int, code: str) -> None:
    assert reply is not None
    assert (reply.status, reply.headers["content-type"]) == (status, "application/json"), reply
    found = reply.json()
    assert found["code"] == code and found["request_id"] == reply.headers["x-request-id"]
    assert status == 431 or reply.headers["connection"] == "close"


@pytest.mark.parametrize("line", ["POST /v2/models/toy/infer", "POST /v2/keys", "GET /v2", "GET /v2/health/live"])
@pytest.mark.parametrize("order", [1, -1])
def test_two_lengths_close_the_connection(server: Server, line: str, order: int):
    """RFC 9112, 6.1. What follows is of nobody knows which request, and is not answered."""
    lengths = ["Content-Length: 5", "Transfer-Encoding: chunked"][::order]
    with connect(server) as connection:
        connection.sendall(head(line, *lengths) + b"0\r\n\r\n" + head("GET /v2/models"))
        refused(read_reply(connection), 400, "bad_request")
        assert connection.recv(1000) == b""


def test_chunks_of_an_older_protocol(server: Server):
    sent = head("POST /v2/keys", "Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n"
    refused(ask(server, sent), 400, "bad_request")


@pytest.mark.parametrize(
    "sent",
    [
        head("GET /v2", "X-Long: " + "a" * 40_000),
        head("GET /v2", *(f"X-Part-{i}: {'a' * 8000}" for i in range(5))),
        head("GET /v2", *(f"X-{i}: a" for i in range(3000))),
        head("GET /v2", *(f"X-{i}: a" for i in range(200))),
        head("GET /v2?" + "q" * 40_000),
        head("GET /v2/models/" + "m" * 40_000),
        b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 40_000,
        b"GET /" + b"m" * 40_000,
    ],
    ids=["field", "fields", "thousands", "hundreds", "query", "path", "unfinished-field", "unfinished-path"],
)
def test_a_header_beyond_32_kib(server: Server, sent: bytes):
    refused(ask(server, sent), 431, "header_too_large")


def test_a_header_just_within(server: Server):
    reply = ask(server, head("GET /v2", *(f"X-Part-{i}: {'a' * 3000}" for i in range(10))))
    assert reply is not None and reply.status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (head("GET /v2", "Content-Length: -5"), 400),
        (head("GET /v2", "Content-Length: 5", "Content-Length: 6"), 400),
        (head("GET /v2", "Host: other"), 400),
        (head("GET /v2", "Transfer-Encoding: gzip"), 501),
        (head("GET /v2", "Na me: x"), 400),
    ],
)
def test_what_is_no_request_is_told_so_in_json(server: Server, sent: bytes, status: int):
    refused(ask(server, sent), status, "bad_request" if status == 400 else "not_implemented")


def test_a_body_that_breaks_its_framing_ends_its_request(server: Server):
    before = len(server.log_lines())
    with connect(server) as connection:
        connection.sendall(head("POST /v2/repository/index", "Transfer-Encoding: chunked") + b"zz\r\n")
        reply = read_reply(connection)
        assert reply is not None and reply.status == 400
        assert is_closed(connection)
    own = [line for line in server.log_lines()[before:] if line["level"] == "error"]  # other tests share the server
    assert own == []


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "PUT"])
def test_other_methods(server: Server, http: httpx.Client, method: str):
    with connect(server) as connection:
        connection.sendall(head(f"{method} /v2/models", "Cookie: secret"))
        data = connection.recv(65536)
    assert data.startswith(b"HTTP/1.1 405 ") and b"secret" not in data
    assert http.get("/v2/models").status_code == 200


def test_a_pipeline_is_answered_in_order(server: Server):
    """Requests in one breath: as many answers."""
    count = 100
    with connect(server, 120) as connection:
        connection.sendall(head("GET /v2", "X-Request-Id: first") + head("GET /v2/nowhere") * count)
        connection.sendall(head("GET /v2", "X-Request-Id: last", "Connection: close"))
        data = b""
        while part := connection.recv(1 << 16):
            data += part
    assert data.index(b"first") < data.index(b"404 Not Found") < data.index(b"last")
    assert data.count(b"HTTP/1.1 ") == count + 2


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_upgrades_are_not_taken(server: Server, protocol: str):
    lines = len(server.log_lines())
    reply = ask(server, head("GET /v2", f"Upgrade: {protocol}", "Connection: Upgrade", "Sec-WebSocket-Version: 13"))
    assert reply is not None and reply.status == 200
    assert [line for line in server.log_lines()[lines:] if line["level"] != "info"] == []


def test_a_long_path_does_not_fill_the_log(server: Server, http: httpx.Client):
    http.get("/" + "p" * 20_000)
    paths: list[str] = []

    def is_logged() -> bool:
        paths[:] = [path for line in server.log_lines() if (path := line.get("path", "")).startswith("/ppp")]
        return bool(paths)

    assert eventually(is_logged)
    assert len(paths[-1]) <= 256
