"""The header Range, before a file is sent: what is wrong with it is answered as every other error."""

from __future__ import annotations

import re
from typing import Final

from fastapi import HTTPException, Request

from cloakwork.api.errors import BadRequestError

_RANGE: Final = re.compile(r"(\d{1,18})-(\d{1,18})?|-(\d{1,18})", re.ASCII)
_NOT_SATISFIABLE: Final = 416


def check_range(request: Request, size: int, etag: str) -> None:
    """Leaves a header that a file of this size and ETag can be sent by, or none: other units and other versions get all of it (RFC 9110, 14.2).

    Raises:
        BadRequestError: it is malformed.
        HTTPException: it asks for what the file does not have.
    """
    given, only_if = request.headers.get("range"), request.headers.get("if-range")
    if given is None:
        return
    unit, _, ranges = given.partition("=")
    if unit.strip().lower() != "bytes" or only_if not in (None, etag):
        request.scope["headers"] = [each for each in request.scope["headers"] if each[0] != b"range"]
        return
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise BadRequestError("expected 'Range: bytes=FIRST-LAST', 'bytes=FIRST-' or 'bytes=-COUNT'")
        if int(match[1] or 0) >= size or (match[3] and not int(match[3])):
            raise HTTPException(
                _NOT_SATISFIABLE,
                f"the result has {size} bytes; ask for some of them",
                {"Content-Range": f"bytes */{size}"},
            )
