"""Names in a folder of models, and what the facts of a version begin with: small, for processes that read no program."""

from __future__ import annotations

import contextlib
import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from cloakwork.fhe_core.wire.files import atomic_writer

FORMAT: Final = 7  # 6 did not say which kind of model it is
ARTEFACT: Final = ".clkm"
INDEX: Final = ".clkn"
BATCH: Final = ".clkb"
FACTS: Final = ".json"
RETIRED: Final = ".retired"
"""`NAME/VERSION.retired`, an empty file: the version is retired and its artefact not here; the number is not given again."""
FAULT: Final = ".fault"
"""`NAME/VERSION.fault`: why the artefact cannot be served, and the SHA-256 that it had when it could (JSON)."""
INCOMING: Final = ".incoming"
"""A folder of what is on its way into the repository."""
ZOO: Final = "zoo.sha256"
"""`NAME/zoo.sha256`: the files of the zoo that have been compiled as versions of the model."""
ZOO_FOLDER: Final = Path(__file__).parent / "zoo"
"""The trained models that come with the package, `NAME.json` each."""
KINDS: Final = {"program": ARTEFACT, "index": INDEX, "batch": BATCH}
_KIND_OF: Final = {suffix: kind for kind, suffix in KINDS.items()}


def release() -> str:
    try:
        return version("cloakwork")
    except PackageNotFoundError:
        return "0"


def own_facts(sha256: str, kind: str) -> dict[str, Any]:
    """Returns what facts have in them when they are of this release and of an artefact of this SHA-256 (hexadecimal)."""
    return {"format": FORMAT, "engine_version": release(), "artefact_sha256": sha256, "kind": kind}


def artefacts(folder: Path) -> list[Path]:
    """Returns versions of one model."""
    return sorted(file for suffix in KINDS.values() for file in folder.glob(f"*{suffix}"))


def next_version(folder: Path) -> int:
    """Returns one that neither an artefact nor a retired version has."""
    taken = [path.stem for path in (*artefacts(folder), *folder.glob(f"*{RETIRED}"))]
    return 1 + max((int(stem) for stem in taken if stem.isdecimal()), default=0)


def described(artefact: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns what the facts of an artefact begin with, and all of them if its file has them: of this release and of these bytes."""
    with artefact.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    file = artefact.with_suffix(FACTS)
    base_facts = own_facts(digest, _KIND_OF[artefact.suffix])
    with contextlib.suppress(FileNotFoundError, ValueError, AttributeError):  # damaged: they are made again
        known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if known.items() >= base_facts.items():
            return base_facts, known
    return base_facts, None


def fault_of(artefact: Path) -> dict[str, Any]:
    """Describes an artefact that cannot be served; empty where nothing is known of it."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        fault = json.loads(artefact.with_suffix(FAULT).read_text(encoding="utf-8"))
        if isinstance(fault, dict):
            return fault
    return {}


def keep_fault(artefact: Path, reason: str) -> None:
    """Writes why an artefact cannot be served, in the place of its facts."""
    facts, sha256 = artefact.with_suffix(FACTS), fault_of(artefact).get("artefact_sha256")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        sha256 = json.loads(facts.read_text(encoding="utf-8"))["artefact_sha256"]
    with atomic_writer(artefact.with_suffix(FAULT)) as stream:
        stream.write(json.dumps({"reason": reason, "artefact_sha256": sha256}).encode())
    facts.unlink(missing_ok=True)


def keep_faults(repository: Path, reason: str) -> None:
    """Writes it for every artefact that is not described, unless another reason is known."""
    for artefact in (each for model in by_model(repository) for each in model):
        first = next((each for each in KINDS.values() if artefact.with_suffix(each).exists()), None)
        if artefact.suffix != first:
            continue  # of two files of one version the first is served, and the facts are its own
        with contextlib.suppress(FileNotFoundError):
            if described(artefact)[1] is None and not fault_of(artefact):
                keep_fault(artefact, reason)


def by_model(repository: Path) -> list[list[Path]]:
    """Returns the artefacts of each model of a repository."""
    return [artefacts(folder) for folder in sorted(repository.glob("*/")) if not folder.name.startswith(".")]


def is_described(repository: Path) -> bool:
    """Whether every version is one artefact with its facts: nothing is left to `python -m cloakwork.models.repository`."""
    versions = by_model(repository)
    if any(len({each.stem for each in model}) < len(model) for model in versions):
        return False
    try:
        return all(described(each)[1] is not None for model in versions for each in model)
    except OSError:  # one that is gone meanwhile, or cannot be read, which the process tells
        return False
