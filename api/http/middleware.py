"""Middleware around every request: the gate, an identifier, security headers, what is kept of it, and patience with clients that still send."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloakwork.api.http.connections import Connection
from cloakwork.api.http.error_answers import CLIENT_GONE, ErrorAnswer
from cloakwork.api.http.gate import Gate, asks_for_health, has_body
from cloakwork.api.http.observer import AnsweredRequest, Observer
from cloakwork.api.http.route_names import to_origin_form
from cloakwork.fhe_core.errors import FheError

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_DRAIN_BYTES: Final = 8 << 20
_DRAIN_SECONDS: Final = 1.0

_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_SCRIPTS: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")


class ServiceMiddleware:
    """Plain ASGI: a request costs a few dictionaries, no task and no queue."""

    def __init__(self, app: ASGIApp, gate: Gate, error_answer: ErrorAnswer, observer: Observer, *, tls: bool) -> None:
        self._app = app
        self._gate = gate
        self._error_answer = error_answer
        self._observer = observer
        self._tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        to_origin_form(scope)
        exchange = _Exchange(scope, receive, send, self._tls)
        connection: Connection | None = scope["state"].get("connection")
        began = time.perf_counter()
        if connection is not None:
            connection.begin(healthy=asks_for_health(scope))
        try:
            await exchange.run(self._app, self._gate, self._error_answer)
        finally:
            if connection is not None:
                connection.end()
            self._observer.record(scope, exchange.outcome(time.perf_counter() - began))


class _Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send, tls: bool) -> None:
        self._scope, self._receive, self._send, self._tls = scope, receive, send, tls
        self._status = self._received = self._sent = 0
        self._body_read = not has_body(scope["headers"])
        self._state: dict[str, Any] = scope.setdefault("state", {})
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        self._request_id = given.decode() if _REQUEST_ID.match(given) else uuid4().hex
        self._state["request_id"] = self._request_id

    async def run(self, app: ASGIApp, gate: Gate, error_answer: ErrorAnswer) -> None:
        listen: Receive = self._listen
        try:
            gate.check(self._scope)
            body = await gate.small_body(self._scope, self._listen)
        except ClientDisconnect:
            self._status = CLIENT_GONE
            return
        except (FheError, OSError, SQLAlchemyError) as error:
            response = await error_answer(Request(self._scope), error)
            await response(self._scope, self._listen, self._answer)
            return
        if body is not None:
            listen = _replay(body, self._listen)
        await app(self._scope, listen, self._answer)

    def outcome(self, seconds: float) -> AnsweredRequest:
        return AnsweredRequest(self._status, seconds, self._received, self._sent)

    async def _listen(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            self._body_read = True
        return message

    async def _answer(self, message: Message) -> None:
        if self._scope["method"] != "HEAD":  # whose bodies stay here
            self._sent += len(message.get("body", b""))
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message = {**message, "headers": [*message["headers"], *self._own_headers(message["headers"])]}
        elif self._early and not message.get("more_body"):
            # The whole answer goes out; then the client gets a moment to read it before the connection closes on what it still sends.
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    @property
    def _early(self) -> bool:
        """An answer before the body was read: the connection cannot be used for another request."""
        return not self._body_read

    def _own_headers(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", self._request_id.encode()), *_HEADERS]
        if all(name != _NO_SCRIPTS[0] for name, _ in given):  # the page's files bring their own
            headers.append(_NO_SCRIPTS)
        if self._tls:
            headers.append(_STRICT_TRANSPORT)
        connection = self._state.get("connection")
        if self._early or (connection is not None and connection.spare):
            headers.append((b"connection", b"close"))
        return headers

    async def _drain(self) -> None:
        received = 0
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while received < _DRAIN_BYTES and not self._body_read:
                    received += len((await self._listen()).get("body", b""))
        except TimeoutError:
            return


def _replay(body: bytes, listen: Receive) -> Receive:
    """Returns the body that was read already, then what comes after it."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return pending.pop() if pending else await listen()

    return receive
