"""Frames between the web process and the engine process."""

from __future__ import annotations

import asyncio
import io

import pytest

from cloakwork.api.engine.messages import pack, receive, receive_blocking


def test_frames_pass_both_ways():
    data = pack({"op": "run", "id": "1"}, b"body") + pack({"op": "ping"})
    stream = io.BytesIO(data)
    assert receive_blocking(stream) == ({"op": "run", "id": "1"}, b"body")
    assert receive_blocking(stream) == ({"op": "ping"}, b"")
    assert receive_blocking(stream) is None
    assert receive_blocking(io.BytesIO(data[:20])) is None

    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        assert await receive(reader) == ({"op": "run", "id": "1"}, b"body")
        assert await receive(reader) == ({"op": "ping"}, b"")
        with pytest.raises(asyncio.IncompleteReadError):
            await receive(reader)

    asyncio.run(read())
