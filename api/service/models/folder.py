"""The folder of `cloakwork.models.repository`, read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloakwork.api.service.models.batch_model import BatchModel, BatchProgramModel
from cloakwork.api.service.models.index_model import IndexModel
from cloakwork.api.service.models.model import Model
from cloakwork.api.service.models.program_model import ProgramModel
from cloakwork.api.service.names import NAME_PATTERN, VERSION_PATTERN
from cloakwork.models.repository_files import FACTS, KINDS, RETIRED, fault_of

Place = tuple[str, str]
"""A model's name and a version of it."""

_CLASSES: Final[dict[str, type[Model]]] = {each.kind: each for each in (ProgramModel, IndexModel, BatchModel)}

_log = logging.getLogger("cloakwork.repository")


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
