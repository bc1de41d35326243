"""The layout of objects of the wire format: kinds, header, sections and their sizes. docs/reference/wire_format.md, tables 1 and 2."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.arrays.message_bounds import UNKNOWN, initial_range
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import (
    is_paper_set,
    key_word_bytes,
    key_word_dtype,
    keyswitch_word_bytes,
    parameter_digest,
    word_bytes,
    word_dtype,
)

MAGIC = b"CLKW"
VERSION = 1
EVALUATION_KEYS_VERSION = 3
UNBLOCKED_VERSION = 2  # of evaluation keys, read still: planes of whole sections; 1 had no public key
BLOCK_WORDS = 1 << 16  # of evaluation keys: 64 polynomials of 1024 words, 256 KiB in 4 planes
MAX_RANK = 8
MAX_WEIGHT_NORM = 2.0**32

SEED_BYTES = 32
PURPOSE_BYTES = 32
KEY_ID_BYTES = 16
CHECKSUM_BYTES = 32
KEY_DERIVATION_BYTES = 40
AUTHENTICATION_TAG_BYTES = 16
PARTY_BYTES = 36  # number of the party (LE32), 32 bytes that say what a share belongs to
PARTY_STATE_BYTES = 20  # number of the party (LE32), what its decryptions told (two binary64)

BOUND_BYTES = 6
MAX_WORD_BITS = 32
BOUND_LIMIT = 1 << (4 * BOUND_BYTES - 1)

HEADER_STRUCT = struct.Struct("<4sHBBQ32s32s16sdBB6s")  # magic .. message bound
HEADER_BYTES = HEADER_STRUCT.size  # 112
FLAG_SEEDED = 1
FLAG_PURPOSE = 2
UNKNOWN_KEY = bytes(KEY_ID_BYTES)


class Kind(IntEnum):
    SECRET_KEY = 1
    EVALUATION_KEYS = 2
    PUBLIC_KEY = 3
    CIPHERTEXTS = 4
    PACKED_CIPHERTEXTS = 5
    SWITCHED_CIPHERTEXTS = 6
    PUBLIC_SHARE = 7
    EVALUATION_SHARE = 8
    PARTIAL_DECRYPTION = 9
    PARTY_KEY = 10

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def is_ciphertext(self) -> bool:
        return self in (Kind.CIPHERTEXTS, Kind.PACKED_CIPHERTEXTS, Kind.SWITCHED_CIPHERTEXTS)

    @property
    def is_secret(self) -> bool:
        return self in (Kind.SECRET_KEY, Kind.PARTY_KEY)

    @property
    def is_of_party(self) -> bool:
        """Whether it is of sets of several parties only."""
        return self in (Kind.PUBLIC_SHARE, Kind.EVALUATION_SHARE, Kind.PARTIAL_DECRYPTION, Kind.PARTY_KEY)

    @property
    def is_seeded(self) -> bool:
        """Whether words stand alone where there is no choice, because their masks follow from a seed or are elsewhere."""
        return not self.is_secret

    @property
    def version(self) -> int:
        """Returns the version of the format, as objects of this kind are written."""
        return EVALUATION_KEYS_VERSION if self is Kind.EVALUATION_KEYS else VERSION

    @property
    def readable_versions(self) -> tuple[int, ...]:
        return (UNBLOCKED_VERSION, EVALUATION_KEYS_VERSION) if self is Kind.EVALUATION_KEYS else (VERSION,)


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of an object. `shape`, `encoding`, `weight_norm`, `message_bound` and `purpose` belong to ciphertexts.

    message_bound: least and largest message, of encoding `message` alone; None: the initial range of `message_bounds`.
    word_bits: log2 of the modulus of switched ciphertexts; 0 for others.
    purpose: 32 bytes that say what the ciphertexts are for, as the application chose them; None: it said nothing.
    version: of the format; None: the one that objects of this kind are written in.
    """

    kind: Kind
    parameters: ParameterSet
    seeded: bool
    key_id: bytes | None
    shape: tuple[int, ...] = ()
    encoding: Encoding = Encoding.TORUS
    weight_norm: float = 0.0
    message_bound: tuple[int, int] | None = None
    word_bits: int = 0  # of switched ciphertexts
    purpose: bytes | None = None
    version: int | None = None

    @property
    def layout(self) -> list[Form]:
        """The sections of the object, in order."""
        return section_layout(self.kind, self.parameters, self.seeded, self.shape, self.word_bits, self.version)

    @property
    def byte_count(self) -> int:
        """Counts the bytes of header, dimensions and purpose."""
        return HEADER_BYTES + 8 * len(self.shape) + (0 if self.purpose is None else PURPOSE_BYTES)

    def metadata(self) -> dict[str, Any]:
        """Returns the constructor arguments of the ciphertext classes."""
        return {
            "encoding": self.encoding,
            "weight_norm": self.weight_norm,
            "key_id": self.key_id,
            "message_bound": self.message_bound,
            "purpose": self.purpose,
        }


