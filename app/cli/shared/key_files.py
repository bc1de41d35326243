"""The two files of a key: what they are called, and how the secret one is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import FailureError
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.passphrase import read_passphrase
from cloakwork.fhe_core.client import ClientKey

CLIENT_KEY = "client.key"
EVALUATION_KEYS = "evaluation.keys"

KeyOption = Annotated[Path, typer.Option("--key", help="Read the secret key that keygen wrote.")]


def load_key(path: Path, passphrase_file: Path | None) -> ClientKey:
    if not path.exists():
        raise FailureError(f"there is no key at {path}; make one with 'cloakwork keygen' or name it with --key")
    passphrase = read_passphrase(passphrase_file, confirm=False)
    with reading(path, "a secret key of 'cloakwork keygen'"):
        return ClientKey.load(path, passphrase)
