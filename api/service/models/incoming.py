"""Artefacts on their way into the repository's folder: written and described beside it, then there all at once."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path
from typing import Final

from cloakwork.api.errors import MalformedError, UnavailableError
from cloakwork.api.service.children import run_module
from cloakwork.api.service.models.folder import artefact_of
from cloakwork.fhe_core.wire.files import synchronise_folder
from cloakwork.models.repository_files import FACTS, FAULT, INCOMING

DAMAGED: Final = ".damaged"
_REFUSED: Final = 1  # exit status of a process that says why


class Incoming:
    """A folder inside the repository's, and so on the same file system. Nothing in it outlives the service."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._folder = repository / INCOMING
        self._describing = asyncio.Lock()  # one process at a time: its memory is in proportion to the file
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink()

    def new(self, suffix: str) -> Path:
        return self._folder / f"{secrets.token_hex(16)}{suffix}"

    def drop(self, artefact: Path) -> None:
        for file in (artefact, artefact.with_suffix(FACTS)):
            file.unlink(missing_ok=True)

    async def describe(self, artefact: Path) -> None:
        """Writes its facts beside it.

        Raises:
            MalformedError: it is no model of this release.
            UnavailableError: reading it does not end, or was ended.
        """
        async with self._describing:
            try:
                ended = await run_module("cloakwork.models.repository", "--file", str(artefact))
            except TimeoutError:  # the kernel limits what it computes, not how long it waits
                raise UnavailableError("reading the model does not end; try again", retry_after=60) from None
        if ended.status == _REFUSED:
            raise MalformedError(f"this is no model that can be served: {' '.join(ended.errors[-1:])}")
        if ended.status == -signal.SIGKILL:  # its own limits end it otherwise
            raise UnavailableError("the process that reads the model was killed; try again", retry_after=60)
        if ended.status:
            raise MalformedError(
                "this is no model that can be served: reading it takes more time or memory than its size explains"
            )

    def set_aside(self, name: str, version: str) -> None:
        """Moves the file of a version that cannot be served aside, to make room for one that can."""
        path = artefact_of(self._repository, name, version)
        if path is not None:
            path.replace(path.with_name(path.name + DAMAGED))
            path.with_suffix(FAULT).unlink(missing_ok=True)

    def install(self, artefact: Path, name: str, version: str) -> Path:
        """Moves a checked artefact into the folder.

        Raises:
            FileExistsError: there is such a file.
        """
        folder = self._repository / name
        folder.mkdir(exist_ok=True)
        target = folder / f"{version}{artefact.suffix}"
        _move(artefact, target)
        artefact.with_suffix(FACTS).replace(target.with_suffix(FACTS))
        synchronise_folder(folder)
        return target


def _move(source: Path, target: Path) -> None:
    """Raises:
    FileExistsError: nothing is replaced.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links, such as SMB
        if target.exists():
            raise FileExistsError(target) from None
        source.rename(target)
    else:
        source.unlink()
