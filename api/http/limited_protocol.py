"""HTTP/1.1 that counts its connections and ends those of clients that neither speak nor read; Uvicorn would wait for ever."""

from __future__ import annotations

import asyncio
import http
import json
import logging
import sys
from typing import Final
from uuid import uuid4

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cloakwork.api.http.connections import Connection, Connections
from cloakwork.api.http.route_names import NO_ROUTE

_SPARE_HEADER_SECONDS: Final = 2.0
_LINGER_SECONDS: Final = 0.5
_LEAST_BYTES_PER_SECOND: Final = 4096  # that a client reads, on the average
_REASONS: Final = {
    400: ("bad_request", "this is no HTTP/1.1 request"),
    431: ("header_too_large", "the request's header is too large"),
    501: ("not_implemented", "the request's transfer coding is not supported; send a Content-Length"),
}

_log = logging.getLogger("cloakwork.access")


class LimitedProtocol(H11Protocol):
    """The protocol of one connection. Uvicorn makes them from a class and nothing else, so that what all have in common belongs to a subclass."""

    _register: Connections
    _header_seconds: float  # until a request's header is complete
    _idle_seconds: float  # that an answer may lie unread

    _entry: Connection | None = None
    _timer: asyncio.TimerHandle | None = None
    _refused = False
    _unread: tuple[float, int] | None = None  # since when so many bytes lie here

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._entry = self._register.admit(self.client[0] if self.client else "", self)
        if self._entry is None:
            transport.abort()
            return
        self.app_state = {**self.app_state, "connection": self._entry}
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget_timer()
        elif self._timer is None:
            self._wait_for_header()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0] and self._timer is None:
            self._wait_for_header()  # the beginning of a request that came before this answer

    def connection_lost(self, exc: Exception | None) -> None:
        if self._entry is not None:
            self._register.release(self._entry)
        self._forget_timer()
        super().connection_lost(exc)

    # --- clients that do not speak ---

    def _wait_for_header(self) -> None:
        spare = self._entry is not None and self._entry.spare
        self._timer = self.loop.call_later(
            min(self._header_seconds, _SPARE_HEADER_SECONDS) if spare else self._header_seconds, self._give_up
        )

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.close_idle()

    def close_idle(self) -> None:
        """Closes it; what was answered and not yet read has `idle_seconds` to go out."""
        if not self.transport.is_closing():
            self.transport.close()
            if self.transport.get_write_buffer_size():
                self.loop.call_later(self._idle_seconds, self.transport.abort)

    # --- clients that do not read ---

    def look(self, now: float) -> None:
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None:
            self._unread = (now, left)
        elif now - self._unread[0] >= self._idle_seconds:
            since, before = self._unread
            if before - left < _LEAST_BYTES_PER_SECOND * (now - since):
                self.transport.abort()
            self._unread = (now, left)

    def resume_writing(self) -> None:
        self._unread = None  # nearly all was read
        super().resume_writing()

    # --- requests that are none ---

    def send_400_response(self, msg: str) -> None:
        """Sends the error in the words of every other error. Called while Uvicorn handles h11's exception, which knows the status."""
        self._forget_timer()
        self._refused = True
        begun = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.cycle.disconnected = True  # a body that broke: whoever reads it hears that it ended
            self.cycle.message_event.set()
        if begun:
            self.close_idle()
            return
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        identity = uuid4().hex
        self.transport.write(_answer(status, identity))
        self._say(status, identity)
        # Not at once: a reset on what still comes would take the answer away.
        self.loop.call_later(_LINGER_SECONDS, self.close_idle)

    def _say(self, status: int, identity: str) -> None:
        """In the words of every other request, as far as there are any: it never got a route."""
        client = None if self.client is None else self.client[0]
        code, _ = _reason(status)
        about = {"request_id": identity, "client": client, "method": None, "route": NO_ROUTE, "status": status}
        _log.info("request", extra={**about, "code": code})

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to say: the request is answered as if it had not asked to switch."""


def limited_protocol(connections: Connections, header_seconds: float, idle_seconds: float) -> type[H11Protocol]:
    """`header_seconds`: until a request's header is complete; `idle_seconds`: that an answer may lie unread."""
    common = {"_register": connections, "_header_seconds": header_seconds, "_idle_seconds": idle_seconds}
    return type("LimitedProtocol", (LimitedProtocol,), common)


def _reason(status: int) -> tuple[str, str]:
    """Returns the code of the error and its text."""
    return _REASONS.get(status, _REASONS[400])


def _answer(status: int, identity: str) -> bytes:
    code, text = _reason(status)
    body = json.dumps({"error": text, "code": code, "request_id": identity})
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
        f"X-Request-Id: {identity}",
    )
    return "\r\n".join((*head, "", body)).encode()
