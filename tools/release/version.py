"""`python tools/release/version.py 0.2.0` writes the version into pyproject.toml and into what repeats it; without an argument it compares them.

pyproject.toml is the one place: the package's metadata, `cloakwork --version` and the service take it from there. Files of other tools
cannot, and are compared by tests/test_packages.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final = "pyproject.toml"
VERSION: Final = r"\d+\.\d+\.\d+"  # one that npm and Helm read too
# File -> what stands before the version, and after it. Each occurs as many times as there are patterns.
REPEATED: Final = {
    PROJECT: [(r'^version = "', '"$')],
    "CITATION.cff": [(r"^version: ", "$")],
    "deploy/helm/cloakwork/Chart.yaml": [(r"^version: ", "$"), (r'^appVersion: "?', '"?$')],
    "web/package.json": [(r'^  "version": "', '",$')],
    "web/package-lock.json": [
        (r'\A\{\s+"name": "@cloakwork/client",\s+"version": "', '"'),
        (r'"": \{\s+"name": "@cloakwork/client",\s+"version": "', '"'),
    ],
}


def found() -> dict[str, str]:
    """The versions that stand in each place, "FILE" or "FILE (2)"."""
    versions = {}
    for name, places in REPEATED.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for number, (before, after) in enumerate(places):
            matches = re.findall(f"{before}({VERSION}){after}", text, flags=re.MULTILINE)
            if len(matches) != 1:
                raise SystemExit(f"{name}: expected one version after {before}, found {len(matches)}")
            versions[name if number == 0 else f"{name} ({number + 1})"] = matches[0]
    return versions


def write(version: str) -> None:
    """Raises: SystemExit where it is none, or a file has no place for it."""
    if not re.fullmatch(VERSION, version):
        raise SystemExit(f"version: expected one like 0.2.0, got '{version}'")
    found()
    for name, places in REPEATED.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        for before, after in places:
            text = re.sub(f"({before}){VERSION}(?={after})", rf"\g<1>{version}", text, flags=re.MULTILINE)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1])
    versions = found()
    print("\n".join(f"{version}  {name}" for name, version in versions.items()))
    raise SystemExit(len(set(versions.values())) != 1)
