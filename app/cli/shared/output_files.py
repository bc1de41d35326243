"""Files that a command writes: those that exist stay unless they are to be replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import FailureError

ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def refuse_overwriting(force: bool, *paths: Path) -> None:
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        raise FailureError(f"{' and '.join(existing)} would be overwritten; choose another name, or pass --force")
