"""Requests or answers of a levelled model (for batches, or an index) as one file: docs/reference/wire_format.md.

Programs of look-ups need none: one object of ciphertexts holds any number of samples.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.levelled.several import joined_bytes
from cloakwork.fhe_core.wire.files import PathLike, atomic_writer
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.neighbours.client import NeighbourClient

MAGIC: Final = b"CLKQ"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sHH32sQQ")  # .., kind, model, samples, messages
_SIZE: Final = struct.Struct("<Q")
_CHECKSUM_BYTES: Final = 32


class MessageKind(IntEnum):
    """The writer of the messages: the client, or the server."""

    REQUESTS = 1
    ANSWERS = 2

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Messages:
    """Several requests, or the answer to each.

    Attributes:
        model: of `model_digest`: which model they are for.
        samples: in all of them.
        parts: the bytes of each.
    """

    kind: MessageKind
    model: bytes
    samples: int
    parts: tuple[bytes, ...]

    def save(self, path: PathLike) -> None:
        """Write a file that appears under its name when it is complete."""
        checksum = hashlib.sha256()
        header = _HEADER.pack(MAGIC, _VERSION, self.kind, self.model, self.samples, len(self.parts))
        with atomic_writer(path) as stream:
            for piece in (header, *(_SIZE.pack(len(each)) for each in self.parts), *self.parts):
                checksum.update(piece)
                stream.write(piece)
            stream.write(checksum.digest())

    @classmethod
    def load(cls, path: PathLike, kind: MessageKind) -> Messages:
        """Raises: SerializationError: another kind of file, or a damaged one."""
        data = memoryview(Path(path).read_bytes())
        if len(data) < _HEADER.size + _CHECKSUM_BYTES or bytes(data[: len(MAGIC)]) != MAGIC:
            raise SerializationError(f"expected {kind.label} of a levelled model, got another kind of file")
        _, version, stored_kind, model, samples, count = _HEADER.unpack(data[: _HEADER.size])
        if version != _VERSION or stored_kind not in list(MessageKind):
            raise SerializationError(
                f"expected version {_VERSION} of {kind.label}, got version {version}, kind {stored_kind}"
            )
        if stored_kind != kind:
            raise SerializationError(f"expected {kind.label}, got {MessageKind(stored_kind).label}")
        start = _HEADER.size + count * _SIZE.size
        if start + _CHECKSUM_BYTES > len(data):
            raise SerializationError(f"the file of {kind.label} was cut off")
        sizes = [size for (size,) in _SIZE.iter_unpack(data[_HEADER.size : start])]
        if start + sum(sizes) + _CHECKSUM_BYTES != len(data):
            raise SerializationError(
                f"of another size than the header of {kind.label} says; the file was cut off or extended"
            )
        if hashlib.sha256(data[:-_CHECKSUM_BYTES]).digest() != bytes(data[-_CHECKSUM_BYTES:]):
            raise SerializationError("the checksum does not match; the file was altered or damaged")
        parts = []
        for size in sizes:
            parts.append(bytes(data[start : start + size]))
            start += size
        return cls(kind, model, samples, tuple(parts))


def is_messages_file(path: PathLike) -> bool:
    """Tells such a file by its first bytes."""
    with Path(path).open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def model_digest(client: BatchClient | NeighbourClient) -> bytes:
    """Returns what messages name their model by: SHA-256 of its client's specification."""
    return hashlib.sha256(client.to_json().encode()).digest()


def message_bytes(message: Any) -> bytes:
    """Returns the bytes of one request or answer. Args: message: ciphertexts, or those for each plaintext modulus."""
    if isinstance(message, Sequence):
        return joined_bytes([each.to_bytes() for each in message])
    return bytes(message.to_bytes())
