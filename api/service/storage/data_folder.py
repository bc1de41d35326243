"""The data folder: its owner's alone, one running service's at a time, and how files are written into it."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final

from cloakwork.api.service.clock import new_id
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.wire.files import SECRET_MODE, atomic_writer

OWNER_ONLY: Final = 0o077
"""As a umask: what is taken away."""

_log = logging.getLogger("cloakwork.private")
_storage_log = logging.getLogger("cloakwork.storage")
_WRITE_BYTES: Final = 1 << 20


def own_folder(folder: Path) -> None:
    """Makes the folder, and from here on everything this process and its children make is the owner's alone.

    A folder that was there with wider modes is narrowed with all that is in it, of which the log tells. Symbolic links are neither followed
    nor changed.
    """
    os.umask(OWNER_ONLY)
    folder.mkdir(parents=True, exist_ok=True)
    if not stat.S_IMODE(folder.stat().st_mode) & OWNER_ONLY:
        return
    below = list(_below(folder))
    changed = sum(_narrow(path) for path in [folder, *below])
    if below:
        _log.warning("%s was open to other users: the modes of %d files and folders are narrowed", folder, changed)


def _narrow(path: Path) -> bool:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & OWNER_ONLY:
            path.chmod(mode & ~OWNER_ONLY)
            return True
    except FileNotFoundError:  # of a request that has ended meanwhile
        return False
    except PermissionError:
        _log.warning("%s belongs to another user, who keeps it open to others", path)
    return False


def _below(folder: Path) -> Iterator[Path]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry)
            yield from _below(Path(entry))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry)


class Node:
    """Holds the folder's lock until the process ends, however it ends."""

    def __init__(self, data_folder: Path) -> None:
        data_folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(data_folder / "node", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ParameterError(
                f"data folder: another service is running on {data_folder}; stop it, or take another folder"
            ) from None
        known = os.read(self._descriptor, 64).decode("ascii", "replace").strip()
        self.name = known if re.fullmatch("[0-9a-f]{32}", known) else self._christen(known)

    def _christen(self, known: str) -> str:
        """What a loss of power left of the file is no name; jobs of the earlier one are taken over as those of a service that is gone."""
        if known:
            _storage_log.warning("the name of this service was damaged, and it has a new one")
        name = new_id()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, name.encode(), 0)
        os.fsync(self._descriptor)
        return name

    def release(self) -> None:
        os.close(self._descriptor)


async def blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the same bytes: the first chunk at once, so that its header is looked at; then in blocks worth a write. What came before the
    connection broke counts."""
    pending = bytearray()
    first = True
    broken: Exception | None = None
    try:
        async for chunk in chunks:
            pending += chunk
            if first or len(pending) >= _WRITE_BYTES:
                first = False
                yield bytes(pending)
                pending.clear()
    except Exception as error:
        broken = error
    if pending:
        yield bytes(pending)
    if broken is not None:
        raise broken


def write_all(stream: BinaryIO | FileIO, block: bytes) -> None:
    """Writes all bytes: an unbuffered file may take less than it is given, above all the last bytes that fit on the disk."""
    view = memoryview(block)
    while view:
        view = view[stream.write(view) :]


def write_file(path: Path, body: bytes) -> None:
    with atomic_writer(path, SECRET_MODE) as stream:
        stream.write(body)
