"""Room on the disk: a reserve that nothing new may use, so that deleting and the database go on when everything else is refused."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cloakwork.api.errors import NO_ROOM, StorageFullError

_FILE_BYTES: Final = 16 << 20  # of the reserve, at most: four times what SQLite's log holds before it is written back
_REPORT_SECONDS: Final = 60.0
_POSTGRESQL_FULL: Final = "53100"  # SQLSTATE disk_full

_log = logging.getLogger("cloakwork.disk")


class Disk:
    """The file systems of the data folder and of its objects.

    `reserve_bytes` stay free. Half of them, at most 16 MiB, are the file `reserve`, which other programs cannot take when they fill the
    disk: deletions have its room.
    """

    def __init__(self, data_folder: Path, reserve_bytes: int) -> None:
        self._folders = (data_folder, data_folder / "objects")
        self._file = data_folder / "reserve"
        self._file_bytes = min(reserve_bytes // 2, _FILE_BYTES)
        self._reserve_bytes = reserve_bytes
        self._promised: dict[str, int] = {}
        self._relieved = 0
        self._reported = -_REPORT_SECONDS
        self.restore()
        if self._held_bytes() and self.free_bytes() < self._file_bytes // 4:
            os.truncate(
                self._file, self._held_bytes() // 2
            )  # a service that starts on a full disk has a database to open

    def free_bytes(self) -> int:
        """Returns free bytes without the file `reserve`, where that is there."""
        free_bytes = []
        for folder in self._folders:
            with contextlib.suppress(FileNotFoundError):
                status = os.statvfs(folder)
                free_bytes.append(status.f_bavail * status.f_frsize)
        return min(free_bytes, default=0)

    def total_bytes(self) -> int:
        """Returns the bytes of the file system with the least free bytes."""
        free_and_total = []
        for folder in self._folders:
            with contextlib.suppress(FileNotFoundError):
                status = os.statvfs(folder)
                free_and_total.append((status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize))
        return min(free_and_total, default=(0, 0))[1]

    def room_bytes(self) -> int:
        """Returns room for what is new: beyond the reserve and what is promised; below zero where that has begun to be used."""
        return self.free_bytes() - sum(self._promised.values()) - (self._reserve_bytes - self._held_bytes())

    def require_room(self, count: int) -> None:
        """Requires room on the disk.

        Raises:
            StorageFullError: with so many bytes more, and those that are promised, less than the reserve would be free.
        """
        if count > self.room_bytes():
            error = StorageFullError(
                f"the service has no room for {count} bytes more; delete keys or finished jobs, or tell the operator"
            )
            self.report(error)
            raise error

    # --- bytes that will be written ---

    def promise(self, name: str, count: int) -> None:
        """Reserves bytes that will be written; until `release` they count as taken."""
        self._promised[name] = count

    def release(self, name: str) -> None:
        self._promised.pop(name, None)

    @contextmanager
    def writing(self, name: str, count: int) -> Iterator[None]:
        """Checks `require_room`, and holds the promise while they are written."""
        self.require_room(count)
        self.promise(name, count)
        try:
            yield
        finally:
            self.release(name)

    def written(self, name: str, count: int) -> None:
        """Counts a part of a promise as kept: the file system counts it now."""
        if name in self._promised:
            self._promised[name] = max(0, self._promised[name] - count)

    # --- the reserve ---

    @contextmanager
    def relieved(self) -> Iterator[None]:
        """Frees the file `reserve` around what makes room, or ends what was begun: the database gets the file `reserve` for it when there is
        nothing else left.

        Other programs that fill the disk have the moment until then, and no more, to take that as well.
        """
        if self._held_bytes() and self.free_bytes() < self._file_bytes // 2:
            os.truncate(self._file, 0)
        self._relieved += 1
        try:
            yield
        finally:
            self._relieved -= 1
            self.restore(min(self._file_bytes, self.free_bytes()))

    def restore(self, byte_count: int | None = None) -> None:
        """Makes the file `reserve` whole where it fits, or of this many bytes."""
        reserve_bytes = self._file_bytes if byte_count is None else byte_count
        missing = reserve_bytes - self._held_bytes()
        if missing <= 0 or self._relieved or self.free_bytes() < missing:
            return
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, reserve_bytes)
        except OSError as error:  # somebody else was faster
            self.report(error)
        finally:
            os.close(descriptor)

    def _held_bytes(self) -> int:
        try:
            return min(self._file.stat().st_size, self._file_bytes)
        except FileNotFoundError:
            return 0

    # --- the log ---

    def report(self, error: BaseException) -> None:
        """Logs a full disk at most once a minute: a full disk is one event, not one for each request."""
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            _log.error("no room on the disk", extra={"free_bytes": self.free_bytes(), "error": type(error).__name__})


def is_full(error: BaseException) -> bool:
    """Whether it says that a disk is full: this one, or the database's."""
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    if isinstance(error, DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code is not None:
            return bool(code == sqlite3.SQLITE_IOERR_SHMSIZE or code & 0xFF == sqlite3.SQLITE_FULL)
        return bool(getattr(error.orig, "sqlstate", None) == _POSTGRESQL_FULL)
    return isinstance(error, StorageFullError)


def is_away(error: BaseException) -> bool:
    """Whether the storage is away. A file that is missing, and a disk that is full, have their own answers."""
    outage = isinstance(error, (OSError, SQLAlchemyError)) and not isinstance(error, FileNotFoundError)
    return outage and not is_full(error)
