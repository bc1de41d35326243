"""Clients below httpx: bytes on sockets, many at once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from scoring_server import Server


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def connect(server: Server, seconds: float = 30) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=seconds)


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: 127.0.0.1", *fields, "", "")).encode("latin-1")


def read_reply(connection: socket.socket) -> Reply | None:
    """One answer; None when the connection ends before it is whole."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        if not (part := _receive(connection)):
            return None
        data += part
    status, *lines = data[:end].decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body, length = data[end + 4 :], int(headers.get("content-length", "0"))
    while len(body) < length:
        if not (part := _receive(connection)):
            return None
        body += part
    return Reply(int(status.split()[1]), headers, body)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


def ask(server: Server, sent: bytes, seconds: float = 30) -> Reply | None:
    with connect(server, seconds) as connection:
        connection.sendall(sent)
        return read_reply(connection)


def is_closed(connection: socket.socket) -> bool:
    """The other side has ended it; what it still sent is read."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


@contextmanager
def many(server: Server, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that stay open, each after sending the same."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            connection = stack.enter_context(connect(server))
            if sent:
                connection.sendall(sent)
            opened.append(connection)
        yield opened


def pour(server: Server, start: bytes, piece: bytes, pieces: int) -> None:
    """Sends as much as the server takes."""
    with connect(server, 20) as connection:
        try:
            connection.sendall(start)
            for _ in range(pieces):
                connection.sendall(piece)
            read_reply(connection)
        except OSError:
            return


@contextmanager
def at_once(clients: int, work: Callable[[], None]) -> Iterator[None]:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


class Memory:
    """Resident bytes of the web process, and the most of them that was seen while `watch` ran."""

    def __init__(self, server: Server) -> None:
        assert server.process is not None
        self._process = psutil.Process(server.process.pid)
        self.peak = self.now()

    def now(self) -> int:
        return int(self._process.memory_info().rss)

    @contextmanager
    def watch(self) -> Iterator[None]:
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.02):
                self.peak = max(self.peak, self.now())

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
