"""The user's keys: one for each server and parameter set (and plaintext modulus), the secret encrypted at rest, beside it the evaluation keys as they
travel."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, overload
from urllib.parse import urlsplit

from cloakwork.app.client.key_kinds import Key, KeyKind, LookupKeys, SecretKey
from cloakwork.app.client.passphrases import check_passphrase
from cloakwork.app.client.pins import PinFile, Pins
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import FheError, ParameterError
from cloakwork.fhe_core.wire import CHECKSUM_BYTES, PREFIX_BYTES
from cloakwork.fhe_core.wire.files import locked_folder, synchronise_folder
from cloakwork.fhe_core.words import Progress

HOME_VARIABLE: Final = "CLOAKWORK_HOME"
PASSPHRASE_VARIABLE: Final = "CLOAKWORK_PASSPHRASE"
_FOLDER_MODE: Final = 0o700
_LONGEST_HOST: Final = 80  # letters of it in the name of a file
_PORTS: Final = {"http": 80, "https": 443}
_OTHERS: Final = 0o077  # every right of group and others

Passphrase: TypeAlias = str | Callable[[], str] | None


def default_folder() -> Path:
    """Returns `CLOAKWORK_HOME`, else the folder for user data of the desktop standard."""
    if HOME_VARIABLE in os.environ:
        return Path(os.environ[HOME_VARIABLE])
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "cloakwork"


class Keyring:
    """Keys in a folder. Their files name parameter set and digest, so that a changed set gets a new key, and the server that the key is for, so that
    servers do not recognise a user by the same key. Keys without a server are shared: by `Client(share_keys=True)`, and by earlier releases.

    Any number of threads and processes may use one folder: a key that several make at once is made once. Folder and secret keys must be
    the user's alone.

    Args:
        passphrase: of the secret keys, or what asks for it; None: `CLOAKWORK_PASSPHRASE`.
        new_passphrase: of a key that is made, for instance what asks twice; None: `passphrase`.
        weak_passphrase: take one for a new key that is easy to guess.
    """

    lasting = True  # whether the keys are there for the next run as well

    def __init__(
        self,
        folder: Path | None = None,
        passphrase: Passphrase = None,
        new_passphrase: Passphrase = None,
        *,
        weak_passphrase: bool = False,
    ) -> None:
        self.folder = folder or default_folder()
        self._passphrase = passphrase
        self._new_passphrase = passphrase if new_passphrase is None else new_passphrase
        self._weak_passphrase = weak_passphrase
        self._open: dict[str, Any] = {}  # secret keys by name
        self._lock = threading.RLock()
        self.pins: Pins = PinFile(self.folder)

    @staticmethod
    def temporary(folder: Path) -> Keyring:
        """Makes a keyring whose secret keys are never written. Args: folder: of the evaluation keys."""
        return TemporaryKeyring(folder)

    @overload
    def key(self, kind: str, progress: Progress = None, server: str = "") -> ClientKey: ...
    @overload
    def key(self, kind: KeyKind[Key], progress: Progress = None, server: str = "") -> Key: ...
    def key(self, kind: str | KeyKind[Any], progress: Progress = None, server: str = "") -> Any:
        """Returns the key of a parameter set; made and saved when there is none.

        Args:
            kind: the name of a set of look-ups, or which key is meant.
            server: URL of the one that it is for; without it the key that servers share.

        Raises:
            KeyMismatchError: the passphrase is wrong.
            ParameterError: no passphrase, a weak one for a new key, or a folder or file that other users of the machine can read.
            SerializationError: the file is damaged; it is left as it is.
        """
        with self._lock:
            chosen = _chosen(kind)
            name = key_name(chosen.name, server)
            if name not in self._open:
                self._open[name] = self._opened(chosen, progress, server)
            return self._open[name]

    def evaluation_keys(self, kind: str | KeyKind[Any], progress: Progress = None, server: str = "") -> Path:
        """Returns the file that a server gets. Always the same bytes, so that an upload can be resumed or skipped.

        Made again where they are missing, damaged, of an earlier release or of another secret key.
        """
        with self._lock:
            chosen = _chosen(kind)
            key = self.key(chosen, progress, server)
            path = self._evaluation_path(chosen, server)
            if not _belongs(path, chosen, key):
                with locked_folder(self.folder):
                    if not _belongs(path, chosen, key):  # nobody else has made them meanwhile
                        chosen.save_evaluation_keys(key, path, progress)
            return path

    def has_evaluation_keys(self, kind: str | KeyKind[Any], server: str = "") -> bool:
        """Whether there is a file of them, sound or not."""
        return self._evaluation_path(_chosen(kind), server).exists()

    def _opened(self, kind: KeyKind[Any], progress: Progress, server: str) -> Any:
        return self._stored(kind, server) or self._made(kind, progress, server)

    def _secret_path(self, kind: KeyKind[Any], server: str) -> Path:
        return self.folder / f"{key_name(kind.name, server)}.key"

    def _evaluation_path(self, kind: KeyKind[Any], server: str) -> Path:
        return self.folder / f"{key_name(kind.evaluation_name, server)}.evaluation.keys"

    def _stored(self, kind: KeyKind[Any], server: str) -> Any:
        path = self._secret_path(kind, server)
        if not path.exists():
            return None
        _require_private(self.folder, "700")
        _require_private(path, "600")
        return kind.load(path, _word(self._passphrase))

    def _made(self, kind: KeyKind[Any], progress: Progress, server: str) -> Any:
        word = _word(self._new_passphrase)
        if not self._weak_passphrase:
            check_passphrase(word)
        self.folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
        _require_private(self.folder, "700")
        path = self._secret_path(kind, server)
        with locked_folder(self.folder):
            if path.exists():  # another process was first
                return kind.load(path, word)
            key = kind.generate()
            # The public part first, so that a secret key is complete when it appears. What is left of an interrupted run is replaced.
            kind.save_evaluation_keys(key, self._evaluation_path(kind, server), progress)
            if _publish(key, path, word):
                return key
        # On file systems without locks: the other one's key counts, and evaluation keys are made to fit it when they are asked for.
        return kind.load(path, word)


class TemporaryKeyring(Keyring):
    """Keys that live as long as this object; the secrets are never written, the evaluation keys lie in a folder given by the caller.

    A `Client` with such keys deletes them from its server when it is closed: nobody can use them afterwards.
    """

    lasting = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "")
        self.pins = Pins()

    def _opened(self, kind: KeyKind[Any], progress: Progress, server: str) -> Any:
        return kind.generate()


def server_name(url: str) -> str:
    """Returns the same for all ways to write the URL of a server: what its keys and pins are found by."""
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}{parts.path.rstrip('/')}"


def key_name(name: str, server: str) -> str:
    """Names the files of a key: with the server's host, and a digest of its whole address."""
    if not server:
        return name
    host = "".join(
        letter
        for letter in (urlsplit(server).hostname or "")
        if letter.isascii() and (letter.isalnum() or letter in ".-")
    )
    return f"{name}@{host[:_LONGEST_HOST]}-{hashlib.sha256(server_name(server).encode()).hexdigest()[:12]}"


