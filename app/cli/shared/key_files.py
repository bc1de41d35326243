"""The two files of a key: what they are called, and how the secret one is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import FailureError
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.passphrase import read_passphrase
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models.key import Key

CLIENT_KEY = "client.key"
EVALUATION_KEYS = "evaluation.keys"

KeyOption = Annotated[Path, typer.Option("--key", help="Read the secret key that keygen wrote.")]


def load_key(path: Path, passphrase_file: Path | None) -> ClientKey:
    """Loads a key of look-ups."""
    key = load_any_key(path, passphrase_file)
    if not isinstance(key.parts[0], ClientKey):
        raise FailureError(
            f"{path}: the key is for a model for batches or an index; name that model with --model or --client"
        )
    return key.parts[0]


def load_any_key(path: Path, passphrase_file: Path | None) -> Key:
    """Loads a key of any kind of model."""
    if not path.exists():
        raise FailureError(f"there is no key at {path}; make one with 'cloakwork keygen' or name it with --key")
    passphrase = read_passphrase(passphrase_file, confirm=False)
    with reading(path, "a secret key of 'cloakwork keygen'"):
        return Key.load(path, passphrase)
