"""A folder of this machine, or a bucket of S3 and its like: objects by name, through obstore.

An object appears under its name when it is complete, in both. Credentials of object storage are those of the environment of each process
(`AWS_ACCESS_KEY_ID`, ..), so that none travels.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cloakwork.app.batch.errors import PlaceError, StoreError, one_line


@dataclass(frozen=True)
class Entry:
    """An object: its name in the store, bytes, and a text that changes when the object does."""

    name: str
    byte_count: int
    version: str


class Store:
    """A store of objects. Raises `StoreError` where the store does not answer, FileNotFoundError where an object is missing."""

    def __init__(self, place: str, *, make: bool = False) -> None:
        """place: as `absolute_place` gives it. make: a folder that is not there."""
        import obstore

        self._obstore: Any = obstore
        self.place = place
        try:
            if is_url(place):
                self._store = obstore.store.from_url(place)
            else:
                self._store = obstore.store.LocalStore(place, mkdir=make)
        except Exception as error:
            raise PlaceError(f"{shown(place)}: it cannot be used: {one_line(error)}") from None

    def entries(self, prefix: str | None = None) -> list[Entry]:
        """Returns all objects in the store or below a prefix, by name. A bucket or folder that is missing has none."""
        try:
            batches = self._obstore.list(self._store, prefix=prefix)
            entries = [Entry(each["path"], each["size"], _version(each)) for batch in batches for each in batch]
        except Exception as error:
            raise StoreError(f"{shown(self.place)}: it cannot be listed: {one_line(error)}") from None
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, name: str) -> bytes:
        return bytes(self._tried(name, lambda: self._obstore.get(self._store, name).bytes()))

    def read_start(self, name: str, byte_count: int) -> bytes:
        """Reads the first bytes of an object, at most `byte_count`, which is not above the object's."""
        return bytes(self._tried(name, partial(self._obstore.get_range, self._store, name, start=0, end=byte_count)))

    def reader(self, name: str) -> io.BufferedReader:
        """Returns the object as a file that can be sought in, read as far as it is asked for."""
        return io.BufferedReader(_Readable(self._tried(name, partial(self._obstore.open_reader, self._store, name))))

    def write(self, name: str, data: bytes | Path) -> None:
        """Writes an object whole and at once; a file is uploaded in parts."""
        self._tried(name, lambda: self._obstore.put(self._store, name, data))

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects; those that are missing are skipped."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._tried(name, partial(self._obstore.delete, self._store, name))

    def _tried(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except FileNotFoundError:
            raise FileNotFoundError(f"{name}: no such object in {shown(self.place)}") from None
        except Exception as error:
            raise StoreError(f"{name} in {shown(self.place)}: {one_line(error)}") from None


class _Readable(io.RawIOBase):
    """obstore's reader as Python's files are."""

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            data = bytes(self._reader.read(len(view)))
        except Exception as error:
            raise StoreError(f"an object cannot be read: {one_line(error)}") from None
        view[: len(data)] = data
        return len(data)


def is_url(place: str) -> bool:
    return "://" in place


def absolute_place(place: str | Path) -> str:
    """Returns a place that every process on this machine understands: a URL without its last slash, or a folder's whole path."""
    text = str(place)
    return text.rstrip("/") if is_url(text) else str(Path(text).expanduser().resolve())


def shown(place: str) -> str:
    """Returns a place without what a URL may hold of a secret: user, password, query."""
    if not is_url(place):
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def overlap(first: str, second: str) -> bool:
    """Whether one place is the other or lies within it."""
    a, b = first.rstrip("/") + "/", second.rstrip("/") + "/"
    return a.startswith(b) or b.startswith(a)


def _version(entry: Any) -> str:
    return str(entry["e_tag"] or entry["last_modified"].timestamp())
