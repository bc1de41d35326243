"""Artefacts on their way into the repository's folder: written and described beside it, then there all at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from cloakwork.api.errors import MalformedError, UnavailableError
from cloakwork.api.service.models.folder import artefact_of
from cloakwork.fhe_core.files import synchronise_folder
from cloakwork.models.repository_files import FACTS, FAULT, INCOMING

DAMAGED: Final = ".damaged"
_REFUSED: Final = 1  # exit status of a process that says why
_LEAST_SECONDS: Final = 600.0  # ten times the processor time that reading a model may take, and its bytes
_BYTES_A_SECOND: Final = (1 << 20) / 10


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
            UnavailableError: reading it does not end.
        """
        async with self._describing:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cloakwork.models.repository",
                "--file",
                str(artefact),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(_LEAST_SECONDS + artefact.stat().st_size / _BYTES_A_SECOND):
                    _, errors = await process.communicate()
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                if isinstance(
                    error, TimeoutError
                ):  # it hangs: the kernel limits what it computes, not how long it waits
                    raise UnavailableError("reading the model does not end; try again", retry_after=60) from None
                raise
        if process.returncode == _REFUSED:
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise MalformedError(f"this is no model that can be served: {' '.join(last)}")
        if process.returncode:
            raise MalformedError(
                "this is no model that can be served: reading it takes more time or memory than its size explains"
            )

    def set_aside(self, name: str, version: str) -> None:
        """The file of a version that cannot be served makes room for one that can."""
        path = artefact_of(self._repository, name, version)
        if path is not None:
            path.replace(path.with_name(path.name + DAMAGED))
            path.with_suffix(FAULT).unlink(missing_ok=True)

    def install(self, artefact: Path, name: str, version: str) -> Path:
        """Raises:
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