@dataclass(frozen=True)
class Opaque:
    """Bytes as they are."""

    byte_count: int


@dataclass(frozen=True)
class Planes:
    """Words below `bound`, stored as `plane_count` byte planes: plane j holds byte j of every word. With `block_words`, that many words at a time,
    the last block shorter; without, the section is one block."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.unsignedinteger]
    plane_count: int
    bound: int
    block_words: int = 0

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yields the first word of every block and the one after its last. Block [first, end) begins at byte `first * plane_count`."""
        count = math.prod(self.shape)
        step = self.block_words or count
        for first in range(0, count, step):
            yield first, min(first + step, count)

    @property
    def byte_count(self) -> int:
        return math.prod(self.shape) * self.plane_count


@dataclass(frozen=True)
class BitFields:
    """Words of `bits` bits one after the other, the lowest bit of each first; the last byte is filled with zeros."""

    shape: tuple[int, ...]
    bits: int

    @property
    def byte_count(self) -> int:
        return (math.prod(self.shape) * self.bits + 7) // 8


Form: TypeAlias = Opaque | Planes | BitFields


def section_layout(
    kind: Kind,
    params: ParameterSet,
    seeded: bool,
    shape: tuple[int, ...],
    word_bits: int = 0,
    version: int | None = None,
) -> list[Form]:
    """Returns the sections of an object, in order. Their sizes do not depend on the version."""
    size, dimension = params.polynomial_size, params.glwe_dimension
    bodies = lane_axis(params)
    glwe_count = -(-math.prod(shape) // size)
    block_words = BLOCK_WORDS if kind is Kind.EVALUATION_KEYS and version != UNBLOCKED_VERSION else 0

    def words(*extents: int) -> Planes:
        return Planes(extents, word_dtype(params), word_bytes(params), params.modulus, block_words)

    def bootstrap(steps: int, block_words: int = 0) -> Planes:
        polynomials = () if params.row_bodies == 1 else (params.row_bodies,)
        shape = (steps, params.keys_per_step, params.row_count, *polynomials, size)
        return Planes(shape, key_word_dtype(params), key_word_bytes(params), params.key_modulus, block_words)

    def keyswitch(block_words: int = 0) -> Planes:
        shape, modulus = (
            (params.large_dimension, params.keyswitch_gadget[1], *bodies),
            1 << params.keyswitch_modulus_log2,
        )
        return Planes(shape, np.dtype(np.uint32), keyswitch_word_bytes(params), modulus, block_words)

    seed = Opaque(SEED_BYTES)
    match kind, seeded:
        case Kind.SECRET_KEY, _:
            secret_bytes = params.lane_count * (params.lwe_dimension + params.large_dimension)
            return [Opaque(KEY_DERIVATION_BYTES), Opaque(secret_bytes + AUTHENTICATION_TAG_BYTES)]
        case Kind.EVALUATION_KEYS, _:
            return [
                seed,
                bootstrap(params.key_step_count, block_words),
                keyswitch(block_words),
                seed,
                words(dimension, *bodies, size),
            ]
        case Kind.PUBLIC_SHARE, _:
            return [Opaque(PARTY_BYTES), words(dimension, size)]
        case Kind.EVALUATION_SHARE, _:
            return [Opaque(PARTY_BYTES), bootstrap(params.key_step_count // params.party_count), keyswitch()]
        case Kind.PARTIAL_DECRYPTION, _:
            return [Opaque(PARTY_BYTES), words(*shape)]
        case Kind.PARTY_KEY, _:
            secret_bytes = SEED_BYTES + params.party_dimension + params.large_dimension + PARTY_STATE_BYTES
            return [Opaque(KEY_DERIVATION_BYTES), Opaque(secret_bytes + AUTHENTICATION_TAG_BYTES)]
        case Kind.PUBLIC_KEY, _:
            return [seed, words(dimension, *bodies, size)]
        case Kind.CIPHERTEXTS, True:
            return [seed, words(*shape, *bodies)]
        case Kind.CIPHERTEXTS, False:
            return [words(*shape, params.large_words)]
        case Kind.PACKED_CIPHERTEXTS, True:
            return [seed, words(glwe_count, *bodies, size)]
        case Kind.SWITCHED_CIPHERTEXTS, _:
            return [BitFields((*shape, params.large_words), word_bits)]
        case _:
            return [words(glwe_count, params.component_count, size)]


def object_bytes(
    kind: Kind,
    params: ParameterSet,
    seeded: bool,
    shape: tuple[int, ...] = (),
    word_bits: int = 0,
    *,
    purpose: bool = False,
) -> int:
    """Returns size of the whole object. Args: purpose: whether it says one."""
    sections = section_layout(kind, params, seeded, shape, word_bits)
    start = HEADER_BYTES + 8 * len(shape) + PURPOSE_BYTES * purpose
    return start + sum(section.byte_count for section in sections) + CHECKSUM_BYTES


def pack_header(header: Header) -> bytes:
    """Packs header, dimensions and purpose.

    Raises:
        ParameterError: a publication's set, whose objects nobody would read.
    """
    if is_paper_set(header.parameters):
        raise ParameterError(
            f"object: parameter set '{header.parameters.name}' is there to be measured and has no files"
        )
    params, purpose = header.parameters, header.purpose
    fixed = HEADER_STRUCT.pack(
        MAGIC,
        header.version or header.kind.version,
        header.kind,
        FLAG_SEEDED * header.seeded + FLAG_PURPOSE * (purpose is not None),
        object_bytes(header.kind, params, header.seeded, header.shape, header.word_bits, purpose=purpose is not None),
        params.name.encode("ascii"),
        parameter_digest(params),
        header.key_id or UNKNOWN_KEY,
        header.weight_norm,
        header.encoding,
        len(header.shape),
        _pack_bound(header),
    )
    return fixed + struct.pack(f"<{len(header.shape)}Q", *header.shape) + (purpose or b"")


def _pack_bound(header: Header) -> bytes:
    """Returns least and largest + 1 as signed integers of 3 bytes; zeros for the initial range, and both ends of 3 bytes for what is beyond them. Of
    switched ciphertexts the bits of a word, and zeros."""
    if header.kind is Kind.SWITCHED_CIPHERTEXTS:
        return bytes([header.word_bits]) + bytes(BOUND_BYTES - 1)
    bound = header.message_bound
    if bound is None or bound == initial_range(header.parameters, header.weight_norm):
        return bytes(BOUND_BYTES)
    least, end = bound[0], bound[1] + 1
    if not (-BOUND_LIMIT < least and end < BOUND_LIMIT - 1):
        least, end = -BOUND_LIMIT, BOUND_LIMIT - 1
    half = BOUND_BYTES // 2
    return least.to_bytes(half, "little", signed=True) + end.to_bytes(half, "little", signed=True)


def unpack_bound(field: bytes, encoding: Encoding, params: ParameterSet, weight_norm: float) -> tuple[int, int] | None:
    """Returns the field of a ciphertext's header; None for zeros. ValueError when it is not what `pack_header` writes."""
    if not any(field):
        return None
    half = BOUND_BYTES // 2
    least, end = (int.from_bytes(part, "little", signed=True) for part in (field[:half], field[half:]))
    if (least, end) == (-BOUND_LIMIT, BOUND_LIMIT - 1):
        least, end = -UNKNOWN, UNKNOWN + 1
    elif not (-BOUND_LIMIT < least < end < BOUND_LIMIT - 1):
        raise ValueError("not a range")
    if encoding is not Encoding.MESSAGE or (least, end - 1) == initial_range(params, weight_norm):
        raise ValueError("a range that is not written")
    return least, end - 1


def unpack_word_bits(field: bytes) -> int:
    """Returns the same field of switched ciphertexts. ValueError when it is not what `pack_header` writes."""
    if not 1 <= field[0] <= MAX_WORD_BITS or any(field[1:]):
        raise ValueError("not a number of bits")
    return field[0]
