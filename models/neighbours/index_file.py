"""An index as a file: a header, the client's specification as JSON, integers of 16 bits, SHA-256 of all before it."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Final

import numpy as np

from cloakwork.fhe_core.files import PathLike, atomic_writer
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.building import MOST_BITS
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.quantise import row_offsets, row_sums

MAGIC: Final = b"CLKN"
VERSION: Final = 1
VERSION_OF_CELLS: Final = 2
_HEADER: Final = struct.Struct("<4sHHQIdI")  # .., bits, rows, features, agreement, bytes of JSON
_CHECKSUM_BYTES: Final = 32
DEFAULT_MAX_BYTES: Final = 1 << 34


def save_index(path: PathLike, index: NeighbourIndex) -> None:
    """Writes a file that appears under its name when it is complete."""
    described = index.client.to_json().encode()
    rows, features = index.integers.shape
    parts = [
        _HEADER.pack(MAGIC, _version(index.client), index.bits, rows, features, index.agreement, len(described)),
        described,
        index.integers.astype("<i2").tobytes(),
    ]
    checksum = hashlib.sha256()
    with atomic_writer(path) as stream:
        for part in parts:
            checksum.update(part)
            stream.write(part)
        stream.write(checksum.digest())


def is_index_file(path: PathLike) -> bool:
    """By its first bytes."""
    with Path(path).open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def load_index(path: PathLike, max_bytes: int = DEFAULT_MAX_BYTES) -> NeighbourIndex:
    """Raises: CompileError: no such file's content, damaged, or larger than `max_bytes`; its message names the file."""
    file = Path(path)
    size = file.stat().st_size
    if size > max_bytes:
        raise CompileError(f"{file}: expected at most {max_bytes} bytes, got {size}")
    with file.open("rb") as stream:
        data = memoryview(stream.read(size))
    if len(data) < _HEADER.size + _CHECKSUM_BYTES or bytes(data[:4]) != MAGIC:
        raise CompileError(f"{file}: expected an index of `cloakwork index build`")
    _, version, bits, rows, features, agreement, described = _HEADER.unpack(data[: _HEADER.size])
    if version not in (VERSION, VERSION_OF_CELLS):
        raise CompileError(
            f"{file}: expected version {VERSION} or {VERSION_OF_CELLS}, got {version}; use the release of cloakwork that wrote it"
        )
    start = _HEADER.size + described
    if len(data) != start + 2 * rows * features + _CHECKSUM_BYTES:
        raise CompileError(f"{file}: of another size than its header says; it was cut off or extended")
    if hashlib.sha256(data[:-_CHECKSUM_BYTES]).digest() != bytes(data[-_CHECKSUM_BYTES:]):
        raise CompileError(f"{file}: the checksum does not match; the file was altered or damaged")
    try:
        client = NeighbourClient.from_json(bytes(data[_HEADER.size : start]))
    except (CompileError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CompileError(f"{file}: {error}") from None
    integers = np.frombuffer(data[start:-_CHECKSUM_BYTES], dtype="<i2").reshape(rows, features).astype(np.int16)
    fits = (rows, features, version) == (client.rows, len(client.centre), _version(client)) and 2 <= bits <= MOST_BITS
    if not fits or max(-int(integers.min()), int(integers.max())) > client.limit:
        raise CompileError(f"{file}: its table is not what the specification says; it was changed")
    return NeighbourIndex(client, integers, row_offsets(row_sums(integers)[1], client.metric), bits, agreement)


def _version(client: NeighbourClient) -> int:
    """Tables without cells are as earlier releases read them."""
    return VERSION if client.cells is None else VERSION_OF_CELLS
