"""Reads what one side sends to the other, whatever it is: `to_bytes` of the object wrote it."""

from __future__ import annotations

from typing import Any, Final, Protocol

from cloakwork.fhe_core import wire
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.levelled import wire as levelled_wire
from cloakwork.fhe_core.levelled.bridges.keys import FromLookupsKeys, ToLookupsKey
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import load_ciphertexts
from cloakwork.fhe_core.threshold.shares import EvaluationShare, PartialDecryption, PublicShare

_CLASSES: Final[dict[wire.Kind, Any]] = {
    wire.Kind.EVALUATION_KEYS: EvaluationKeys,
    wire.Kind.PUBLIC_KEY: PublicKey,
    wire.Kind.PUBLIC_SHARE: PublicShare,
    wire.Kind.EVALUATION_SHARE: EvaluationShare,
    wire.Kind.PARTIAL_DECRYPTION: PartialDecryption,
}
_LEVELLED: Final[dict[int, Any]] = {
    levelled_wire.Kind.EVALUATION_KEYS: LevelledEvaluationKeys,
    levelled_wire.Kind.CIPHERTEXTS: LevelledCiphertexts,
    levelled_wire.Kind.SEEDED_CIPHERTEXTS: SeededLevelledCiphertexts,
    levelled_wire.Kind.FROM_LOOKUPS_KEYS: FromLookupsKeys,
}
_KIND_AT: Final = 6  # byte of a levelled header with the kind


class Levelled(Protocol):
    """Keys or ciphertexts of a levelled key."""

    parameters: LevelledParameters
    key_id: bytes


def from_bytes(data: bytes, *, levelled: Levelled | None = None, max_bytes: int = wire.DEFAULT_MAX_BYTES) -> Any:
    """Read keys, ciphertexts, shares and partial decryptions, of look-ups and levelled, from what `to_bytes` wrote.

    Seeded and switched ciphertexts of look-ups are expanded. Secret keys are files (`load` of their class).

    Args:
        levelled: of a key of `to_lookups_key`, the levelled evaluation keys or ciphertexts that it belongs to.
        max_bytes: that an object may have, expanded too.

    Raises:
        SerializationError: damaged, larger, a secret key, or nothing that is sent.
        KeyMismatchError: a key of `to_lookups_key` that belongs to another levelled key.
    """
    if bytes(data[: len(levelled_wire.MAGIC)]) == levelled_wire.MAGIC:
        kind = data[_KIND_AT] if len(data) > _KIND_AT else 0
        return _LEVELLED.get(kind, LevelledCiphertexts).from_bytes(
            data, max_bytes=max_bytes
        )  # which refuses other kinds
    if levelled is not None:
        return ToLookupsKey.from_bytes(data, levelled.parameters, levelled.key_id, max_bytes=max_bytes)
    kind = wire.peek(data).kind
    if kind in _CLASSES:
        return _CLASSES[kind].from_bytes(data, max_bytes=max_bytes)
    if kind.is_secret:
        raise SerializationError(f"object: expected one that is sent, got a {kind.label}, which stays with its owner")
    return load_ciphertexts(data, max_bytes=max_bytes)
