"""The audit key: what a service re-randomises its answers from, so that who holds it and the model can make an answer again.

docs/decisions/rerandomised-answers.md says why. As sensitive as the models: with it guesses at their weights can be checked against an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.wire.files import SECRET_MODE, atomic_writer

if TYPE_CHECKING:
    from cloakwork.fhe_core.ciphertexts import Ciphertexts

AUDIT_KEY_BYTES: Final = 32
AUDIT_KEY_FILE: Final = "audit.key"  # in a service's data folder

_ID_LABEL: Final = b"cloakwork audit key id 1\0"
_SEED_LABEL: Final = b"cloakwork answer seed 1\0"
_ID_DIGITS: Final = 16


@dataclass(frozen=True)
class Transcript:
    """The inputs of an answer: the program's digest, and the SHA-256 of the evaluation keys and of the request as they travel."""

    program: bytes
    keys: bytes
    request: bytes


@dataclass(frozen=True)
class AuditKey:
    """32 secret bytes."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != AUDIT_KEY_BYTES:
            raise ParameterError(f"audit key: expected {AUDIT_KEY_BYTES} bytes, got {len(self.secret)}")

    @property
    def id(self) -> str:
        """Public: says which audit key an answer was made with, and nothing about its bytes."""
        return hashlib.sha256(_ID_LABEL + self.secret).hexdigest()[:_ID_DIGITS]

    def seed(self, transcript: Transcript, result: Ciphertexts) -> bytes:
        """Returns HMAC-SHA-256(key, label || program || keys || request || SHA-256 of the result's words), for `Session.rerandomise`.

        The words themselves are in it although they follow from the rest: should an evaluation ever give others (another release, a bit that
        flips in memory), the two answers must not share their randomness, or their difference would tell what it hides.
        """
        held = result.to_host().words
        words = hashlib.sha256(np.ascontiguousarray(held, dtype=held.dtype.newbyteorder("<")).data).digest()
        message = _SEED_LABEL + transcript.program + transcript.keys + transcript.request + words
        return hmac.digest(self.secret, message, "sha256")


def load_audit_key(path: Path) -> AuditKey:
    """Loads an audit key from its file.

    Raises:
        ParameterError: there is no such file, or it is none of an audit key.
    """
    try:
        with path.open("rb") as stream:
            secret = stream.read(AUDIT_KEY_BYTES + 1)
    except OSError as error:
        raise ParameterError(
            f"audit key: {path} cannot be read ({(error.strerror or 'no reason given').lower()})"
        ) from None
    if len(secret) != AUDIT_KEY_BYTES:
        more = "more" if len(secret) > AUDIT_KEY_BYTES else str(len(secret))
        raise ParameterError(f"audit key: expected {AUDIT_KEY_BYTES} bytes in {path}, got {more}; it is another file")
    return AuditKey(secret)


def own_audit_key(path: Path) -> AuditKey:
    """Returns the key in a file that is made, for its owner alone, where there is none. For one process at a time."""
    if not path.exists():
        with atomic_writer(path, SECRET_MODE) as stream:
            stream.write(secrets.token_bytes(AUDIT_KEY_BYTES))
    return load_audit_key(path)
