"""Objects that the storage gives back otherwise than it got them: compared by length and SHA-256, reported, counted."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from cloakwork.api.service.storage.objects import Storage

_log = logging.getLogger("cloakwork.storage")


class Damage:
    """`count` is called with the kind of each damaged object."""

    def __init__(self, storage: Storage, count: Callable[[str], None]) -> None:
        self._storage = storage
        self._count = count

    async def intact(self, name: str, is_intact: Callable[[Path], bool]) -> Path | None:
        """Returns the object as a file; a local copy that is damaged is fetched again. None: the object itself is lost or damaged, which is
        reported."""
        for _ in range(2):
            try:
                path = await self._storage.local(name)
                if await asyncio.to_thread(is_intact, path):
                    return path
            except FileNotFoundError:
                break
            await self._storage.drop_copy(name)
        self.report(name)
        return None

    def report(self, name: str) -> None:
        kind = name.partition("/")[0]
        self._count(kind)
        _log.error("an object is lost or damaged", extra={"object": name})


def has_digest(path: Path, size: int | None, sha256: str | None) -> bool:
    """Whether the file has this length and SHA-256."""
    if path.stat().st_size != size:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256
