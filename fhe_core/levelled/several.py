"""Objects of several plaintext moduli as one: they follow each other, then SHA-256 of all that. One object alone is itself.

Each says its own size (`wire.Header.byte_count`), so that they are found again by their headers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.wire import CHECKSUM_BYTES

MOST_OBJECTS: Final = 3
_LABEL: Final = b"cloakwork keys of several moduli 1\0"


def joined_bytes(objects: Sequence[bytes]) -> bytes:
    """Several objects as one."""
    if len(objects) == 1:
        return objects[0]
    body = b"".join(objects)
    return body + hashlib.sha256(body).digest()


def joined_size(sizes: Sequence[int]) -> int:
    """Bytes of `joined_bytes`."""
    return sum(sizes) + (CHECKSUM_BYTES if len(sizes) > 1 else 0)


def split_bytes(data: bytes, kind: wire.Kind) -> list[memoryview]:
    """Splits the objects that `joined_bytes` made one of, by their headers; each is still to be read.

    Raises:
        SerializationError: not one to three objects of this kind, cut off, extended or altered.
        KeyMismatchError: of a set that this release does not have.
    """
    view = memoryview(data)
    if wire.header_of(view, kind).byte_count >= len(view):
        return [view]
    end, place, objects = len(view) - CHECKSUM_BYTES, 0, list[memoryview]()
    if hashlib.sha256(view[: max(end, 0)]).digest() != bytes(view[max(end, 0) :]):
        raise SerializationError(
            f"{kind.label}: the checksum does not match; the bytes were altered or damaged, transfer the objects again"
        )
    while place < end and len(objects) < MOST_OBJECTS:
        size = wire.header_of(view[place:end], kind).byte_count
        objects.append(view[place : place + size])
        place += size
    if place != end:
        raise SerializationError(
            f"{kind.label}: expected {place + CHECKSUM_BYTES} bytes of {len(objects)} objects, got {len(view)}; they were cut off or extended"
        )
    return objects


@dataclass(frozen=True)
class KeyShapes:
    """Shapes of evaluation keys for each plaintext modulus; of one modulus they are called as its keys alone."""

    shapes: tuple[ExpansionKeyShape, ...]

    @property
    def byte_count(self) -> int:
        """Returns the bytes of the joined keys, the only size that they have."""
        return joined_size([each.byte_count for each in self.shapes])

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 that says what keys are of."""
        digests = [each.digest for each in self.shapes]
        return digests[0] if len(digests) == 1 else hashlib.sha256(_LABEL + b"".join(digests)).digest()
