"""What a server of a case says, as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One answer.

    Args:
        body: or what makes it when it is needed; sent `times` times, None: without end.
        pause: seconds before each.
        length: what Content-Length says, where that is not the truth; without end it says nothing.
        cut: close the connection after it.
        raw: the body is all that is sent, status and headers are in it.
    """

    status: int = 200
    body: bytes | Callable[[], bytes] = b""
    times: int | None = 1
    pause: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None
    cut: bool = False
    raw: bool = False

    def content(self) -> bytes:
        return self.body() if callable(self.body) else self.body

    def true_length(self) -> int | None:
        return None if self.times is None else len(self.content()) * self.times


def as_json(fields: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(fields).encode(), headers=(("Content-Type", "application/json"),))


def standing(name: str, offset: Any, state: str = "open") -> Reply:
    """Where an upload stands: in a header for Python's client, in JSON for the one of web/."""
    body = json.dumps({"id": name, "offset": offset, "state": state}).encode()
    return Reply(body=body, headers=(("Content-Type", "application/json"), ("Upload-Offset", str(offset))))
