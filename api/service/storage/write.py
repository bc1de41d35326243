"""A whole file, durable and readable by its owner alone."""

from __future__ import annotations

from pathlib import Path

from cloakwork.fhe_core.wire.files import SECRET_MODE, atomic_writer


def write_file(path: Path, body: bytes) -> None:
    with atomic_writer(path, SECRET_MODE) as stream:
        stream.write(body)
