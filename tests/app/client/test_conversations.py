"""What the client asks in which order, against scripted answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloakwork.app.client import conversations
from cloakwork.app.client.conversations import upload_keys
from cloakwork.app.client.errors import (
    ConnectionLostError,
    MisbehavingServerError,
    OverQuotaError,
    ServiceError,
    error_of,
)
from cloakwork.app.client.event_stream import EventParser
from cloakwork.app.client.exchange import ClientRequest, Conversation, Response, T
from cloakwork.app.client.transport import checked_url
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError

DIGEST = "cd" * 32


def drive(conversation: Conversation[T], answer: Callable[[ClientRequest], Response]) -> T:
    """What a transport does, without a network; errors of `answer` are raised inside the conversation."""
    try:
        request = next(conversation)
        while True:
            try:
                response = answer(request)
            except ServiceError as error:
                request = conversation.throw(error)
            else:
                request = conversation.send(response)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def answer_json(status: int, fields: dict[str, Any], **headers: str) -> Response:
    return Response(status, headers, json.dumps(fields).encode())


class KeyServer:
    """Takes parts of one upload; loses the connection at the given requests."""

    def __init__(self, has: bytes = b"", lose: tuple[int, ...] = (), keep: int = 0) -> None:
        self.data = has
        self.lose = lose
        self.keep = keep  # bytes of a lost part that arrived
        self.parts = 0
        self.size = 0

    def __call__(self, request: ClientRequest) -> Response:
        match request.method:
            case "POST":
                self.size = request.json["bytes"]
                state = "ready" if len(self.data) == self.size else "open"
                return answer_json(201, {"id": "ab" * 16, "state": state})
            case "HEAD":
                return Response(200, {"upload-offset": str(len(self.data))}, b"")
        assert request.content is not None and not request.repeatable
        assert int(request.headers["Upload-Offset"]) == len(self.data)
        self.parts += 1
        if self.parts in self.lose:
            self.data += request.content[: self.keep]
            raise ConnectionLostError("gone")
        self.data += request.content
        return answer_json(200, {"state": "open"}, **{"upload-offset": str(len(self.data))})


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(conversations, "PART_BYTES", 1000)
    path = tmp_path / "evaluation.keys"
    path.write_bytes(hashlib.shake_256(b"key").digest(3500))
    return path


@pytest.mark.parametrize("already", [0, 1, 1000, 3499])
def test_an_upload_goes_on_where_it_stands(key_file: Path, already: int) -> None:
    server = KeyServer(has=key_file.read_bytes()[:already])
    seen: list[tuple[str, int, int]] = []
    name, sent = drive(upload_keys(key_file, DIGEST, lambda *what: seen.append(what)), server)
    assert (name, sent) == ("ab" * 16, 3500 - already)
    assert server.data == key_file.read_bytes()
    assert seen[-1] == ("upload", 3500, 3500)


def test_a_key_that_is_there_is_not_sent(key_file: Path) -> None:
    server = KeyServer(has=key_file.read_bytes())
    assert drive(upload_keys(key_file, DIGEST, lambda *_: None), server) == ("ab" * 16, 0)
    assert server.parts == 0


@pytest.mark.parametrize("keep", [0, 400])
def test_lost_parts_are_sent_again_from_where_the_server_is(key_file: Path, keep: int) -> None:
    server = KeyServer(lose=(1, 3), keep=keep)
    drive(upload_keys(key_file, DIGEST, lambda *_: None), server)
    assert server.data == key_file.read_bytes()


def test_a_connection_that_is_always_lost_ends_the_upload(key_file: Path) -> None:
    with pytest.raises(ConnectionLostError):
        drive(upload_keys(key_file, DIGEST, lambda *_: None), KeyServer(lose=tuple(range(1, 100))))


@pytest.mark.parametrize("offset", ["-1", "3501", "1e3", "", "٣", "9" * 400])
def test_a_server_that_stands_nowhere_is_refused(key_file: Path, offset: str) -> None:
    def answer(request: ClientRequest) -> Response:
        return answer_json(201, {"id": "k", "state": "open"}, **{"upload-offset": offset})

    with pytest.raises(MisbehavingServerError, match="Upload-Offset of 0 to 3500"):
        drive(upload_keys(key_file, DIGEST, lambda *_: None), answer)


@pytest.mark.parametrize("step", [0, 1, -1000])
def test_an_upload_without_progress_ends(key_file: Path, step: int) -> None:
    sent: list[int] = []

    def answer(request: ClientRequest) -> Response:
        if request.method == "PATCH":
            assert isinstance(request.content, bytes)
            sent.append(len(request.content))
        offset = max(0, 1000 + step * len(sent)) if sent else 1000
        return answer_json(201, {"id": "k", "state": "open"}, **{"upload-offset": str(offset)})

    with pytest.raises(MisbehavingServerError, match="the server has at most 10"):
        drive(upload_keys(key_file, DIGEST, lambda *_: None), answer)
    assert len(sent) == 9


@pytest.mark.parametrize("name", ["..", "", "a/b", "a?b", "a b", "a\r\nb", "k" * 201, None, ["a"], {"a": 1}])
def test_names_of_the_server_are_no_paths(key_file: Path, name: Any) -> None:
    with pytest.raises(MisbehavingServerError, match="expected a name of letters"):
        drive(
            upload_keys(key_file, DIGEST, lambda *_: None), lambda _: answer_json(201, {"id": name, "state": "ready"})
        )


def test_messages_of_the_server_are_lines() -> None:
    said = {"error": "\x1b[2J\r\nred\u202e" + "x" * 5000, "code": "a\x07b"}
    error = error_of(400, {"x-request-id": "\x1b[1m" + "y" * 500}, json.dumps(said).encode())
    assert isinstance(error, ServiceError)
    for text in (str(error), error.service_code, error.request_id or ""):
        assert text.isprintable() and len(text) < 800


def test_answers_that_are_no_answers(key_file: Path) -> None:
    with pytest.raises(ServiceError, match="JSON"):
        drive(upload_keys(key_file, DIGEST, lambda *_: None), lambda _: Response(200, {}, b"<html>"))


def test_errors_of_the_server_are_errors_of_the_tree() -> None:
    body = {"error": "expected keys of set 'lut4'", "code": "key_mismatch", "request_id": "7"}
    assert isinstance(error_of(409, {}, json.dumps(body).encode()), KeyMismatchError)
    full = error_of(429, {"retry-after": "7"}, json.dumps({"error": "full", "code": "busy"}).encode())
    assert isinstance(full, OverQuotaError)
    assert full.retry_after == 7
    other = error_of(502, {}, b"<html>bad gateway")
    assert isinstance(other, ServiceError)
    assert other.status == 502


def test_events() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    parser = EventParser(lambda name, data: seen.append((name, data)))
    for line in [
        ": still here",
        "",
        "event: progress",
        'data: {"done": 1,',
        'data: "total": 2}',
        "",
        "event: done",
        "data: {}",
        "",
    ]:
        parser.line(line)
    assert seen == [("progress", {"done": 1, "total": 2}), ("done", {})]
    with pytest.raises(MisbehavingServerError, match="event: expected at most 65536 bytes"):
        for _ in range(3):
            parser.line("data: " + "x" * (1 << 15))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_come_in_pieces(size: int) -> None:
    """Lines end as they like, also between two pieces; comments have no limit of an event."""
    stream = (
        b"event: progress\r\ndata: {\r\ndata: }\r\n\r\n"
        + b": still here\n\n" * 10_000
        + b'event: done\rdata: {"a": 1}\n\n'
    )
    seen: list[tuple[str, dict[str, Any]]] = []
    parser = EventParser(lambda name, data: seen.append((name, data)))
    for start in range(0, len(stream), size):
        parser.feed(stream[start : start + size])
    assert seen == [("progress", {}), ("done", {"a": 1})]


def test_a_flood_of_events_ends() -> None:
    parser = EventParser(lambda *_: None)
    with pytest.raises(MisbehavingServerError, match="bytes a second"):
        for _ in range(1 << 10):
            parser.feed(b"event: progress\ndata: {}\n\n" * 1000)


@pytest.mark.parametrize(
    ("url", "has_token", "refused"),
    [
        ("http://127.0.0.1:8123/", True, False),
        ("http://localhost", True, False),
        ("https://fhe.example.org", True, False),
        ("http://fhe.example.org", False, False),
        ("http://fhe.example.org", True, True),
        ("ftp://fhe.example.org", False, True),
        ("fhe.example.org", False, True),
        ("https://user:word@fhe.example.org", False, True),
    ],
)
def test_urls(url: str, has_token: bool, refused: bool) -> None:
    if refused:
        with pytest.raises(ParameterError, match="url"):
            checked_url(url, has_token, allow_plain_http=False)
    else:
        assert not checked_url(url, has_token, allow_plain_http=False).endswith("/")
