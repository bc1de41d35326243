"""The data folder is its owner's alone: folders 0700, files 0600, whatever the umask of who starts the service."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o077
"""As a umask: what is taken away."""

_log = logging.getLogger("cloakwork.private")


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
