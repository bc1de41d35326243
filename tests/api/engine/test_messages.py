"""Frames between the web process and the engine process."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from cloakwork.api.engine.messages import (
    AuditKeySecret,
    Cancel,
    Done,
    Failed,
    ForgetKey,
    Hello,
    KeyPlace,
    Message,
    ModelPlace,
    Ping,
    Pong,
    Progressed,
    RequestPart,
    Started,
    StartRun,
    receive,
    receive_blocking,
)

PARTS = (
    RequestPart("1", 2, b"one"),
    RequestPart("2", 1, input="in", output="out", progress=True),
    RequestPart("3", 1, b"3"),
)
MESSAGES: list[Message] = [
    AuditKeySecret(bytes(range(32))),
    StartRun(True, ModelPlace("program", "d" * 64, Path("/models/1.clkm")), KeyPlace("key", Path("/keys/key")), PARTS),
    Cancel("1"),
    ForgetKey("key"),
    Ping("2"),
    Hello(7, "cpu", 2, 1, {"cuda": "false"}),
    Pong("2", "cpu", 1, 2, 3, 4, ["key"], {"1": 0.5}, {"1": 0.25}),
    Started("1"),
    Progressed("1", 3, 4),
    Done("1", 0.5, "cpu", 6, busy_seconds=0.6, took_seconds=0.7, together=3, body=b"answer"),
    Done("2", 0.5, "cpu", 6, sha256="a" * 64),
    Failed("3", "gone", 410, "a file is gone", key_damaged=True),
]


def test_messages_pass_both_ways():
    data = b"".join(message.to_bytes() for message in MESSAGES)
    stream = io.BytesIO(data)
    assert [receive_blocking(stream) for _ in MESSAGES] == MESSAGES
    assert receive_blocking(stream) is None
    assert receive_blocking(io.BytesIO(data[:20])) is None

    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        assert [await receive(reader) for _ in MESSAGES] == MESSAGES
        with pytest.raises(asyncio.IncompleteReadError):
            await receive(reader)

    asyncio.run(read())


def test_no_secret_and_no_ciphertext_is_in_a_representation():
    assert "body" not in repr(MESSAGES)
