"""One answer for every error: its class says the status and the code, its text says what to do. A browser gets a page, programs JSON."""

from __future__ import annotations

import asyncio
import html
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response

from cloakwork.api.errors import AWAY, AWAY_SECONDS, StorageFullError, UnavailableError
from cloakwork.api.http.connections import Exhaustion
from cloakwork.api.http.page_content import policy
from cloakwork.api.http.route_names import Methods
from cloakwork.api.metrics import Metrics
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.fhe_core.errors import FheError

_POLICY: Final = policy()
_HTML: Final = """\
<!doctype html>
<html lang="en">
    <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>Page not found: cloakwork</title>
        <link rel="icon" href="data:," />
        <link rel="stylesheet" href="{start}page/page.css" />
    </head>
    <body>
        <main>
            <div>
                <h1>Page not found</h1>
                <p>This service has no page at this address. The link may be old, or the address may have a typing error.</p>
                <p><a href="{start}">Go to the start page</a></p>
                <p class="quiet">Request {request_id}</p>
            </div>
        </main>
    </body>
</html>
"""
_CODES = {404: "not_found", 405: "method_not_allowed", 400: "bad_request", 416: "range_not_satisfiable"}
_NO_SUCH_PAGE = 404
_NO_SUCH_METHOD = 405
_SHOULD = re.compile(r"^\w+ should (?:be |have )?")  # as pydantic begins its sentences
CLIENT_GONE = 499
_TOO_MANY = 429
_REPORT_SECONDS = 60.0  # between two lines about one kind of outage
_TOO_MANY_SECONDS = 0.5  # before the answer: who asks again at once takes nothing from others
_log = logging.getLogger("cloakwork.errors")
ErrorAnswer = Callable[[Request, Exception], Awaitable[Response]]


def asks_for_page(request: Request) -> bool:
    """Whether somebody opened an address outside the API in a browser."""
    return (
        request.method in ("GET", "HEAD")
        and "text/html" in request.headers.get("accept", "")
        and not request.url.path.startswith("/v2/")
    )


def not_found(request: Request) -> Response:
    """Says it in a sentence, with a link to the start page."""
    # Relative, as a proxy may serve this service below a path of its own.
    raw = request.scope.get("raw_path") or request.url.path.encode()
    start = "../" * (raw.partition(b"?")[0].count(b"/") - 1) or "./"
    content = _HTML.format(start=start, request_id=html.escape(getattr(request.state, "request_id", "")))
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": _POLICY, "Vary": "Accept"}
    return HTMLResponse(content, 404, headers)


def add_handlers(app: FastAPI, metrics: Metrics, disk: Disk, methods: Methods) -> ErrorAnswer:
    """Makes the answers of FheError, OSError and SQLAlchemyError; what it returns answers them where no route has been reached."""
    answers = _ErrorAnswers(metrics, disk, methods)
    app.add_exception_handler(FheError, answers.known)
    app.add_exception_handler(RequestValidationError, answers.invalid)
    app.add_exception_handler(HTTPException, answers.plain)
    app.add_exception_handler(ClientDisconnect, answers.gone)
    app.add_exception_handler(OSError, answers.broken)
    app.add_exception_handler(SQLAlchemyError, answers.broken)
    app.add_exception_handler(Exception, answers.unexpected)
    return answers.early


