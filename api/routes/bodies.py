"""Bodies as raw streams: counted, and given up when they stop coming."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request

from cloakwork.api.errors import LengthRequiredError, MalformedError, SlowBodyError, TooLargeError

_LEAST_BYTES_PER_SECOND: Final = 4096  # on the average, after the idle time


def content_length(request: Request) -> int:
    """Announced bytes. Sizes are known before a body is made, so that one without a length is refused."""
    value = request.headers.get("content-length")
    if value is None:
        raise LengthRequiredError("expected a Content-Length; the size of every body is known before it is sent")
    return int(value)  # digits: the protocol's parser has checked them


async def chunks(request: Request, limit: int, idle_seconds: float) -> AsyncIterator[bytes]:
    """The body as it comes, at most `limit` bytes."""
    received, began, stream = 0, time.monotonic(), request.stream().__aiter__()
    while True:
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
        if time.monotonic() - began > idle_seconds + received / _LEAST_BYTES_PER_SECOND:
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
        """At least this many bytes, fewer when the body has fewer."""
        while len(self._data) < count:
            try:
                self._data += await anext(self._chunks)
            except StopAsyncIteration:
                break
        return bytes(self._data[:count])

    async def whole(self) -> bytes:
        async for chunk in self._chunks:
            self._data += chunk
        if len(self._data) != self._length:
            raise MalformedError(f"expected {self._length} bytes as announced, got {len(self._data)}")
        return bytes(self._data)
