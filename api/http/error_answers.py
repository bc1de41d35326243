"""One answer for every error: its class says the status and the code, its text says what to do."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from cloakwork.api.errors import ServiceError, StorageFullError, UnavailableError
from cloakwork.api.metrics import Metrics
from cloakwork.api.service.storage.disk import Disk, is_full
from cloakwork.fhe_core.errors import FheError

_CODES = {404: "not_found", 405: "method_not_allowed", 400: "bad_request"}
CLIENT_GONE = 499
_TOO_MANY = 429
_TOO_MANY_SECONDS = 0.5  # before the answer: who asks again at once takes nothing from others

_log = logging.getLogger("cloakwork.errors")


ErrorAnswer = Callable[[Request, Exception], Awaitable[Response]]


def add_handlers(app: FastAPI, metrics: Metrics, disk: Disk) -> ErrorAnswer:
    """What it returns answers FheError, OSError and SQLAlchemyError where no route has been reached."""

    def answer(
        request: Request, status: int, code: str, text: str, headers: dict[str, str] | None = None
    ) -> JSONResponse:
        request.state.code = code
        if status < 500:
            metrics.rejected.labels(code).inc()
        body = {"error": text, "code": code, "request_id": getattr(request.state, "request_id", "")}
        return JSONResponse(body, status, headers)

    async def known(request: Request, error: Exception) -> Response:
        found = cast(FheError, error)
        if found.http_status == _TOO_MANY:
            await asyncio.sleep(_TOO_MANY_SECONDS)
        retry = found.retry_after if isinstance(found, ServiceError) else None
        headers = {} if retry is None else {"Retry-After": str(max(1, math.ceil(retry)))}
        if found.http_status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return answer(request, found.http_status, found.code, str(found), headers)

    async def invalid(request: Request, error: Exception) -> Response:
        problems = cast(RequestValidationError, error).errors()
        # Not the values: a message must not repeat what was sent.
        text = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in problems)
        return answer(request, 422, "malformed", text)

    async def plain(request: Request, error: Exception) -> Response:
        found = cast(HTTPException, error)
        code = _CODES.get(found.status_code, "error")
        headers = dict(found.headers) if found.headers else None
        return answer(request, found.status_code, code, str(found.detail), headers)

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)  # nobody reads it; the log has it

    async def broken(request: Request, error: Exception) -> Response:
        if is_full(error):
            disk.report(error)
            return await known(
                request,
                StorageFullError(
                    "the service has no room left to store this; delete keys or finished jobs, or tell the operator"
                ),
            )
        _log.error("storage or database failed", exc_info=error, extra=_identity(request))
        return await known(
            request, UnavailableError("the database or the storage does not answer; try again", retry_after=5)
        )

    async def unexpected(request: Request, error: Exception) -> Response:
        _log.error("request failed", exc_info=error, extra=_identity(request))
        return answer(request, 500, "internal_error", "the service failed; the operator's log has the rest")

    app.add_exception_handler(FheError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(OSError, broken)
    app.add_exception_handler(SQLAlchemyError, broken)
    app.add_exception_handler(Exception, unexpected)

    async def early(request: Request, error: Exception) -> Response:
        return await (known if isinstance(error, FheError) else broken)(request, error)

    return early


def _identity(request: Request) -> dict[str, str]:
    return {"request_id": getattr(request.state, "request_id", "")}
