"""Limits of answers: a body of a stated size that comes in a reasonable time, in no encoding, from the server that was asked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from cloakwork.app.client.errors import MisbehavingServerError
from cloakwork.app.client.exchange import ClientRequest, FileBody, Response

LONGEST_ERROR: Final = 1 << 16  # bytes that are read of an answer that is an error
_PATIENCE: Final = 1.25  # times the seconds that a server may be silent, which end by themselves
_SLOWEST_DOWNLOAD: Final = 1024  # bytes a second, beyond the seconds that a server may be silent
_SLOWEST_UPLOAD: Final = 8 * 1024


def seconds_until_answer(request: ClientRequest, timeout: float) -> float:
    """Returns the limit of seconds from the first byte of a request to the first one of its answer's body."""
    return _PATIENCE * timeout + _sent_bytes(request) / _SLOWEST_UPLOAD


def _sent_bytes(request: ClientRequest) -> int:
    if isinstance(request.content, FileBody):
        return request.content.size
    return len(request.content or b"")


def late(url: str, seconds: float) -> MisbehavingServerError:
    """Returns the error for an answer that has not begun after all that time."""
    return MisbehavingServerError(
        f"{url}: no answer in {seconds:.0f} s, although the connection is there; a slow server needs a larger timeout="
    )


def check_head(request: ClientRequest, status: int, headers: Mapping[str, str]) -> None:
    """Raises MisbehavingServerError for an answer from elsewhere, in an encoding, or of a size beyond what was asked for."""
    what = f"{request.method} {request.path}"
    if 300 <= status < 400:
        raise MisbehavingServerError(
            f"{what}: the server redirects its clients (status {status}); use the address that it redirects to as the client's URL"
        )
    if status >= 400:
        return
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise MisbehavingServerError(f"{what}: expected an answer without content encoding, got '{encoding[:40]}'")
    length = headers.get("content-length", "")
    if request.on_event is None and length.isdecimal() and (len(length) > 18 or int(length) > request.most_bytes):
        raise _too_large(what, request.most_bytes)


class Body:
    """The bytes of an answer as they come.

    Of an error they are the first `LONGEST_ERROR`, and none in an encoding.
    """

    def __init__(self, request: ClientRequest, status: int, headers: Mapping[str, str], timeout: float) -> None:
        self._what, self._most, self._timeout = f"{request.method} {request.path}", request.most_bytes, timeout
        self._is_error = status >= 400
        self._encoded = headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
        self._start, self._content = time.monotonic(), bytearray()

    def take(self, piece: bytes) -> bool:
        """Whether more of it is wanted. MisbehavingServerError: it is too large, or comes too slowly."""
        self._content += piece
        if self._is_error and (self._encoded or len(self._content) >= LONGEST_ERROR):
            return False
        if len(self._content) > self._most:
            raise _too_large(self._what, self._most)
        if time.monotonic() - self._start > self._timeout + len(self._content) / _SLOWEST_DOWNLOAD:
            if self._is_error:
                return False
            raise MisbehavingServerError(
                f"{self._what}: the answer comes too slowly ({len(self._content)} bytes in {self._timeout:.0f} s and more); is the network "
                "in order?"
            )
        return True

    def response(self, status: int, headers: Mapping[str, str]) -> Response:
        """Returns the answer with what has come."""
        content = b"" if self._is_error and self._encoded else bytes(self._content)
        return Response(status, headers, content[:LONGEST_ERROR] if self._is_error else content)


def _too_large(what: str, most: int) -> MisbehavingServerError:
    return MisbehavingServerError(f"{what}: expected an answer of at most {most} bytes, got more")