class _ErrorAnswers:
    """One method for each kind of error."""

    def __init__(self, metrics: Metrics, disk: Disk, methods: Methods) -> None:
        self._metrics = metrics
        self._methods = methods
        self._disk = disk
        self._exhaustion = Exhaustion()
        self._outages = _Outages()

    async def known(self, request: Request, error: Exception) -> Response:
        fhe_error = cast(FheError, error)
        if fhe_error.http_status == _TOO_MANY:
            await asyncio.sleep(_TOO_MANY_SECONDS)
        retry: float | None = getattr(fhe_error, "retry_after", None)
        headers = {} if retry is None else {"Retry-After": str(max(1, math.ceil(retry)))}
        if fhe_error.http_status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return self._answer(request, fhe_error.http_status, fhe_error.code, str(fhe_error), headers)

    async def invalid(self, request: Request, error: Exception) -> Response:
        problems = cast(RequestValidationError, error).errors()
        return self._answer(request, 422, "malformed", "; ".join(map(_problem, problems)))

    async def plain(self, request: Request, error: Exception) -> Response:
        http_error = cast(HTTPException, error)
        code = _CODES.get(http_error.status_code, "error")
        headers, text = dict(http_error.headers or {}), str(http_error.detail)
        if http_error.status_code == _NO_SUCH_METHOD:
            headers["Allow"] = self._methods.of(request.scope)
            text = f"this address takes {headers['Allow']}"
        elif http_error.status_code == _NO_SUCH_PAGE:
            text = "there is nothing at this address; /openapi.json lists those that there are"
        answer = self._answer(request, http_error.status_code, code, text, headers)
        is_page = http_error.status_code == _NO_SUCH_PAGE and self._methods.has_page and asks_for_page(request)
        return not_found(request) if is_page else answer

    async def gone(self, request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)  # nobody reads it; the log has it

    async def broken(self, request: Request, error: Exception) -> Response:
        if is_full(error):
            self._disk.report(error)
            text = "the service has no room left to store this; delete keys or finished jobs, or tell the operator"
            return await self.known(request, StorageFullError(text))
        if not self._exhaustion.report(error):
            self._outages.report(error, request)
        return await self.known(request, UnavailableError(AWAY, retry_after=AWAY_SECONDS))

    async def unexpected(self, request: Request, error: Exception) -> Response:
        _log.error("request failed", exc_info=error, extra=_identity(request))
        return self._answer(request, 500, "internal_error", "the service failed; the operator's log has the rest")

    async def early(self, request: Request, error: Exception) -> Response:
        """Answers a request before a route was reached."""
        return await (self.known if isinstance(error, FheError) else self.broken)(request, error)

    def _answer(
        self, request: Request, status: int, code: str, text: str, headers: dict[str, str] | None = None
    ) -> JSONResponse:
        request.state.code = code
        if status < 500:
            self._metrics.rejected.labels(code).inc()
        body = {"error": text, "code": code, "request_id": getattr(request.state, "request_id", "")}
        return JSONResponse(body, status, headers)


def _problem(problem: Mapping[str, Any]) -> str:
    """Says where and what, not the values: a message must not repeat what was sent."""
    place, *path = map(str, problem["loc"])
    where = f"{place} {'.'.join(path)}".strip()
    if problem["type"] == "missing":
        return f"{where}: expected, but it is missing"
    if problem["type"] == "string_pattern_mismatch":
        return f"{where}: expected text of the form {problem['ctx']['pattern']}"
    return f"{where}: {_SHOULD.sub('expected ', problem['msg'])}"


class _Outages:
    """Writes one line a minute for each kind of error: in an outage every request has it."""

    def __init__(self) -> None:
        self._kinds: dict[type[BaseException], _Reported] = {}

    def report(self, error: Exception, request: Request) -> None:
        kind = self._kinds.setdefault(_kind(error), _Reported())
        if time.monotonic() < kind.next_at:
            kind.untold += 1
            return
        extra = {**_identity(request), "not_written": kind.untold}
        _log.error("storage or database failed", exc_info=error, extra=extra)
        kind.next_at, kind.untold = time.monotonic() + _REPORT_SECONDS, 0


@dataclass
class _Reported:
    next_at: float = 0.0
    untold: int = 0
    """Errors since the last line."""


def _kind(error: Exception) -> type[BaseException]:
    """Returns a driver's own class, if SQLAlchemy wraps it."""
    return type(getattr(error, "orig", None) or error)


def _identity(request: Request) -> dict[str, str]:
    return {"request_id": getattr(request.state, "request_id", "")}
