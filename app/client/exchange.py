"""What the client sends and gets, without a word of how: conversations are generators that yield requests and receive responses.

One conversation serves the synchronous and the asynchronous client; `transport.py` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

OnEvent: TypeAlias = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Request:
    """One request. `repeatable`: sending it twice does what sending it once does, so that it is sent again when no answer came."""

    method: str
    path: str
    repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    json: Any = None
    on_event: OnEvent | None = None  # read the answer as server-sent events
    accepted: tuple[int, ...] = ()  # statuses of 400 and more that are answers here, not errors


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes


Conversation: TypeAlias = Generator[Request, Response, T]
