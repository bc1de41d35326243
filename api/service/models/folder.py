"""The folder of `cloakwork.models.repository`: read, and written beside, so that an artefact is there all at once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloakwork.api.errors import MalformedError, UnavailableError
from cloakwork.api.service.children import run_module
from cloakwork.api.service.models.kinds import BatchModel, BatchProgramModel, IndexModel, ProgramModel
from cloakwork.api.service.models.model import Model
from cloakwork.api.service.tenants.tenants import NAME_PATTERN, VERSION_PATTERN
from cloakwork.fhe_core.wire.files import synchronise_folder
from cloakwork.models.repository_files import FACTS, FAULT, INCOMING, KINDS, RETIRED, fault_of

DAMAGED: Final = ".damaged"
_REFUSED: Final = 1  # exit status of a process that says why
Place = tuple[str, str]
"""A model's name and a version of it."""
_CLASSES: Final[dict[str, type[Model]]] = {each.kind: each for each in (ProgramModel, IndexModel, BatchModel)}
_log = logging.getLogger("cloakwork.repository")


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


def read_folder(repository: Path) -> dict[str, dict[str, Model]]:
    """Returns versions that are described and whose artefact is there, by name and version."""
    models_by_name: dict[str, dict[str, Model]] = {}
    for file in sorted(repository.glob(f"[!.]*/[!.]*{FACTS}")):
        name, version = file.parent.name, file.stem
        if not re.match(NAME_PATTERN, name) or not re.match(VERSION_PATTERN, version):
            _log.warning("%s/%s: expected names of letters, digits, '.', '_' and '-'; it is not served", name, version)
            continue
        try:
            model = _version(file, name, version)
            if model is not None:
                models_by_name.setdefault(name, {})[version] = model
        except FileNotFoundError:  # removed meanwhile
            continue
        except (ValueError, KeyError, TypeError):
            _log.warning("%s is damaged; it is not served", file)
    return models_by_name


@dataclass(frozen=True)
class Fault:
    """The reason why a version of the folder cannot be served."""

    reason: str
    artefact_sha256: str | None  # when it could; None: it never was
    bytes: int


def read_faults(repository: Path, models_by_name: dict[str, dict[str, Model]]) -> dict[Place, Fault]:
    """Returns versions of the folder that cannot be served. An artefact that is just coming, without facts, is none."""
    faults = dict[Place, Fault]()
    files = (file for suffix in (*KINDS.values(), FACTS) for file in sorted(repository.glob(f"[!.]*/[!.]*{suffix}")))
    for file in files:
        place = file.parent.name, file.stem
        known = place[1] in models_by_name.get(place[0], {}) or place in faults
        if known or not re.match(NAME_PATTERN, place[0]) or not re.match(VERSION_PATTERN, place[1]):
            continue
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            fault, size = fault_of(file), file.stat().st_size
            if file.suffix == FACTS:
                fault = {"reason": "its file is missing"}
            if fault:
                faults[place] = Fault(str(fault.get("reason")), fault.get("artefact_sha256"), size)
    return faults


def read_version(artefact: Path, name: str, version: str) -> Model:
    """Makes the model of an artefact that has just been described, wherever it lies."""
    model = _version(artefact.with_suffix(FACTS), name, version)
    assert model is not None
    return model


def _version(file: Path, name: str, version: str) -> Model | None:
    """By its facts; None where its artefact is not beside them."""
    facts = json.loads(file.read_text(encoding="utf-8"))
    kind, suffix = _CLASSES[facts["kind"]], KINDS[facts["kind"]]
    kind = BatchProgramModel if facts.get("packing") == "program" else kind
    artefact = file.with_suffix(suffix)
    return kind(name, version, artefact.resolve(), facts) if artefact.is_file() else None


def artefact_of(repository: Path, name: str, version: str) -> Path | None:
    """Returns the file of a version, of any kind, whether it is described or not."""
    files = (repository / name / f"{version}{suffix}" for suffix in KINDS.values())
    return next((file for file in files if file.is_file()), None)


def sha256_of(artefact: Path) -> str:
    with artefact.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def mark_retired(repository: Path, name: str, version: str) -> None:
    """Writes a mark where no artefact keeps the number of a retired version."""
    folder = repository / name
    folder.mkdir(exist_ok=True)
    (folder / f"{version}{RETIRED}").touch()


def ordered(versions: Iterable[tuple[str, Model]]) -> list[tuple[str, Model]]:
    return sorted(versions, key=lambda item: version_order(item[0]))


def version_order(version: str) -> tuple[bool, int, str]:
    """Returns numbers by value, other names after them."""
    return not version.isdecimal(), int(version) if version.isdecimal() else 0, version
