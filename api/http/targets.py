"""Request targets in absolute form, `GET http://host/path`, as a client writes them that takes the service for a proxy (RFC 9112, 3.2.2)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from starlette.types import Scope

_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#@]+)(/.*)?\Z", re.DOTALL)


def to_origin_form(scope: Scope) -> None:
    """Changes path and host to what they are without it. Any other target stays, and has no route."""
    match = _ABSOLUTE.match(scope["raw_path"])
    if match is None:
        return
    scope["raw_path"] = match[2] or b"/"
    scope["path"] = unquote(scope["raw_path"].decode("ascii"))
    scope["headers"] = [(b"host", match[1]), *((name, value) for name, value in scope["headers"] if name != b"host")]
