"""What is sent again when no answer comes, or one that may be another a moment later: against a server that follows a script."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cloakwork.app.client import transport
from cloakwork.app.client.errors import ConnectionLostError, ServiceError
from cloakwork.app.client.exchange import ClientRequest, Conversation, Response
from cloakwork.app.client.transport import ATTEMPTS, AsyncTransport, SyncTransport

CUT = 0  # in a script: the connection ends without an answer
Send = Callable[[str, ClientRequest], Response]


@contextmanager
def scripted(*script: int) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a server that answers one request after the other with these statuses, and the heads of the requests that it got."""
    got: list[bytes] = []

    def serve() -> None:
        for status in script:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed: fewer came
                return
            with connection, connection.makefile("rb") as stream:
                head = b"".join(iter(stream.readline, b"\r\n"))
                got.append(head)
                if status != CUT:
                    answer = f"HTTP/1.1 {status} .\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    connection.sendall(answer.encode())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", got
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def asked(request: ClientRequest) -> Conversation[Response]:
    return (yield request)


def send(url: str, request: ClientRequest) -> Response:
    client = SyncTransport(url, None, 30.0, True)
    try:
        return client.carry_out(asked(request))
    finally:
        client.close()


async def _send_async(url: str, request: ClientRequest) -> Response:
    client = AsyncTransport(url, None, 30.0, True)
    try:
        return await client.carry_out(asked(request))
    finally:
        await client.close()


def send_async(url: str, request: ClientRequest) -> Response:
    return asyncio.run(_send_async(url, request))


@pytest.fixture(params=[send, send_async])
def carry_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Send:
    monkeypatch.setattr(transport, "_FIRST_PAUSE_SECONDS", 0.0)
    chosen: Send = request.param
    return chosen


@pytest.mark.parametrize("passing", [(CUT,), (CUT, CUT), (429,), (502, 504), (503, CUT, 503)])
def test_what_may_be_sent_twice_is_sent_until_it_is_answered(carry_out: Send, passing: tuple[int, ...]) -> None:
    with scripted(*passing, 200) as (url, got):
        assert carry_out(url, ClientRequest("PUT", "/here")).status == 200
    assert [head.split(b"\r\n")[0] for head in got] == [b"PUT /here HTTP/1.1"] * (len(passing) + 1)


@pytest.mark.parametrize(("status", "error"), [(CUT, ConnectionLostError), (503, ServiceError)])
def test_what_must_be_sent_once_is_sent_once(carry_out: Send, status: int, error: type[Exception]) -> None:
    with scripted(status, 200) as (url, got):
        with pytest.raises(error):
            carry_out(url, ClientRequest("POST", "/here", repeatable=False))
        assert len(got) == 1


@pytest.mark.parametrize(("status", "error"), [(CUT, ConnectionLostError), (503, ServiceError)])
def test_it_ends_after_some_attempts(carry_out: Send, status: int, error: type[Exception]) -> None:
    with scripted(*[status] * ATTEMPTS, 200) as (url, got):
        with pytest.raises(error):
            carry_out(url, ClientRequest("GET", "/here"))
        assert len(got) == ATTEMPTS


@pytest.mark.parametrize(("status", "accepted"), [(404, ()), (503, (503,))])
def test_answers_are_answers(carry_out: Send, status: int, accepted: tuple[int, ...]) -> None:
    """A status that stays, and one that the conversation asked for."""
    with scripted(status, 200) as (url, got):
        if accepted:
            assert carry_out(url, ClientRequest("GET", "/here", accepted=accepted)).status == status
        else:
            with pytest.raises(ServiceError):
                carry_out(url, ClientRequest("GET", "/here"))
        assert len(got) == 1
