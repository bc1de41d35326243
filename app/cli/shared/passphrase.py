"""The passphrase that protects a secret key at rest. It is never an argument: the list of processes would show it."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import WrongCallError, report_error
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.client.errors import WeakPassphraseError
from cloakwork.app.client.passphrases import WEAK_VARIABLE, check_passphrase, weakness

ENVIRONMENT_VARIABLE = "CLOAKWORK_PASSPHRASE"
_PROMPTS = 3

PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        help=f"Read the passphrase of the secret key from the first line of this file (default: {ENVIRONMENT_VARIABLE}, or a prompt).",
    ),
]

WeakPassphraseOption = Annotated[
    bool,
    typer.Option("--weak-passphrase", help="Accept a passphrase for a new secret key that is easy to guess."),
]


def has_passphrase(file: Path | None) -> bool:
    """Whether `read_passphrase` has somewhere to read from."""
    return file is not None or ENVIRONMENT_VARIABLE in os.environ or sys.stdin.isatty()


def read_passphrase(file: Path | None, *, confirm: bool, weak: bool = False) -> str:
    """Reads a passphrase from the file, else the environment, else a prompt (asked twice for a new key).

    Args:
        confirm: it is for a new key.
        weak: take one for a new key that is easy to guess.
    """
    if file is not None:
        source, passphrase = str(file), _first_line(file)
    elif ENVIRONMENT_VARIABLE in os.environ:
        source, passphrase = ENVIRONMENT_VARIABLE, os.environ[ENVIRONMENT_VARIABLE]
    else:
        return _prompt(confirm, weak)
    if not passphrase:
        raise WrongCallError(f"the passphrase from {source} is empty; give one of at least one character")
    if confirm and not weak:
        try:
            check_passphrase(passphrase)
        except WeakPassphraseError as error:
            raise WrongCallError(f"the passphrase from {source}: {error} (--weak-passphrase)") from error
    return passphrase


def _first_line(file: Path) -> str:
    with reading(file, "a passphrase in its first line"), file.open(encoding="utf-8") as stream:
        return stream.readline().rstrip("\r\n")


def _prompt(confirm: bool, weak: bool) -> str:
    if not sys.stdin.isatty():
        raise WrongCallError(
            f"the secret key needs a passphrase and there is no terminal to ask on; set {ENVIRONMENT_VARIABLE} or pass --passphrase-file"
        )
    if not confirm:
        return _asked("Passphrase of the secret key: ")
    for _ in range(_PROMPTS):
        passphrase = _asked("Passphrase for a new secret key: ")
        if getpass.getpass("Once more: ") != passphrase:
            raise WrongCallError("the two passphrases differ; run the command again")
        reason = None if weak or os.environ.get(WEAK_VARIABLE) == "1" else weakness(passphrase)
        if reason is None:
            return passphrase
        report_error(f"{reason}; take four or more words that have nothing to do with each other")
    raise WrongCallError("the passphrase is too easy to guess; --weak-passphrase accepts it all the same")


def _asked(question: str) -> str:
    passphrase = getpass.getpass(question)
    if not passphrase:
        raise WrongCallError("the passphrase from the prompt is empty; give one of at least one character")
    return passphrase
