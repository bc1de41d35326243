"""Files that a command writes: those that exist stay unless they are to be replaced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import FailureError

ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def refuse_overwriting(force: bool, *paths: Path, makes_folder: bool = False) -> None:
    """Say before any work is done what could not be written at its end. Args: makes_folder: the command makes a folder that is missing."""
    for path in paths:
        folder = path.parent
        if path.is_dir():
            raise FailureError(f"{path}: expected the name of a file to write, got a folder")
        if folder.exists() and not folder.is_dir():
            raise FailureError(f"{path}: {folder} is a file; choose a name in a folder")
        if not folder.exists() and not makes_folder:
            raise FailureError(f"{path}: there is no folder '{folder}'; make it first")
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise FailureError(f"{path}: you may not write to this folder; choose another place")
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        raise FailureError(f"{' and '.join(existing)} would be overwritten; choose another name, or pass --force")
