"""Requests that would fill a service's memory do not: measured on a process, whose memory is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from scoring_server import Server, User, new_tenant, running
from sockets import Memory, at_once, connect, head, is_closed, pour

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

LIMITS = {"BODY_IDLE_SECONDS": "2", "BODY_MEMORY_BYTES": "2000000", "TENANT_BODY_MEMORY_BYTES": "500000"}
CHUNKED, MANY_BYTES = "Transfer-Encoding: chunked", 300_000_000
_PIECE = b"1," * (1 << 19)
_CHUNK = f"{len(_PIECE):x}\r\n".encode() + _PIECE + b"\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("memory") / "data")
    new_tenant(data, "first")
    with running(data, insecure=False, environment=LIMITS) as started:
        yield started


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return new_tenant(server.data, "owner", "score", "models")


@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize("length", [f"Content-Length: {MANY_BYTES}", CHUNKED], ids=["length", "chunks"])
def test_bodies_of_json_take_no_memory(server: Server, token: str, with_key: bool, length: str):
    """Eight clients at once, 300 MB each, of a list that the parser would make ten times as large."""
    fields = [f"Authorization: Bearer {token}"] if with_key else []
    memory = Memory(server)
    before = memory.now()
    chunk = _CHUNK if length == CHUNKED else _PIECE
    with memory.watch():
        for line in ("POST /v2/keys", "POST /v2/repository/index"):
            begin = head(line, length, "Content-Type: application/json", *fields)
            with at_once(8, lambda begin=begin: pour(server, begin, chunk, MANY_BYTES // len(chunk))):
                pass
    assert memory.peak - before < 48 << 20


def test_a_header_of_megabytes_takes_no_memory(server: Server):
    memory = Memory(server)
    before = memory.now()
    with memory.watch():
        for start in (b"GET /v2?", b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: "):
            with connect(server) as connection:
                try:
                    for _ in range(100):
                        connection.sendall(start + b"a" * (1 << 20))
                except OSError:
                    pass
                assert is_closed(connection)
    assert memory.peak - before < 16 << 20


def test_a_pipeline_of_thousands_takes_no_memory(server: Server):
    memory = Memory(server)
    before, count = memory.now(), 2000
    with memory.watch(), connect(server, 120) as connection:
        connection.sendall(head("GET /v2/nowhere") * count + head("GET /v2", "Connection: close"))
        data = b""
        while part := connection.recv(1 << 16):
            data += part
    assert data.count(b"HTTP/1.1 ") == count + 1
    assert memory.peak - before < 16 << 20


def test_hostile_bodies_do_not_make_the_server_grow(server: Server, token: str):
    """After a warm-up, hundreds of refused requests."""
    assert server.process is not None
    process = psutil.Process(server.process.pid)

    def memory() -> int:
        return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)])

    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        user = User.of(http)
        _, body = user.encrypt()
        wrong = [body[:-1], b"\0" * len(body), bytes(reversed(body)), b"x" * 100]
        for i in range(100):
            user.infer(wrong[i % len(wrong)])
        before = memory()
        for i in range(400):
            assert 400 <= user.infer(wrong[i % len(wrong)]).status_code < 500
    assert memory() - before < 8 << 20
