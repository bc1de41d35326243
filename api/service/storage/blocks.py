"""A body on its way into a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import FileIO
from typing import BinaryIO, Final

_WRITE_BYTES: Final = 1 << 20


async def blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the same bytes: the first chunk at once, so that its header is looked at; then in blocks worth a write. What came before the
    connection broke counts."""
    pending = bytearray()
    first = True
    broken: Exception | None = None
    try:
        async for chunk in chunks:
            pending += chunk
            if first or len(pending) >= _WRITE_BYTES:
                first = False
                yield bytes(pending)
                pending.clear()
    except Exception as error:
        broken = error
    if pending:
        yield bytes(pending)
    if broken is not None:
        raise broken


def write_all(stream: BinaryIO | FileIO, block: bytes) -> None:
    """Writes all bytes: an unbuffered file may take less than it is given, above all the last bytes that fit on the disk."""
    view = memoryview(block)
    while view:
        view = view[stream.write(view) :]
