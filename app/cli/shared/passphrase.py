"""The passphrase that protects a secret key at rest. It is never an argument: the list of processes would show it."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import WrongCallError

ENVIRONMENT_VARIABLE = "CLOAKWORK_PASSPHRASE"

PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        help=f"File whose first line is the passphrase of the secret key. Otherwise {ENVIRONMENT_VARIABLE}, otherwise a prompt.",
    ),
]


def has_passphrase(file: Path | None) -> bool:
    """Whether `read_passphrase` has somewhere to read from."""
    return file is not None or ENVIRONMENT_VARIABLE in os.environ or sys.stdin.isatty()


def read_passphrase(file: Path | None, *, confirm: bool) -> str:
    """From the file, else the environment, else a prompt (asked twice for a new key)."""
    if file is not None:
        source, passphrase = str(file), _first_line(file)
    elif ENVIRONMENT_VARIABLE in os.environ:
        source, passphrase = ENVIRONMENT_VARIABLE, os.environ[ENVIRONMENT_VARIABLE]
    else:
        source, passphrase = "the prompt", _prompt(confirm)
    if not passphrase:
        raise WrongCallError(f"the passphrase from {source} is empty; give one of at least one character")
    return passphrase


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as stream:
        return stream.readline().rstrip("\r\n")


def _prompt(confirm: bool) -> str:
    if not sys.stdin.isatty():
        raise WrongCallError(
            f"the secret key needs a passphrase and there is no terminal to ask on; set {ENVIRONMENT_VARIABLE} or pass --passphrase-file"
        )
    passphrase = getpass.getpass("Passphrase for a new secret key: " if confirm else "Passphrase of the secret key: ")
    if confirm and getpass.getpass("Once more: ") != passphrase:
        raise WrongCallError("the two passphrases differ; run the command again")
    return passphrase
