"""Names in a folder of models, and what the facts of a version begin with: small, for processes that read no program."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 7  # 6 did not say which kind of model it is
ARTEFACT: Final = ".clkm"
INDEX: Final = ".clkn"
FACTS: Final = ".json"
RETIRED: Final = ".retired"
"""`NAME/VERSION.retired`, an empty file: the version is retired and its artefact not here; the number is not given again."""
INCOMING: Final = ".incoming"
"""A folder of what is on its way into the repository."""
ZOO: Final = "zoo.sha256"
"""`NAME/zoo.sha256`: the files of the zoo that have been compiled as versions of the model."""
KINDS: Final = {"program": ARTEFACT, "index": INDEX}


def release() -> str:
    try:
        return version("cloakwork")
    except PackageNotFoundError:
        return "0"


def own_facts(sha256: str, kind: str) -> dict[str, Any]:
    """What facts have in them when they are of this release and of an artefact of this SHA-256 (hexadecimal)."""
    return {"format": FORMAT, "engine_version": release(), "artefact_sha256": sha256, "kind": kind}


def artefacts(folder: Path) -> list[Path]:
    """Versions of one model."""
    return sorted([*folder.glob(f"*{ARTEFACT}"), *folder.glob(f"*{INDEX}")])


def next_version(folder: Path) -> int:
    """One that neither an artefact nor a retired version has."""
    taken = [path.stem for path in (*artefacts(folder), *folder.glob(f"*{RETIRED}"))]
    return 1 + max((int(stem) for stem in taken if stem.isdecimal()), default=0)