def sha256_of(path: Path) -> str:
    """Digests a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _chosen(kind: str | KeyKind[Any]) -> KeyKind[Any]:
    return LookupKeys(kind) if isinstance(kind, str) else kind


def _word(passphrase: Passphrase) -> str:
    word = passphrase() if callable(passphrase) else passphrase
    word = os.environ.get(PASSPHRASE_VARIABLE) if word is None else word
    if not word:
        raise ParameterError(
            f"passphrase: the secret key is encrypted at rest and needs one; pass passphrase= or set {PASSPHRASE_VARIABLE}"
        )
    return word


def _publish(key: SecretKey, path: Path, word: str) -> bool:
    """Whether the file is new: a secret key that is there is never replaced, because its ciphertexts would be lost with it."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        key.save(temporary, word)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links; the folder's lock keeps others away
            if path.exists():
                return False
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    synchronise_folder(path.parent)
    return True


def _require_private(path: Path, mode: str) -> None:
    """As ssh does; a link is what it leads to."""
    status = path.stat()
    if status.st_mode & _OTHERS:
        raise ParameterError(
            f"keys: expected that only you can open {path}, but its mode is {stat.S_IMODE(status.st_mode):03o}; run 'chmod {mode} {path}'"
        )
    if os.geteuid() not in (0, status.st_uid):
        raise ParameterError(
            f"keys: {path} belongs to another user; use a folder of your own (--keys, or {HOME_VARIABLE})"
        )


def _belongs(path: Path, kind: KeyKind[Any], key: SecretKey) -> bool:
    """Whether these are whole evaluation keys of the secret key, in this release's format."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if kind.key_id(stream.read(PREFIX_BYTES), size) != key.key_id:
                return False
            return _checksum_fits(path, size)
    except (FileNotFoundError, FheError):
        return False


def _checksum_fits(path: Path, size: int) -> bool:
    checksum, left = hashlib.sha256(), size - CHECKSUM_BYTES
    with path.open("rb") as stream:
        while left > 0 and (block := stream.read(min(left, 1 << 20))):
            checksum.update(block)
            left -= len(block)
        return stream.read() == checksum.digest()
