"""Bodies as raw streams: counted, given up when they stop coming, and in memory no longer than the budget knows; ranges of files."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack
from typing import Any, Final, TypeVar

from fastapi import HTTPException, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from cloakwork.api.errors import BadRequestError, LengthRequiredError, MalformedError, SlowBodyError, TooLargeError

_RANGE: Final = re.compile(r"(\d{1,18})-(\d{1,18})?|-(\d{1,18})", re.ASCII)
_NOT_SATISFIABLE: Final = 416
_LEAST_BYTES_PER_SECOND: Final = 4096  # on the average, after the idle time
_PIECE_BYTES: Final = 64 << 10
T = TypeVar("T")


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


def content_length(request: Request) -> int:
    """Returns the announced bytes. Sizes are known before a body is made, so that one without a length is refused."""
    value = request.headers.get("content-length")
    if value is None:
        raise LengthRequiredError("expected a Content-Length; the size of every body is known before it is sent")
    return int(value)  # digits: the protocol's parser has checked them


async def chunks(request: Request, limit: int, idle_seconds: float) -> AsyncIterator[bytes]:
    """Yields the body as it comes, at most `limit` bytes. Only the time in which the client is waited for counts, not what the service does
    between."""
    received, waited, stream = 0, 0.0, request.stream().__aiter__()
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(idle_seconds):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise SlowBodyError(f"the body brought nothing for {idle_seconds:g} seconds; send it again") from None
        received += len(chunk)
        if received > limit:
            raise TooLargeError(f"expected at most {limit} bytes, and more came")
        waited += time.monotonic() - began
        if waited > idle_seconds + received / _LEAST_BYTES_PER_SECOND:
            raise SlowBodyError(f"the body came with less than {_LEAST_BYTES_PER_SECOND} bytes a second; send it again")
        if chunk:
            yield chunk


class BodyReader:
    """A body of a known length, its start first."""

    def __init__(self, request: Request, length: int, idle_seconds: float) -> None:
        self._chunks = chunks(request, length, idle_seconds)
        self._length = length
        self._data = bytearray()

    async def start(self, count: int) -> bytes:
        """Reads the next `count` bytes; fewer when the body has fewer."""
        while len(self._data) < count:
            try:
                self._data += await anext(self._chunks)
            except StopAsyncIteration:
                break
        return bytes(self._data[:count])

    async def take(self, count: int) -> bytes:
        """Returns the same, and what follows is the body from now on."""
        taken = await self.start(count)
        del self._data[:count]
        self._length -= count
        return taken

    async def whole(self) -> bytes:
        async for chunk in self._chunks:
            self._data += chunk
        if len(self._data) != self._length:
            raise MalformedError(f"expected {self._length} bytes as announced, got {len(self._data)}")
        return bytes(self._data)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns what `work` gives; cancels it when the client goes first. After the body was read.

    Raises:
        ClientDisconnect: it has gone.
    """
    running, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientDisconnect
        return running.result()
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.gather(running, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class HeldResponse(Response):
    """A body that goes out as fast as its client reads; `held` is what its memory was taken from, given back at the end."""

    def __init__(self, body: bytes, held: ExitStack, **options: Any) -> None:
        super().__init__(body, **options)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, len(self.body), _PIECE_BYTES):
                piece = bytes(self.body[start : start + _PIECE_BYTES])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
