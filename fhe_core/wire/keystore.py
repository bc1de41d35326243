"""Secret keys at rest: scrypt makes a key of the passphrase, AES-256-GCM encrypts, the header is authenticated.

The file is an object of the wire format of kind `secret key`, or `party key`, so that everything that reads public objects recognises and refuses it.

Source: [RFC7914] scrypt.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from cloakwork.fhe_core import wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.wire.files import SECRET_MODE, PathLike

_KEY_DERIVATION = struct.Struct("<BBHHH4s16s12s")  # function, log2 n, r, p, reserved, reserved, salt, nonce
_SCRYPT = 1
_MAX_MEMORY_BYTES = 1 << 28
_MIN_LOG2_N, _MAX_LOG2_N, _MAX_P = 10, 20, 4


@dataclass(frozen=True)
class ScryptCost:
    """Memory is 128 n r bytes, time grows with n r p."""

    log2_n: int = 17
    r: int = 8
    p: int = 1

    def check(self) -> None:
        """Raises SerializationError beyond the limits, so that a file cannot make its reader work without end."""
        if not (
            _MIN_LOG2_N <= self.log2_n <= _MAX_LOG2_N
            and self.r >= 1
            and 1 <= self.p <= _MAX_P
            and 128 * self.r << self.log2_n <= _MAX_MEMORY_BYTES
        ):
            raise SerializationError(
                f"secret key: expected scrypt costs n = 2^{_MIN_LOG2_N} .. 2^{_MAX_LOG2_N}, p <= {_MAX_P} and at most "
                f"{_MAX_MEMORY_BYTES >> 20} MiB, got n = 2^{self.log2_n}, r = {self.r}, p = {self.p}; the file is damaged or hostile"
            )


DEFAULT_COST = ScryptCost()


def save_secret(
    path: PathLike,
    params: ParameterSet,
    secret: bytes,
    key_id: bytes | None,
    passphrase: str,
    cost: ScryptCost = DEFAULT_COST,
    *,
    kind: wire.Kind = wire.Kind.SECRET_KEY,
) -> None:
    """Encrypts the exported secret key into a file of mode 0600, atomically."""
    header = wire.Header(kind=kind, parameters=params, seeded=False, key_id=key_id)
    derivation, sealed = seal(secret, wire.pack_header(header), passphrase, cost)
    wire.save(path, header, [derivation, sealed], mode=SECRET_MODE)


def seal(secret: bytes, header: bytes, passphrase: str, cost: ScryptCost = DEFAULT_COST) -> tuple[bytes, bytes]:
    """Encrypts the secret; returns how the key is derived (KEY_DERIVATION_BYTES), and the secret encrypted; the header is authenticated with it."""
    cost.check()
    salt, nonce = os.urandom(16), os.urandom(12)
    derivation = _KEY_DERIVATION.pack(_SCRYPT, cost.log2_n, cost.r, cost.p, 0, bytes(4), salt, nonce)
    return derivation, AESGCM(_derive(passphrase, salt, cost)).encrypt(nonce, secret, header + derivation)


def authentication_code(secret: bytes, message: bytes) -> bytes:
    """Returns HMAC-SHA-256 of a message, under a key that follows from the exported secret key and is used for nothing else."""
    key = hashlib.sha256(b"cloakwork authentication key" + secret).digest()
    return hmac.digest(key, message, "sha256")


def load_secret(
    path: PathLike,
    passphrase: str,
    parameters: ParameterSet | None = None,
    *,
    kind: wire.Kind = wire.Kind.SECRET_KEY,
) -> tuple[wire.Header, bytes]:
    """Loads the header and the exported secret key.

    Raises:
        KeyMismatchError: the passphrase is wrong (or the file was altered by someone who also mended its checksum).
        SerializationError: not a secret key file, damaged, or with scrypt costs beyond the limits.
        Their messages name the file.
    """
    try:
        return _load(path, passphrase, parameters, kind)
    except (KeyMismatchError, SerializationError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from None


def _load(
    path: PathLike, passphrase: str, parameters: ParameterSet | None, kind: wire.Kind
) -> tuple[wire.Header, bytes]:
    with wire.file_source(path) as source:
        header, sections = wire.read(source, kind, seeded=False, parameters=parameters)
    derivation, sealed = sections
    assert isinstance(derivation, bytes) and isinstance(sealed, bytes)
    return header, unseal(derivation, sealed, wire.pack_header(header), passphrase)


def unseal(derivation: bytes, sealed: bytes, header: bytes, passphrase: str) -> bytes:
    """Returns the secret of `seal`. Raises: as load_secret."""
    function, log2_n, r, p, reserved, zeros, salt, nonce = _KEY_DERIVATION.unpack(derivation)
    if function != _SCRYPT or reserved or any(zeros):
        raise SerializationError(
            f"secret key: expected key derivation {_SCRYPT} (scrypt), got {function}; use the release of cloakwork that wrote the file"
        )
    cost = ScryptCost(log2_n, r, p)
    cost.check()
    cipher = AESGCM(_derive(passphrase, salt, cost))
    try:
        return cipher.decrypt(nonce, sealed, header + derivation)
    except InvalidTag:
        raise KeyMismatchError(
            "secret key: the passphrase does not open this file; check the passphrase and the path"
        ) from None


def _derive(passphrase: str, salt: bytes, cost: ScryptCost) -> bytes:
    if not passphrase:
        raise ParameterError("passphrase: expected at least one character, got none; choose a passphrase")
    return Scrypt(salt=salt, length=32, n=1 << cost.log2_n, r=cost.r, p=cost.p).derive(passphrase.encode("utf-8"))
