"""Answers of a server that are errors, as exceptions of the engine's tree."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from cloakwork.fhe_core.errors import (
    CompileError,
    DeviceError,
    FheError,
    KeyMismatchError,
    OutOfDeviceMemory,
    ParameterError,
    SerializationError,
    ShapeError,
    UnsupportedError,
)


class ServiceError(FheError):
    """The server refused a request, or could not be reached. `status` is that of HTTP, None without an answer."""

    code: ClassVar[str] = "service_error"
    http_status: ClassVar[int] = 502

    def __init__(self, message: str, status: int | None = None, request_id: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id


class ConnectionLostError(ServiceError):
    """No answer, or half of one; whether the request was carried out is not known."""

    code = "connection_lost"


class OverQuotaError(ServiceError):
    """The tenant's quota or the server's queue is full; `retry_after` seconds later there may be room."""

    code = "over_quota"
    http_status = 429

    def __init__(self, message: str, status: int, request_id: str | None, retry_after: float | None) -> None:
        super().__init__(message, status, request_id)
        self.retry_after = retry_after


_ENGINE_ERRORS: Final[dict[str, type[FheError]]] = {
    error.code: error
    for error in (
        CompileError,
        DeviceError,
        KeyMismatchError,
        OutOfDeviceMemory,
        ParameterError,
        SerializationError,
        ShapeError,
        UnsupportedError,
    )
}
_LONGEST_MESSAGE: Final = 500


def error_of(status: int, headers: dict[str, str], content: bytes) -> FheError:
    """What a response with a status of 400 or more says."""
    fields = _fields(content)
    message = str(fields.get("message") or f"the server answered with status {status}")[:_LONGEST_MESSAGE]
    request_id = headers.get("x-request-id")
    if status == 429:
        return OverQuotaError(message, status, request_id, retry_after(headers))
    known = _ENGINE_ERRORS.get(str(fields.get("code")))
    if known is not None:
        return known(message)
    return ServiceError(f"{message} (status {status}{f', request {request_id}' if request_id else ''})", status, request_id)


def retry_after(headers: dict[str, str]) -> float | None:
    """Seconds; dates are not read."""
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def _fields(content: bytes) -> dict[str, Any]:
    """{"error": {"code", "message"}}, or the plain string of the Open Inference Protocol."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return error
    return {"message": error, "code": body.get("code")} if isinstance(error, str) else {}
