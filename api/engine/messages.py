"""Frames between the web process and the engine process, over a socket pair.

    JSON bytes u32 | body bytes u64 | JSON (UTF-8) | body

little-endian. To the engine: `audit_key` once and first, then `run` with one part or several, `cancel` of a part, `forget`, `ping`. From it:
`hello` and `pong`; of each part `started` and `progress` where it wants them, then `done` or `failed`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, BinaryIO, Final, TypeAlias

Message: TypeAlias = dict[str, Any]

_PREFIX: Final = struct.Struct("<IQ")


def pack(message: Message, body: bytes = b"") -> bytes:
    text = json.dumps(message, separators=(",", ":")).encode()
    return _PREFIX.pack(len(text), len(body)) + text + body


async def receive(reader: asyncio.StreamReader) -> tuple[Message, bytes]:
    """Receives a message and its bytes.

    Raises:
        asyncio.IncompleteReadError: the other side is gone.
    """
    text_bytes, body_bytes = _PREFIX.unpack(await reader.readexactly(_PREFIX.size))
    message = json.loads(await reader.readexactly(text_bytes))
    return message, await reader.readexactly(body_bytes) if body_bytes else b""


def receive_blocking(stream: BinaryIO) -> tuple[Message, bytes] | None:
    """Returns None when the other side is gone."""
    prefix = stream.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        return None
    text_bytes, body_bytes = _PREFIX.unpack(prefix)
    text, body = stream.read(text_bytes), stream.read(body_bytes)
    if len(text) + len(body) < text_bytes + body_bytes:
        return None
    return json.loads(text), body
