"""The user's keys: one for each parameter set, the secret encrypted at rest, beside it the evaluation keys as they travel."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cloakwork.fhe_core.arrays import Progress
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set

HOME_VARIABLE: Final = "CLOAKWORK_HOME"
PASSPHRASE_VARIABLE: Final = "CLOAKWORK_PASSPHRASE"
_FOLDER_MODE: Final = 0o700


def default_folder() -> Path:
    """`CLOAKWORK_HOME`, else the folder for user data of the desktop standard."""
    if HOME_VARIABLE in os.environ:
        return Path(os.environ[HOME_VARIABLE])
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "cloakwork"


class Keyring:
    """Keys in a folder. Their files name parameter set and digest, so that a changed set gets a new key.

    Args:
        passphrase: of the secret keys, or what asks for it; None: `CLOAKWORK_PASSPHRASE`.
    """

    def __init__(self, folder: Path | None = None, passphrase: str | Callable[[], str] | None = None) -> None:
        self.folder = folder or default_folder()
        self._passphrase = passphrase
        self._open: dict[str, ClientKey] = {}

    def key(self, set_name: str, progress: Progress = None) -> ClientKey:
        """The key of a parameter set; made and saved when there is none.

        Raises:
            KeyMismatchError: the passphrase is wrong.
            ParameterError: no passphrase.
        """
        name = _stem(set_name)
        if name not in self._open:
            path = self.folder / f"{name}.key"
            self._open[name] = ClientKey.load(path, self._word()) if path.exists() else self._make(set_name, progress)
        return self._open[name]

    def evaluation_keys(self, set_name: str, progress: Progress = None) -> Path:
        """The file that a server gets. Always the same bytes, so that an upload can be resumed or skipped."""
        path = self.folder / f"{_stem(set_name)}.evaluation.keys"
        key = self.key(set_name, progress)
        if not path.exists():
            key.evaluation_keys(progress).save(path)
        return path

    def _make(self, set_name: str, progress: Progress) -> ClientKey:
        word = self._word()
        self.folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
        key = ClientKey.generate(set_name)
        stem = _stem(set_name)
        # The public part first: a secret key without it would be given new evaluation keys, which is fine as well.
        key.evaluation_keys(progress).save(self.folder / f"{stem}.evaluation.keys")
        key.save(self.folder / f"{stem}.key", word)
        return key

    def _word(self) -> str:
        word = self._passphrase() if callable(self._passphrase) else self._passphrase
        word = os.environ.get(PASSPHRASE_VARIABLE) if word is None else word
        if not word:
            raise ParameterError(
                f"passphrase: the secret key is encrypted at rest and needs one; pass passphrase= or set {PASSPHRASE_VARIABLE}"
            )
        return word


class TemporaryKeyring(Keyring):
    """Keys that live as long as this object; the secrets are never written, the evaluation keys lie in a folder given by the caller."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "")

    def key(self, set_name: str, progress: Progress = None) -> ClientKey:
        name = _stem(set_name)
        if name not in self._open:
            self._open[name] = ClientKey.generate(set_name)
        return self._open[name]


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stem(set_name: str) -> str:
    return f"{set_name}-{parameter_digest(parameter_set(set_name)).hex()[:12]}"
