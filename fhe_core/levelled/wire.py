"""Objects of levelled arithmetic as bytes: docs/reference/wire_format.md, "Levelled arithmetic".

A header, sections of an order fixed by its kind, and a SHA-256 of all that. Every size follows from the header and the set, and is compared with
the size of the object and with `max_bytes` before anything is allocated. Words have 28 bits, two of them seven bytes.
"""

from __future__ import annotations

import hashlib
import io
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import BinaryIO, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.levelled.noise import MOST_DEGREE, Noise
from cloakwork.fhe_core.levelled.parameters import SETS, LevelledParameters
from cloakwork.fhe_core.levelled.rounded import MOST_BITS, digits, from_digits, middle
from cloakwork.fhe_core.wire import CHECKSUM_BYTES, DEFAULT_MAX_BYTES, KEY_ID_BYTES, SEED_BYTES

MAGIC: Final = b"CLKL"
VERSION: Final = 1
MOST_ITEMS: Final = 1 << 20  # ciphertexts of an object
MOST_KEYS: Final = 1 << 12
LOOKUPS_DIGEST_BYTES: Final = 32
_HEADER: Final = struct.Struct(
    "<4sHBB32s16sIIIBBHd"
)  # .., set, key id, plaintext modulus, items, scale, level, dropped bits, degree, bound
HEADER_BYTES: Final = _HEADER.size

Words: TypeAlias = NDArray[np.uint32]


class Kind(IntEnum):
    SECRET_KEY = 1
    EVALUATION_KEYS = 2
    CIPHERTEXTS = 3
    SEEDED_CIPHERTEXTS = 4
    FROM_LOOKUPS_KEYS = 5

    @property
    def label(self) -> str:
        return f"levelled {self.name.lower().replace('_', ' ')}"


