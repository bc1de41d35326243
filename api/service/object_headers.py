"""The first bytes of uploaded objects, looked at before the rest is taken."""

from __future__ import annotations

from cloakwork.api.errors import MalformedError, SecretKeyError
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.levelled import wire as levelled
from cloakwork.fhe_core.wire import PREFIX_BYTES, Header, Kind, peek
from cloakwork.fhe_core.wire.layout import MAGIC

__all__ = ["PREFIX_BYTES", "is_levelled", "read_header", "read_levelled_header", "refuse_secret_key"]

_KIND_OFFSET = 6
_SECRET_KINDS = {
    MAGIC: frozenset(kind for kind in Kind if kind.is_secret),
    levelled.MAGIC: frozenset([levelled.Kind.SECRET_KEY]),
}
assert levelled.HEADER_BYTES <= PREFIX_BYTES


def refuse_secret_key(start: bytes) -> None:
    """Refuses a secret key as soon as the byte that tells is there."""
    if len(start) > _KIND_OFFSET and start[_KIND_OFFSET] in _SECRET_KINDS.get(start[: len(MAGIC)], ()):
        raise SecretKeyError(
            "this is a secret key: it must stay with its owner and nothing of it was kept; send evaluation keys or ciphertexts"
        )


def read_header(start: bytes, size: int, kind: Kind) -> Header:
    """Returns the header of an object of `size` bytes that begins with `start`, of this kind and seeded.

    Raises:
        SecretKeyError, MalformedError, KeyMismatchError.
    """
    refuse_secret_key(start)
    try:
        header = peek(start[:PREFIX_BYTES] if size > PREFIX_BYTES else start, size)
    except (SerializationError, KeyMismatchError):
        raise
    except FheError as error:
        raise MalformedError(str(error)) from None
    if header.kind is not kind or not header.seeded:
        form = "seeded" if header.seeded else "full"
        raise MalformedError(f"expected seeded {kind.label}, got {form} {header.kind.label}")
    return header


def is_levelled(start: bytes) -> bool:
    """Whether an object that begins so is one of levelled arithmetic."""
    return start[: len(levelled.MAGIC)] == levelled.MAGIC


def read_levelled_header(start: bytes, size: int, kind: levelled.Kind) -> levelled.Header:
    """Returns the same of an object of levelled arithmetic: evaluation keys or seeded ciphertexts.

    Raises:
        SecretKeyError, SerializationError, KeyMismatchError.
    """
    refuse_secret_key(start)
    return levelled.peek(start[: levelled.HEADER_BYTES], size, kind)
