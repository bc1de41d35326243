"""The data folder belongs to one running service at a time, which keeps its name there."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from cloakwork.api.service.clock import new_id
from cloakwork.fhe_core.errors import ParameterError


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
        self.name = os.read(self._descriptor, 64).decode("ascii", "replace").strip() or self._christen()

    def _christen(self) -> str:
        name = new_id()
        os.write(self._descriptor, name.encode())
        os.fsync(self._descriptor)
        return name

    def release(self) -> None:
        os.close(self._descriptor)
