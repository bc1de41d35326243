"""Files that are either the old ones or complete: written beside the target, synchronised, then renamed over it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]

PUBLIC_MODE = 0o666  # less the umask
SECRET_MODE = 0o600


@contextlib.contextmanager
def atomic_writer(path: PathLike, mode: int = PUBLIC_MODE) -> Iterator[BinaryIO]:
    """Opens a binary stream whose bytes appear under `path` all at once when the block ends well, and leave nothing behind when it fails."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    synchronise_folder(target.parent)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Locks a folder: nobody else who asks for it has the folder, in this process or another. A lock of the kernel, which ends with the process
    that holds it.

    Network file systems without locks for folders give none: what must hold there too is done with names that appear once (`os.link`).
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def synchronise_folder(folder: Path) -> None:
    """Names in it survive a loss of power from here on."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Returns the cache folder of cloakwork, for what can be made or fetched again: below the cache of the desktop standard. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cloakwork"
