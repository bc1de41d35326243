"""Storage of keys, inputs and results: files in the data folder, or object storage with a local copy of what is in use.

An object appears under its name when it is complete. Names are made by the service (`keys/<id>`, ..), never by a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from cloakwork.api.service.clock import retention
from cloakwork.api.service.storage.data_folder import write_file
from cloakwork.api.service.storage.object_store import ObjectStore
from cloakwork.api.settings import without_credentials

OBJECTS = "objects"  # in the data folder
UPLOADS = "uploads"
FOLDERS = ("keys", "inputs", "results", UPLOADS)
_MARK_CHARACTERS = 64
_AWAY_SECONDS: Final = 10.0  # after a deletion that failed, in which nobody waits for one
_MOST_OWED: Final = 100_000
MARK = "identity"
"""The object that says which database the others belong to (`pairing.py`)."""


_log = logging.getLogger("cloakwork.storage")


class Storage(Protocol):
    def place(self, name: str) -> Path:
        """Returns the path where an object is written before `keep`, and lies for the engine after `local`."""

    async def keep(self, name: str) -> None:
        """Makes the complete file at `place(name)` durable."""

    async def local(self, name: str) -> Path:
        """Fetches the object as a file. FileNotFoundError when there is none."""

    async def holds(self, name: str, byte_count: int) -> bool:
        """Whether the object is there with this number of bytes."""

    async def delete(self, name: str) -> None:
        """Deletes what nobody needs any more. If the storage does not answer it is owed: `owed` names it."""

    @property
    def owed(self) -> list[str]: ...

    async def settle(self, name: str) -> None:
        """Tries again. OSError: the storage does not answer yet."""

    def excuse(self, name: str) -> None:
        """Keeps an object that is needed after all."""

    async def names(self, folder: str, older_than: float = 0.0) -> list[str]:
        """Names objects and uploads that nobody has written to for this number of seconds."""

    def copies(self, folder: str, older_than: float = 0.0) -> list[str]:
        """Works as `names`, of local files beside the objects, which another service on the same database may have deleted."""

    async def drop_copy(self, name: str) -> None:
        """Deletes such a file."""

    def sweep(self, seconds: float) -> None:
        """Deletes files that somebody began to write so long ago and never finished."""

    @property
    def where(self) -> str:
        """The place of the storage, for messages."""

    async def mark(self) -> str | None:
        """Returns what the object `MARK` says; None when there is none. Any other OSError: the storage does not answer."""

    async def set_mark(self, identity: str) -> None: ...


class FileStorage:
    """Files below one folder; whoever writes synchronises and renames (`fhe_core.wire.files.atomic_writer`)."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        for folder in FOLDERS:
            (self._root / folder).mkdir(parents=True, exist_ok=True)

    def place(self, name: str) -> Path:
        return self._root / name

    async def keep(self, name: str) -> None:
        return None

    async def local(self, name: str) -> Path:
        path = self.place(name)
        if not path.is_file():
            raise FileNotFoundError(name)
        return path

    async def holds(self, name: str, byte_count: int) -> bool:
        try:
            return self.place(name).stat().st_size == byte_count
        except FileNotFoundError:
            return False

    async def delete(self, name: str) -> None:
        await asyncio.to_thread(self.place(name).unlink, missing_ok=True)

    @property
    def owed(self) -> list[str]:
        return []

    async def settle(self, name: str) -> None:
        return None

    def excuse(self, name: str) -> None:
        return None

    async def names(self, folder: str, older_than: float = 0.0) -> list[str]:
        return await asyncio.to_thread(self.local_names, folder, older_than)

    def local_names(self, folder: str, older_than: float = 0.0) -> list[str]:
        names = []
        for entry in os.scandir(self._root / folder):
            with contextlib.suppress(FileNotFoundError):
                # Names that begin with a dot are files being written.
                old = not older_than or entry.stat().st_mtime <= retention.now() - older_than
                if old and not entry.name.startswith("."):
                    names.append(f"{folder}/{entry.name}")
        return names

    def copies(self, folder: str, older_than: float = 0.0) -> list[str]:
        return []

    async def drop_copy(self, name: str) -> None:
        return None

    def sweep(self, seconds: float) -> None:
        for path in self._root.glob("*/.*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < retention.now() - seconds:
                    path.unlink()

    @property
    def where(self) -> str:
        return str(self._root)

    async def mark(self) -> str | None:
        try:
            return _text(self.place(MARK).read_bytes())
        except FileNotFoundError:
            return None

    async def set_mark(self, identity: str) -> None:
        await asyncio.to_thread(write_file, self.place(MARK), identity.encode())


class ObjectStorage:
    """Objects in a store that every service on the database has; the data folder holds copies."""

    def __init__(self, url: str, cache: Path) -> None:
        self.store = ObjectStore(url)
        self.where = without_credentials(url)
        self._files = FileStorage(cache)
        self._owed: dict[str, None] = {}
        self._away_until = 0.0

    def place(self, name: str) -> Path:
        return self._files.place(name)

    async def keep(self, name: str) -> None:
        await self.store.put(name, self.place(name))
        self._owed.pop(name, None)

    async def local(self, name: str) -> Path:
        path = self.place(name)
        if not path.is_file():
            try:
                await self.store.fetch(name, path)
            except FileNotFoundError:
                raise FileNotFoundError(name) from None
        return path

    async def holds(self, name: str, byte_count: int) -> bool:
        return await self.store.byte_count(name) == byte_count

    async def delete(self, name: str) -> None:
        await self._files.delete(name)
        try:
            if time.monotonic() >= self._away_until:
                await self.store.delete(name)
                return
        except OSError as error:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            _log.warning("objects cannot be deleted yet (%s)", error, extra={"object": name})
        if len(self._owed) < _MOST_OWED:  # else the sweeper finds it
            self._owed[name] = None

    @property
    def owed(self) -> list[str]:
        return list(self._owed)

    async def settle(self, name: str) -> None:
        await self.store.delete(name)
        self._owed.pop(name, None)

    def excuse(self, name: str) -> None:
        self._owed.pop(name, None)

    async def names(self, folder: str, older_than: float = 0.0) -> list[str]:
        if folder == UPLOADS:  # parts that others go on with are in the database (`keys/shared_parts.py`)
            return await self._files.names(folder, older_than)
        return await self.store.names(folder, older_than)

    def copies(self, folder: str, older_than: float = 0.0) -> list[str]:
        return self._files.local_names(folder, older_than)

    async def drop_copy(self, name: str) -> None:
        await self._files.delete(name)

    def sweep(self, seconds: float) -> None:
        self._files.sweep(seconds)

    async def mark(self) -> str | None:
        try:
            return _text(await self.store.read(MARK))
        except FileNotFoundError:
            return None

    async def set_mark(self, identity: str) -> None:
        await self.store.put(MARK, identity.encode())


def _text(content: bytes) -> str:
    return content[:_MARK_CHARACTERS].decode("ascii", "replace").strip()


def open_storage(url: str | None, data_folder: Path) -> Storage:
    folder = data_folder / OBJECTS
    return FileStorage(folder) if url is None else ObjectStorage(url, folder)


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
