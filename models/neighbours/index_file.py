"""Reading the file of an index."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

import numpy as np

from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.building import MOST_BITS
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_format import (
    CHECKSUM_BYTES,
    HEADER,
    MAGIC,
    VERSION,
    VERSION_OF_CELLS,
    version_of,
)
from cloakwork.models.neighbours.quantise import row_offsets, row_sums
from cloakwork.models.program.facts import OriginalFacts

DEFAULT_MAX_BYTES: Final = 1 << 34


def is_index_file(path: PathLike) -> bool:
    """Whether bytes are the file of an index, by its first bytes."""
    with Path(path).open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def load_index(path: PathLike, max_bytes: int = DEFAULT_MAX_BYTES) -> NeighbourIndex:
    """Loads an index. Raises: CompileError: no such file's content, damaged, or larger than `max_bytes`; its message names the file."""
    file = Path(path)
    size = file.stat().st_size
    if size > max_bytes:
        raise CompileError(f"{file}: expected at most {max_bytes} bytes, got {size}")
    with file.open("rb") as stream:
        data = memoryview(stream.read(size))
    if len(data) < HEADER.size + CHECKSUM_BYTES or bytes(data[:4]) != MAGIC:
        raise CompileError(f"{file}: expected an index of `cloakwork index build`")
    _, version, bits, rows, features, agreement, described = HEADER.unpack(data[: HEADER.size])
    if version not in (VERSION, VERSION_OF_CELLS):
        raise CompileError(
            f"{file}: expected version {VERSION} or {VERSION_OF_CELLS}, got {version}; use the release of cloakwork that wrote it"
        )
    start = HEADER.size + described
    if len(data) != start + 2 * rows * features + CHECKSUM_BYTES:
        raise CompileError(f"{file}: of another size than its header says; it was cut off or extended")
    if hashlib.sha256(data[:-CHECKSUM_BYTES]).digest() != bytes(data[-CHECKSUM_BYTES:]):
        raise CompileError(f"{file}: the checksum does not match; the file was altered or damaged")
    try:
        fields = json.loads(bytes(data[HEADER.size : start]))
        client = NeighbourClient.from_fields(fields)
        original_fields = fields.get("original")
        original = None if original_fields is None else OriginalFacts.taken(dict(original_fields))
    except (CompileError, TypeError, ValueError, RecursionError) as error:
        raise CompileError(f"{file}: {error}") from None
    integers = np.frombuffer(data[start:-CHECKSUM_BYTES], dtype="<i2").reshape(rows, features).astype(np.int16)
    fits = (rows, features, version) == (client.rows, len(client.centre), version_of(client)) and 2 <= bits <= MOST_BITS
    if not fits or max(-int(integers.min()), int(integers.max())) > client.limit:
        raise CompileError(f"{file}: its table is not what the specification says; it was changed")
    offsets = row_offsets(row_sums(integers)[1], client.metric)
    return NeighbourIndex(client, integers, offsets, bits, agreement, original)
