"""The data folder belongs to one running service at a time, which keeps its name there."""

from __future__ import annotations

import fcntl
import logging
import os
import re
from pathlib import Path

from cloakwork.api.service.clock import new_id
from cloakwork.fhe_core.errors import ParameterError

_log = logging.getLogger("cloakwork.storage")


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
            _log.warning("the name of this service was damaged, and it has a new one")
        name = new_id()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, name.encode(), 0)
        os.fsync(self._descriptor)
        return name

    def release(self) -> None:
        os.close(self._descriptor)
