"""The format of an index's file: a header, the client's specification as JSON, integers of 16 bits, SHA-256 of all before it."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.wire.files import PathLike, atomic_writer
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.program.facts import OriginalFacts

MAGIC: Final = b"CLKN"
VERSION: Final = 1
VERSION_OF_CELLS: Final = 2
HEADER: Final = struct.Struct("<4sHHQIdI")  # .., bits, rows, features, agreement, bytes of JSON
CHECKSUM_BYTES: Final = 32


def version_of(client: NeighbourClient) -> int:
    """Returns the version: tables without cells are as earlier releases read them."""
    return VERSION if client.cells is None else VERSION_OF_CELLS


def write_index(
    path: PathLike,
    client: NeighbourClient,
    integers: NDArray[np.int16],
    bits: int,
    agreement: float,
    original: OriginalFacts | None,
) -> None:
    """Write a file that appears under its name when it is complete.

    Args:
        integers: [rows, features], of `bits` bits.
        original: a field beside the client's; missing in files of earlier releases.
    """
    original_fields = {} if original is None else {"original": original.to_fields()}
    described = json.dumps(client.to_fields() | original_fields).encode()
    parts = [
        HEADER.pack(MAGIC, version_of(client), bits, *integers.shape, agreement, len(described)),
        described,
        integers.astype("<i2").tobytes(),
    ]
    checksum = hashlib.sha256()
    with atomic_writer(path) as stream:
        for part in parts:
            checksum.update(part)
            stream.write(part)
        stream.write(checksum.digest())
