"""Answers of a server that are errors, as exceptions of the engine's tree."""

from __future__ import annotations

import json
import math
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
from cloakwork.models.errors import printable


class ServiceError(FheError):
    """The server refused a request, or could not be reached.

    `status` is that of HTTP, None without an answer; `service_code` is the server's name of the error (docs/howto/service.md).
    """

    code: ClassVar[str] = "service_error"
    http_status: ClassVar[int] = 502

    def __init__(
        self, message: str, status: int | None = None, service_code: str = "", request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.service_code = service_code
        self.request_id = request_id


class ConnectionLostError(ServiceError):
    """The server gave no answer, or half of one; whether the request was carried out is not known."""

    code = "connection_lost"


class MisbehavingServerError(ServiceError):
    """The server says something that no service of this kind says: too much, too slowly, in an encoding, or without ever coming to an end.

    Nothing is sent again.
    """

    code = "misbehaving_server"


class ChangedModelError(ServiceError):
    """A server shows another program, or other steps, under the name of a model that was used before; nothing was encrypted for it."""

    code = "changed_model"


class WeakPassphraseError(ParameterError):
    """A passphrase for a new secret key that is too easy to guess."""


class UntrustedError(ServiceError):
    """The server has no certificate for this address that is trusted here, or speaks no TLS; nothing was sent."""

    code = "untrusted"


class OverQuotaError(ServiceError):
    """The tenant's quota or the server's queue is full; `retry_after` seconds later there may be room."""

    code = "over_quota"
    http_status = 429

    retry_after: float | None = None


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
_LONGEST_CODE: Final = 100


def one_line(message: object, most: int = _LONGEST_MESSAGE) -> str:
    """Shortens a server's text so that it can be shown: one line without commands for a terminal."""
    text = message if isinstance(message, str) else json.dumps(message)[:most]
    return printable(" ".join(text[: 4 * most].split())[:most])


def error_of(status: int, headers: dict[str, str], content: bytes) -> FheError:
    """Makes an error of a response with a status of 400 or more."""
    fields = _fields(content)
    message = one_line(fields.get("error") or f"the server answered with status {status}")
    code = one_line(fields.get("code") or "", _LONGEST_CODE)
    request_id = one_line(headers["x-request-id"], _LONGEST_CODE) if "x-request-id" in headers else None
    if code in _ENGINE_ERRORS:
        return _ENGINE_ERRORS[code](message)
    text = f"{message} (status {status}{f', request {request_id}' if request_id else ''})"
    if status == 429:
        error = OverQuotaError(text, status, code, request_id)
        error.retry_after = retry_after(headers)
        return error
    return ServiceError(text, status, code, request_id)


def retry_after(headers: dict[str, str]) -> float | None:
    """Returns seconds; dates are not read."""
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _fields(content: bytes) -> dict[str, Any]:
    """{"error": text, "code", ..}, as the Open Inference Protocol has it."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
