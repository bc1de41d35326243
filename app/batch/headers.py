"""Headers of objects: how many samples it holds, and whether it may be scored at all."""

from __future__ import annotations

import hashlib

from cloakwork.fhe_core.ciphertexts import check_same_key
from cloakwork.fhe_core.errors import SerializationError, ShapeError
from cloakwork.fhe_core.wire import (
    CHECKSUM_BYTES,
    DEFAULT_MAX_BYTES,
    PREFIX_BYTES,
    Kind,
    check_size,
    peek,
    wrong_kind,
)
from cloakwork.models.program import Program
from cloakwork.models.program.purpose import check_purpose

__all__ = ["PREFIX_BYTES", "check_result", "input_samples", "result_samples"]


def input_samples(start: bytes, byte_count: int, program: Program, key_id: bytes | None) -> int:
    """Returns samples of an input of `byte_count` bytes that begins with `start`.

    Raises:
        FheError: no seeded packed ciphertexts, too large, or of another key or model.
    """
    check_size(byte_count, DEFAULT_MAX_BYTES)
    header = peek(start, byte_count)
    if header.kind is not Kind.PACKED_CIPHERTEXTS:
        raise wrong_kind(header.kind, Kind.PACKED_CIPHERTEXTS)
    if not header.seeded:
        raise SerializationError("input: expected seeded ciphertexts, got full ones; encrypt without --full")
    check_same_key(program.parameters, key_id, header.parameters, header.key_id, "input")
    check_purpose(header.purpose, program.digest, "input", "encrypt with the model's client specification")
    size = program.graph.input.size
    if len(header.shape) != 2 or header.shape[1] != size:
        raise ShapeError(f"input: expected shape ['samples', {size}], got {list(header.shape)}")
    return header.shape[0]


def result_samples(result: bytes) -> int:
    """Returns the samples of a result whose bytes are known to be good."""
    return peek(result).shape[0]


def check_result(result: bytes, program: Program, key_id: bytes | None, samples: int) -> None:
    """Checks that an object is a whole result of this program and key for this number of samples.

    Raises:
        FheError: it is not.
    """
    header = peek(result)
    if header.kind not in (Kind.CIPHERTEXTS, Kind.SWITCHED_CIPHERTEXTS):
        raise wrong_kind(header.kind, Kind.CIPHERTEXTS)
    check_same_key(program.parameters, key_id, header.parameters, header.key_id, "result")
    check_purpose(header.purpose, program.digest, "result", "score it again")
    if header.shape[:1] != (samples,):
        raise ShapeError(f"result: expected {samples} samples, got shape {list(header.shape)}")
    if hashlib.sha256(memoryview(result)[:-CHECKSUM_BYTES]).digest() != result[-CHECKSUM_BYTES:]:
        raise SerializationError("result: the checksum does not match; it is damaged")