_KEYS: Final = (Kind.EVALUATION_KEYS, Kind.FROM_LOOKUPS_KEYS)


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of an object. `level`, `scale`, `dropped_bits` and `noise` are of ciphertexts; `items` counts ciphertexts or keys, 0 of a secret
    key."""

    kind: Kind
    parameters: LevelledParameters
    key_id: bytes
    items: int = 0
    level: int = 0
    scale: int = 0
    dropped_bits: int = 0
    noise: Noise | None = None  # of seeded ones it is that of fresh ones

    @property
    def sections(self) -> list[int]:
        """Bytes of each, without those of a secret key, which the key derivation decides."""
        size, row = self.parameters.polynomial_size, self.parameters.set
        if self.kind in _KEYS:
            digits = -(-row.levels // row.digit_primes)
            before = [LOOKUPS_DIGEST_BYTES + KEY_ID_BYTES] if self.kind is Kind.FROM_LOOKUPS_KEYS else []
            return before + [4 + SEED_BYTES, packed_bytes(digits * len(row.primes) * size)] * self.items
        if self.kind is Kind.CIPHERTEXTS:
            assert self.noise is not None
            return [8 * len(self.noise.variances), self._words_bytes(2)]
        if self.kind is Kind.SEEDED_CIPHERTEXTS:
            return [SEED_BYTES, self._words_bytes(1)]
        return []

    def _words_bytes(self, parts: int) -> int:
        count = self.items * parts * self.parameters.polynomial_size
        return packed_bytes(count * self.level) - count // 8 * self.dropped_bits

    @property
    def byte_count(self) -> int:
        return HEADER_BYTES + sum(self.sections) + CHECKSUM_BYTES

    def pack(self) -> bytes:
        noise = self.noise or Noise(0.0, (0.0,))
        name = self.parameters.set.digest
        return _HEADER.pack(
            MAGIC, VERSION, self.kind, 0, name, self.key_id, self.parameters.plaintext_modulus, self.items, self.scale, self.level,
            self.dropped_bits,
            noise.degree, noise.bound,
        )  # fmt: skip


def packed_bytes(count: int) -> int:
    """Counts the bytes of this many words; N is even, and so is their number."""
    return count // 2 * 7


def pack_words(words: Words) -> bytes:
    pairs = words.reshape(-1, 2).astype(np.uint64)
    together = pairs[:, 0] | pairs[:, 1] << np.uint64(28)
    return together.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :7].tobytes()


def unpack_words(data: bytes, shape: Sequence[int]) -> Words:
    columns = np.zeros((len(data) // 7, 8), dtype=np.uint8)
    columns[:, :7] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 7)
    together = columns.reshape(-1).view("<u8")
    words = np.empty((len(together), 2), dtype=np.uint32)
    words[:, 0] = together & np.uint64((1 << 28) - 1)
    words[:, 1] = together >> np.uint64(28)
    return words.reshape(shape)


def pack_rounded(parameters: LevelledParameters, words: Words, dropped_bits: int) -> bytes:
    """Packs words [.., level, N] without the last bits of every coefficient (`rounded.py`): first digits, then all others."""
    if dropped_bits == 0:
        return pack_words(words)
    mixed_radix = digits(parameters, words)
    first = np.ascontiguousarray(mixed_radix[..., 0, :] >> np.uint32(dropped_bits)).astype("<u4").reshape(-1, 1)
    bits = np.unpackbits(first.view(np.uint8), axis=1, bitorder="little")[:, : 28 - dropped_bits]
    return np.packbits(bits, bitorder="little").tobytes() + pack_words(mixed_radix[..., 1:, :])


def unpack_rounded(header: Header, data: bytes, shape: Sequence[int]) -> Words:
    """Unpacks words below their primes. Raises: SerializationError: some are not."""
    kept, primes = 28 - header.dropped_bits, header.parameters.set.primes[: header.level]
    if header.dropped_bits == 0:
        words = unpack_words(data, shape)
        check_below(words, primes, header.kind)
        return words
    count = math.prod(shape) // header.level
    packed = np.frombuffer(data, dtype=np.uint8, count=count // 8 * kept)
    bits = np.zeros((count, 32), dtype=np.uint8)
    bits[:, :kept] = np.unpackbits(packed, bitorder="little").reshape(count, kept)
    first = np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)
    mixed_radix = np.empty(shape, dtype=np.uint32)
    mixed_radix[..., 0, :] = (first << np.uint32(header.dropped_bits)).reshape(mixed_radix[..., 0, :].shape)
    mixed_radix[..., 1:, :] = unpack_words(data[len(packed) :], mixed_radix[..., 1:, :].shape)
    check_below(mixed_radix, primes, header.kind)
    mixed_radix[..., 0, :] = middle(
        header.parameters, mixed_radix[..., 0, :] >> np.uint32(header.dropped_bits), header.dropped_bits
    )
    return from_digits(header.parameters, mixed_radix)


def pack_variances(noise: Noise) -> bytes:
    return struct.pack(f"<{len(noise.variances)}d", *noise.variances)


def dump(header: Header, sections: Sequence[bytes]) -> bytes:
    assert header.kind is Kind.SECRET_KEY or [len(section) for section in sections] == header.sections
    body = b"".join([header.pack(), *sections])
    return body + hashlib.sha256(body).digest()


def read(
    data: bytes | bytearray | memoryview,
    kind: Kind,
    parameters: LevelledParameters | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> tuple[Header, list[bytes]]:
    """Reads one object of this kind, which `data` is in full.

    Raises:
        SerializationError: truncated, extended, altered, of another kind, or larger than `max_bytes`.
        KeyMismatchError: of another set or plaintext modulus than `parameters`, or of another version of its set.
    """
    view = memoryview(data).cast("B")
    if len(view) > max_bytes:
        raise SerializationError(
            f"{kind.label}: expected at most {max_bytes} bytes, got {len(view)}; pass a larger max_bytes if that is intended"
        )
    header = _header(view, kind)
    if parameters is not None and header.parameters != parameters:
        raise KeyMismatchError(f"{kind.label}: expected set {parameters.label}, got {header.parameters.label}")
    sizes = header.sections
    if kind is Kind.SECRET_KEY:
        sizes = [len(view) - HEADER_BYTES - CHECKSUM_BYTES]
    expected = HEADER_BYTES + sum(sizes) + CHECKSUM_BYTES
    if len(view) != expected or (sizes and min(sizes) < 0):
        raise SerializationError(
            f"{kind.label}: expected {expected} bytes after its header, got {len(view)}; it was cut off or extended"
        )
    if hashlib.sha256(view[:-CHECKSUM_BYTES]).digest() != bytes(view[-CHECKSUM_BYTES:]):
        raise SerializationError(
            f"{kind.label}: the checksum does not match; the bytes were altered or damaged, transfer the object again"
        )
    sections, place = [], HEADER_BYTES
    for size in sizes:
        sections.append(bytes(view[place : place + size]))
        place += size
    return header, sections


def peek(start: bytes, size: int, kind: Kind) -> Header:
    """Returns the header of an object of `size` bytes, of evaluation keys or seeded ciphertexts, from its first HEADER_BYTES.

    Raises:
        SerializationError, KeyMismatchError: as `read`.
    """
    header = _header(memoryview(start), kind)
    if size != header.byte_count:
        raise SerializationError(
            f"{kind.label}: expected {header.byte_count} bytes after its header, got {size}; it was cut off or extended"
        )
    return header


def header_of(start: bytes | memoryview, kind: Kind) -> Header:
    """Returns the header of an object that begins so, whatever its size. Raises: as `read`."""
    return _header(memoryview(start), kind)


def check_switch_keys(stream: BinaryIO, header: Header, numbers: Sequence[int]) -> None:
    """Checks that the evaluation keys where the stream stands have these numbers (of automorphisms; 0: for products), in this order, and words
    below their primes. One key in memory at a time.

    Raises:
        SerializationError.
    """
    size, primes = header.parameters.polynomial_size, header.parameters.set.primes
    stream.seek(HEADER_BYTES, io.SEEK_CUR)
    sections = iter(header.sections)
    for g, named, packed in zip(numbers, sections, sections, strict=True):
        number = int.from_bytes(stream.read(named)[:4], "little")
        if number != g:
            raise SerializationError(
                f"{header.kind.label}: expected the key for automorphism {g} (0: for products), got {number}"
            )
        check_below(unpack_words(stream.read(packed), (-1, len(primes), size)), primes, header.kind)


def _header(view: memoryview, kind: Kind) -> Header:
    if len(view) < HEADER_BYTES or bytes(view[:4]) != MAGIC:
        raise SerializationError(
            f"{kind.label}: expected an object of levelled arithmetic, got {len(view)} other bytes"
        )
    fields = _HEADER.unpack(view[:HEADER_BYTES])
    _, version, kind_number, zero, name, key_id, modulus, items, scale, level, dropped_bits, degree, bound = fields
    if version != VERSION or zero or kind_number not in list(Kind):
        raise SerializationError(
            f"{kind.label}: expected version {VERSION} of a known kind, got version {version}, kind {kind_number}"
        )
    if kind_number != kind:
        advice = "; a secret key must stay with its owner: delete this copy" if kind_number == Kind.SECRET_KEY else ""
        raise SerializationError(f"object: expected {kind.label}, got {Kind(kind_number).label}{advice}")
    rows = [row for row in SETS.values() if row.digest == name]
    if not rows:
        raise KeyMismatchError(f"{kind.label}: of a set that this release does not have, or has otherwise")
    try:
        parameters = LevelledParameters(rows[0], modulus)
    except ParameterError as error:
        raise SerializationError(f"{kind.label}: {error}") from None
    header = Header(kind=kind, parameters=parameters, key_id=key_id)
    if kind is Kind.SECRET_KEY:
        wrong = items or scale or level or dropped_bits or degree or bound
    elif kind in _KEYS:
        wrong = items > MOST_KEYS or scale or level or dropped_bits or degree or bound
        header = replace(header, items=items)
    else:
        wrong = not (1 <= items <= MOST_ITEMS and 1 <= level <= parameters.levels and 0 <= dropped_bits <= MOST_BITS)
        header = replace(header, items=items, level=level, dropped_bits=dropped_bits)
        if kind is Kind.SEEDED_CIPHERTEXTS:
            wrong = wrong or scale or degree or bound
        else:
            variances = _variances(view, degree)
            finite = all(math.isfinite(each) and each >= 0 for each in (bound, *variances))
            wrong = wrong or not (finite and variances and 0 < scale < modulus and math.gcd(scale, modulus) == 1)
            header = replace(header, scale=scale, noise=Noise(bound, variances))
    if wrong:
        raise SerializationError(
            f"{kind.label}: a field of the header is out of its range; the object is damaged or hostile"
        )
    return header


def _variances(view: memoryview, degree: int) -> tuple[float, ...]:
    """Reads the first section of ciphertexts; none where there is none."""
    end = HEADER_BYTES + 8 * (degree + 1)
    if degree > MOST_DEGREE or len(view) < end:
        return ()
    return struct.unpack(f"<{degree + 1}d", view[HEADER_BYTES:end])


def check_below(words: Words, primes: Sequence[int], kind: Kind) -> None:
    """Args: words: [.., primes, N]."""
    if (words >= np.array(primes, dtype=np.uint32)[:, None]).any():
        raise SerializationError(f"{kind.label}: expected every word below its prime, found one that is not")
