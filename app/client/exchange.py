"""Requests and responses without a transport: conversations are generators that yield requests and receive responses.

One conversation serves the synchronous and the asynchronous client; `transport.py` carries it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

_PIECE_BYTES: Final = 1 << 20
SHORT_ANSWER: Final = 1 << 20  # bytes of an answer about something: a job, an upload, a model's metadata

OnEvent: TypeAlias = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class FileBody:
    """A body that is read as it is sent; `sent` hears how many bytes of it are."""

    path: Path
    size: int
    sent: Callable[[int], None]

    def pieces(self) -> Iterator[bytes]:
        done = 0
        with self.path.open("rb") as stream:
            while done < self.size and (piece := stream.read(min(_PIECE_BYTES, self.size - done))):
                yield piece
                done += len(piece)
                self.sent(done)


@dataclass(frozen=True)
class ClientRequest:
    """One request. `repeatable`: sending it twice does what sending it once does, so that it is sent again when no answer came."""

    method: str
    path: str
    repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | FileBody | None = None
    json: Any = None
    on_event: OnEvent | None = None  # read the answer as server-sent events
    until: float = math.inf  # by time.monotonic, when such a stream is left
    most_bytes: int = SHORT_ANSWER  # of the answer's body
    accepted: tuple[int, ...] = ()  # statuses of 400 and more that are answers here, not errors


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes


Conversation: TypeAlias = Generator[ClientRequest, Response, T]
