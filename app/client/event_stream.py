"""Server-sent events (WHATWG HTML, section 9.2) with data in JSON, of a server that may send anything."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from cloakwork.app.client.errors import MisbehavingServerError
from cloakwork.app.client.exchange import ClientRequest, OnEvent

LARGEST_EVENT: Final = 1 << 16  # bytes
_FIRST_BYTES: Final = 1 << 20  # of a stream, and
_BYTES_A_SECOND: Final = 4096


class EventParser:
    """Takes pieces of a stream, or its lines."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._name, self._data, self._size = "message", list[str](), 0
        self._rest = b""  # of a line whose end has not come
        self._bytes, self._start = 0, time.monotonic()

    def feed(self, piece: bytes) -> None:
        """Raises MisbehavingServerError: an event is too large, or there are too many."""
        self._bytes += len(piece)
        if self._bytes > _FIRST_BYTES + _BYTES_A_SECOND * (time.monotonic() - self._start):
            raise MisbehavingServerError(f"events: expected at most {_BYTES_A_SECOND} bytes a second of them, got more")
        lines = (self._rest + piece).splitlines(keepends=True)
        # A carriage return at the end may be half of a line's end.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if len(self._rest) > LARGEST_EVENT:
            raise _too_large()
        for line in lines:
            self.line(line.rstrip(b"\r\n").decode("utf-8", "replace"))

    def line(self, line: str) -> None:
        """Takes one line without its end. MisbehavingServerError: the event is too large."""
        if not line:
            self._dispatch()
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        self._size += len(line)
        if self._size > LARGEST_EVENT:
            raise _too_large()
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif not field:  # a comment, which is no part of an event
            self._size -= len(line)

    def _dispatch(self) -> None:
        name, text = self._name, "\n".join(self._data)
        self._name, self._data, self._size = "message", [], 0
        if not text:
            return
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(data, dict):
            self._on_event(name, data)


def goes_on(request: ClientRequest) -> bool:
    """Whether the stream is still waited for."""
    return time.monotonic() < request.until


def _too_large() -> MisbehavingServerError:
    return MisbehavingServerError(f"event: expected at most {LARGEST_EVENT} bytes, got more")
