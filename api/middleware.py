"""Around every request: an identifier, security headers, a log line, metrics, and patience with clients that still send."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any, Final
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloakwork.api.metrics import Metrics

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_DRAIN_BYTES: Final = 8 << 20
_DRAIN_SECONDS: Final = 1.0
_FAILED: Final = 400

_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_SCRIPTS: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")

_log = logging.getLogger("cloakwork.access")


class ServiceMiddleware:
    """Plain ASGI: a request costs a few dictionaries, no task and no queue."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, tls: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(scope, receive, send, self._metrics, self._tls).run(self._app)


class _Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send, metrics: Metrics, tls: bool) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._metrics, self._tls = metrics, tls
        self._status = 0
        self._body_read = False
        self._state: dict[str, Any] = scope.setdefault("state", {})
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        self._request_id = given.decode() if _REQUEST_ID.match(given) else uuid4().hex
        self._state["request_id"] = self._request_id

    async def run(self, app: ASGIApp) -> None:
        began = time.perf_counter()
        try:
            await app(self._scope, self._listen, self._answer)
        finally:
            model = self._state.get("model", "")
            self._metrics.requests.labels(model, str(self._status)).inc()
            _log.info(
                "request",
                extra={
                    "request_id": self._request_id,
                    "method": self._scope["method"],
                    "path": self._scope["path"],
                    "status": self._status,
                    "seconds": round(time.perf_counter() - began, 6),
                    "tenant": self._state.get("tenant"),
                    **({"model": model} if model else {}),
                    **({"code": self._state["code"]} if "code" in self._state else {}),
                },
            )

    async def _listen(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            self._body_read = True
        return message

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message = {**message, "headers": [*message["headers"], *self._own_headers()]}
        elif self._early and not message.get("more_body"):
            # The whole answer goes out; then the client gets a moment to read it before the connection closes on what it still sends.
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    @property
    def _early(self) -> bool:
        """An error before the body was read."""
        return self._status >= _FAILED and not self._body_read and self._sends_body()

    def _sends_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self._scope["headers"]
        )

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", self._request_id.encode()), *_HEADERS]
        if not self._scope["path"].startswith("/docs"):
            headers.append(_NO_SCRIPTS)
        if self._tls:
            headers.append(_STRICT_TRANSPORT)
        if self._early:
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
