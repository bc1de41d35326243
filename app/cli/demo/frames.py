"""Messages between two processes over a pipe: JSON fields and bytes. u32 length | JSON | u64 length | bytes, little-endian."""

from __future__ import annotations

import json
import struct
from typing import IO, Any, Final

_JSON_LENGTH: Final = struct.Struct("<I")
_BYTES_LENGTH: Final = struct.Struct("<Q")
_MAX_JSON: Final = 1 << 20
_MAX_BYTES: Final = 1 << 36

Frame = tuple[dict[str, Any], bytes]


class FrameError(Exception):
    """The other side sent something else than a frame, or stopped in the middle of one."""


def write_frame(stream: IO[bytes], fields: dict[str, Any], payload: bytes = b"") -> None:
    text = json.dumps(fields).encode()
    stream.write(_JSON_LENGTH.pack(len(text)) + text + _BYTES_LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Returns the next frame; None where the stream ends between frames."""
    start = stream.read(_JSON_LENGTH.size)
    if not start:
        return None
    text = _read(stream, _JSON_LENGTH, start, _MAX_JSON)
    payload = _read(stream, _BYTES_LENGTH, stream.read(_BYTES_LENGTH.size), _MAX_BYTES)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise FrameError("expected JSON at the start of a message") from error
    if not isinstance(fields, dict):
        raise FrameError("expected a JSON object at the start of a message")
    return fields, payload


def _read(stream: IO[bytes], prefix: struct.Struct, start: bytes, limit: int) -> bytes:
    if len(start) < prefix.size:
        raise FrameError("the connection ended in the middle of a message")
    (length,) = prefix.unpack(start)
    if length > limit:
        raise FrameError(f"expected a part of a message of at most {limit} bytes, got {length}")
    data = stream.read(length)
    if len(data) < length:
        raise FrameError("the connection ended in the middle of a message")
    return data
