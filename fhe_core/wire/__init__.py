"""The wire format: keys and ciphertexts as bytes. docs/reference/wire_format.md says it byte for byte.

An object is a header, sections in an order fixed by its kind, and a SHA-256 of all that. The size of every section follows from the
header and the parameter set; it is compared with the size of the object and with `max_bytes` before anything is allocated.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.fhe_core.wire.files import PUBLIC_MODE, PathLike, atomic_writer
from cloakwork.fhe_core.wire.layout import (
    CHECKSUM_BYTES,
    FLAG_PURPOSE,
    FLAG_SEEDED,
    HEADER_BYTES,
    HEADER_STRUCT,
    KEY_ID_BYTES,
    MAGIC,
    MAX_RANK,
    MAX_WEIGHT_NORM,
    PURPOSE_BYTES,
    SEED_BYTES,
    UNKNOWN_KEY,
    BitFields,
    Form,
    Header,
    Kind,
    Opaque,
    Planes,
    object_bytes,
    pack_header,
    section_layout,
    unpack_bound,
    unpack_word_bits,
)
from cloakwork.fhe_core.words import Words

__all__ = [
    "CHECKSUM_BYTES",
    "DEFAULT_MAX_BYTES",
    "HEADER_BYTES",
    "KEY_ID_BYTES",
    "PREFIX_BYTES",
    "PURPOSE_BYTES",
    "SEED_BYTES",
    "Buffer",
    "BytesSource",
    "Header",
    "Kind",
    "Opaque",
    "Planes",
    "Section",
    "bytes_source",
    "check_size",
    "check_words",
    "dump",
    "file_source",
    "object_bytes",
    "pack_header",
    "peek",
    "read",
    "save",
    "section_layout",
    "write",
    "wrong_kind",
]

Section: TypeAlias = bytes | Words
Buffer: TypeAlias = bytes | bytearray | memoryview

DEFAULT_MAX_BYTES = 1 << 30
PREFIX_BYTES = HEADER_BYTES + 8 * MAX_RANK + PURPOSE_BYTES  # what `peek` reads at most
_CHUNK_WORDS = 1 << 20
_BIT_FIELDS = 1 << 16  # words at a time: what is made of them stays in a cache
_CHECKED_WORDS = 1 << 17  # of a plane at a time: at most 1.8 MB for 7 planes and the words made of them


# --- writing ---------------------------------------------------------------------------------------------------------------------


def write(stream: BinaryIO, header: Header, sections: list[Section]) -> None:
    """Writes the object a block's plane at a time, without a second copy of it."""
    checksum = hashlib.sha256()

    def emit(data: bytes) -> None:
        checksum.update(data)
        stream.write(data)

    emit(pack_header(header))
    for section, form in zip(sections, header.layout, strict=True):
        if isinstance(form, Opaque):
            assert isinstance(section, bytes) and len(section) == form.byte_count
            emit(section)
        elif isinstance(form, BitFields):
            assert isinstance(section, np.ndarray)
            _emit_bits(section, form, emit)
        else:
            assert isinstance(section, np.ndarray)
            _emit_planes(section, form, emit)
    stream.write(checksum.digest())


def _emit_planes(words: Words, form: Planes, emit: Callable[[bytes], None]) -> None:
    assert words.shape == form.shape and words.dtype == form.dtype
    width = form.dtype.itemsize
    # numpy gives `<` types as views on little-endian machines and as copies elsewhere.
    columns = np.ascontiguousarray(words).astype(f"<u{width}", copy=False).view(np.uint8).reshape(-1, width)
    for first, end in form.blocks():
        for plane in range(form.plane_count):
            for start in range(first, end, _CHUNK_WORDS):
                emit(columns[start : min(start + _CHUNK_WORDS, end), plane].tobytes())


def _emit_bits(words: Words, form: BitFields, emit: Callable[[bytes], None]) -> None:
    """A multiple of 8 words at a time, so that parts end with whole bytes."""
    assert words.shape == form.shape and words.dtype == np.uint32
    flat = words.reshape(-1)
    for start in range(0, len(flat), _BIT_FIELDS):
        part = flat[start : start + _BIT_FIELDS]
        emit(_engine.pack_words(part, form.bits))


def _words_of(data: bytes, bits: int, count: int) -> NDArray[np.uint64]:
    """Returns the first `count` words of `bits` bits, eight of which are as many bytes, taken apart in 64-bit limbs."""
    fields = np.zeros((-(-count // 8), bits), dtype=np.uint8)
    fields.reshape(-1)[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    padded = np.zeros((len(fields), 8 * -(-bits // 8)), dtype=np.uint8)
    padded[:, :bits] = fields
    limbs, words = padded.view("<u8"), np.empty((len(fields), 8), dtype=np.uint64)
    for number in range(8):
        limb, shift = divmod(number * bits, 64)
        words[:, number] = limbs[:, limb] >> np.uint64(shift)
        if shift + bits > 64:
            words[:, number] |= limbs[:, limb + 1] << np.uint64(64 - shift)
    return words.reshape(-1)[:count] & np.uint64((1 << bits) - 1)


def dump(header: Header, sections: list[Section]) -> bytes:
    stream = io.BytesIO()
    write(stream, header, sections)
    return stream.getvalue()


def save(path: PathLike, header: Header, sections: list[Section], mode: int = PUBLIC_MODE) -> None:
    """Writes a file that appears under its name when it is complete."""
    with atomic_writer(path, mode) as stream:
        write(stream, header, sections)


# --- reading ---------------------------------------------------------------------------------------------------------------------


class BytesSource:
    """A stream of known size that is hashed while it is read."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self.size = size
        self.checksum = hashlib.sha256()

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) != count:
            raise _truncated(count, len(data))
        self.checksum.update(data)
        return data

    def read_checksum(self) -> bytes:
        data = self._stream.read(CHECKSUM_BYTES)
        if len(data) != CHECKSUM_BYTES:
            raise _truncated(CHECKSUM_BYTES, len(data))
        return data


def bytes_source(data: Buffer) -> BytesSource:
    view = memoryview(data)
    return BytesSource(io.BytesIO(data), view.nbytes)


@contextlib.contextmanager
def file_source(path: PathLike) -> Iterator[BytesSource]:
    file = Path(path)
    with file.open("rb") as stream:
        yield BytesSource(stream, file.stat().st_size)


def read(
    source: BytesSource,
    kind: Kind,
    *,
    seeded: bool,
    parameters: ParameterSet | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> tuple[Header, list[Section]]:
    """Reads one object of this kind and form that fills the source exactly.

    Raises:
        SerializationError: truncated, extended, altered, of another kind, larger than max_bytes, or holding words out of range.
        KeyMismatchError: of another parameter set than `parameters`, or of another version of its set.
    """
    header = _read_header(source, kind, max_bytes)
    if header.seeded != seeded:
        forms = ("full", "seeded")
        raise SerializationError(
            f"{kind.label}: expected the {forms[seeded]} form, got the {forms[header.seeded]} one; "
            "use the class for that form, or load_ciphertexts"
        )
    if parameters is not None and header.parameters != parameters:
        raise KeyMismatchError(
            f"{kind.label}: expected parameter set '{parameters.name}', got '{header.parameters.name}'; "
            "use objects of one parameter set together"
        )
    layout = header.layout
    sections = [_read_section(source, form) for form in layout]
    expected = source.checksum.digest()
    if source.read_checksum() != expected:
        raise SerializationError(
            f"{kind.label}: the checksum does not match; the bytes were altered or damaged, transfer the object again"
        )
    for section, form in zip(sections, layout, strict=True):
        _check_range(kind, section, form)
    return header, sections


def peek(data: Buffer, size: int | None = None) -> Header:
    """Reads the header alone: what an object claims to be. Its sizes fit; its sections and checksum have not been looked at.

    Args:
        size: bytes of the whole object, when `data` is only its beginning (at least `PREFIX_BYTES`, or all of it).
    """
    source = bytes_source(data)
    source.size = source.size if size is None else size
    return _read_header(source, None, source.size)


def check_words(stream: BinaryIO, header: Header) -> None:
    """Checks that every word of an object is below its modulus, as `read` checks it, in memory of a few megabytes whatever the object's size.

    For who keeps an object without reading it into memory, an upload for instance; says nothing about the checksum.

    Args:
        stream: of the whole object, seekable; where it stands does not matter.
        header: of that object, from `peek`.

    Raises:
        SerializationError: a word is not below its modulus, or the object ends early.
    """
    start = header.byte_count
    for form in header.layout:
        if isinstance(form, Planes):
            _check_planes(stream, start, header.kind, form)
        elif isinstance(form, BitFields):
            stream.seek(start + form.byte_count - 1)
            _check_padding(stream.read(1), form)
        start += form.byte_count


def check_size(byte_count: int, max_bytes: int) -> None:
    if byte_count > max_bytes:
        raise SerializationError(
            f"object: expected at most {max_bytes} bytes, got {byte_count}; pass a larger max_bytes if that is intended"
        )


def wrong_kind(actual_kind: Kind, expected: Kind) -> SerializationError:
    advice = "pass the object to the class of its kind"
    if actual_kind.is_secret:
        advice = (
            "a secret key must stay with its owner: delete this copy, and send evaluation keys or ciphertexts instead"
        )
    return SerializationError(f"object: expected {expected.label}, got {actual_kind.label}; {advice}")


def _read_section(source: BytesSource, form: Form) -> Section:
    if isinstance(form, Opaque):
        return source.read(form.byte_count)
    if isinstance(form, BitFields):
        return _read_bits(source, form)
    width = form.dtype.itemsize
    words = np.zeros(form.shape, dtype=f"<u{width}")
    columns = words.reshape(-1).view(np.uint8).reshape(-1, width)
    for first, end in form.blocks():
        for plane in range(form.plane_count):
            for start in range(first, end, _CHUNK_WORDS):
                stop = min(start + _CHUNK_WORDS, end)
                columns[start:stop, plane] = np.frombuffer(source.read(stop - start), dtype=np.uint8)
    return words.astype(form.dtype, copy=False)


def _read_bits(source: BytesSource, form: BitFields) -> Words:
    count = math.prod(form.shape)
    words = np.empty(count, dtype=np.uint32)
    for start in range(0, count, _BIT_FIELDS):
        part = min(_BIT_FIELDS, count - start)
        data = source.read((part * form.bits + 7) // 8)
        if start + part == count:
            _check_padding(data[-1:], form)
        words[start : start + part] = _words_of(data, form.bits, part)
    return words.reshape(form.shape)


def _check_padding(last: bytes, form: BitFields) -> None:
    """Checks that nothing follows the last word in its byte: bytes are canonical."""
    used = math.prod(form.shape) * form.bits % 8
    if len(last) == 1 and used and last[0] >> used:
        raise SerializationError(
            "switched ciphertexts: expected zeros after the last word; the object was not made by this format's rules"
        )


def _check_range(kind: Kind, section: Section, form: Form) -> None:
    if isinstance(form, Planes):
        assert isinstance(section, np.ndarray)
        if int(section.max()) >= form.bound:
            raise _word_too_large(kind, form)


def _check_planes(stream: BinaryIO, start: int, kind: Kind, form: Planes) -> None:
    """The planes of a block side by side, some words at a time."""
    width = form.dtype.itemsize
    for block, end in form.blocks():
        for first in range(block, end, _CHECKED_WORDS):
            part = min(_CHECKED_WORDS, end - first)
            words = np.zeros(part, dtype=f"<u{width}")
            columns = words.view(np.uint8).reshape(-1, width)
            for plane in range(form.plane_count):
                stream.seek(start + block * form.plane_count + plane * (end - block) + first - block)
                data = stream.read(part)
                if len(data) != part:
                    raise _truncated(part, len(data))
                columns[:, plane] = np.frombuffer(data, dtype=np.uint8)
            if int(words.max()) >= form.bound:
                raise _word_too_large(kind, form)


def _word_too_large(kind: Kind, form: Planes) -> SerializationError:
    return SerializationError(
        f"{kind.label}: expected every word below {form.bound}, found one above; the object was not made by this format's rules"
    )


def _read_header(source: BytesSource, kind: Kind | None, max_bytes: int) -> Header:
    """Returns header, dimensions and purpose, every field checked, the size of the object verified against all it claims."""
    if source.size < HEADER_BYTES + CHECKSUM_BYTES:
        raise _truncated(HEADER_BYTES + CHECKSUM_BYTES, source.size)
    fields = HEADER_STRUCT.unpack(source.read(HEADER_BYTES))
    magic, version, kind_byte, flags, total, name, digest, key_id, weight_norm, encoding, rank, bound = fields
    actual_kind = _check_identity(magic, version, kind_byte, flags)
    if kind is not None and actual_kind is not kind:
        raise wrong_kind(actual_kind, kind)
    if total != source.size:
        trouble = "truncated" if source.size < total else "extended"
        raise SerializationError(
            f"{actual_kind.label}: expected {total} bytes, got {source.size}; the object is {trouble}, transfer it again"
        )
    check_size(total, max_bytes)
    params = _known_parameters(name, digest)
    seeded, has_purpose = bool(flags & FLAG_SEEDED), bool(flags & FLAG_PURPOSE)
    if has_purpose and not actual_kind.is_ciphertext:
        raise _foreign_fields(actual_kind)
    word_bits = _word_bits(actual_kind, seeded, bound)
    bound = bytes(len(bound)) if word_bits else bound
    message_bound = _check_form(actual_kind, seeded, rank, weight_norm, encoding, bound, params)
    start = HEADER_BYTES + 8 * rank + PURPOSE_BYTES * has_purpose
    shape = struct.unpack(f"<{rank}Q", source.read(8 * rank)) if total >= start + CHECKSUM_BYTES else (0,)
    if 0 in shape:
        raise SerializationError(
            f"{actual_kind.label}: expected dimensions of at least 1; a batch of zero ciphertexts is not an object"
        )
    expected = object_bytes(actual_kind, params, seeded, shape, word_bits, purpose=has_purpose)
    if expected != total:
        raise SerializationError(
            f"{actual_kind.label}: the counts of the header ask for {expected} bytes, the object has {total}; it is damaged or not valid"
        )
    return Header(
        kind=actual_kind,
        parameters=params,
        seeded=seeded,
        key_id=None if key_id == UNKNOWN_KEY else key_id,
        shape=shape,
        encoding=Encoding(encoding),
        weight_norm=weight_norm,
        message_bound=message_bound,
        word_bits=word_bits,
        purpose=source.read(PURPOSE_BYTES) if has_purpose else None,
        version=None if version == actual_kind.version else version,
    )


def _word_bits(kind: Kind, seeded: bool, field: bytes) -> int:
    """Returns the word bits of switched ciphertexts; 0 for other kinds."""
    if kind is not Kind.SWITCHED_CIPHERTEXTS:
        return 0
    try:
        bits = unpack_word_bits(field)
    except ValueError:
        raise SerializationError(
            f"{kind.label}: expected words of 1 to 32 bits and zeros after that; the object is damaged"
        ) from None
    if seeded:
        raise SerializationError(f"{kind.label}: expected the full form, there is no other; the object is damaged")
    return bits


def _check_identity(magic: bytes, version: int, kind_byte: int, flags: int) -> Kind:
    if magic != MAGIC:
        raise SerializationError("object: expected the magic bytes 'CLKW' at its start; this is another kind of file")
    try:
        kind = Kind(kind_byte)
    except ValueError:
        raise SerializationError(
            f"object: expected a kind from {min(Kind)} to {max(Kind)}, got {kind_byte}; the object is damaged or from a newer release"
        ) from None
    if version not in kind.readable_versions:
        raise _wrong_version(kind, version)
    if flags & ~(FLAG_SEEDED | FLAG_PURPOSE):
        raise SerializationError(
            f"{kind.label}: expected flags from 0 to 3, got {flags}; the object is damaged or from a newer release"
        )
    return kind


def _wrong_version(kind: Kind, version: int) -> SerializationError:
    advice = "use the release of cloakwork that wrote it"
    if kind is Kind.EVALUATION_KEYS and version == 1:
        advice = "it lacks the public key that answers are re-randomised with; make evaluation keys again, 'cloakwork keygen --key' does"
    expected = " or ".join(map(str, kind.readable_versions))
    return SerializationError(f"{kind.label}: expected wire format version {expected}, got {version}; {advice}")


def _known_parameters(name_field: bytes, digest: bytes) -> ParameterSet:
    name = name_field.rstrip(b"\0")
    if not name or not all(byte in b"abcdefghijklmnopqrstuvwxyz0123456789_" for byte in name):
        raise SerializationError(
            "object: expected a parameter set's name (a-z, 0-9, _, padded with zeros); the object is damaged"
        )
    try:
        params = parameter_set(name.decode("ascii"))
    except ParameterError as error:
        raise SerializationError(f"object: its parameter set cannot be used: {error}") from None
    if digest != parameter_digest(params):
        raise KeyMismatchError(
            f"object: it was made with another version of parameter set '{params.name}'; make new keys and ciphertexts with this release"
        )
    return params


def _check_form(
    kind: Kind, seeded: bool, rank: int, weight_norm: float, encoding: int, bound: bytes, params: ParameterSet
) -> tuple[int, int] | None:
    """Returns the fields whose values the kind restricts; the message bound."""
    has_shape = kind.is_ciphertext or kind is Kind.PARTIAL_DECRYPTION
    if not kind.is_ciphertext and (
        seeded != kind.is_seeded or (rank and not has_shape) or weight_norm or encoding or any(bound)
    ):
        raise _foreign_fields(kind)
    if kind.is_of_party and params.party_count == 1:
        raise SerializationError(
            f"{kind.label}: parameter set '{params.name}' has keys of one owner, and no shares of them; the object is damaged or not valid"
        )
    if rank > MAX_RANK:
        raise SerializationError(f"{kind.label}: expected at most {MAX_RANK} dimensions; the object is damaged")
    if not (0 <= weight_norm <= MAX_WEIGHT_NORM and math.copysign(1, weight_norm) > 0):  # false for NaN, and for -0
        raise SerializationError(f"{kind.label}: expected a weight norm in [0, 2^32]; the object is damaged")
    try:
        needs_messages = Encoding(encoding) in (Encoding.MESSAGE, Encoding.FULL_DOMAIN)
    except ValueError:
        raise SerializationError(
            f"{kind.label}: expected an encoding from 0 to 3, got {encoding}; the object is damaged"
        ) from None
    if needs_messages and params.message_bits == 0:
        raise SerializationError(
            f"{kind.label}: parameter set '{params.name}' has no integer messages, but the object says that it holds some"
        )
    try:
        return unpack_bound(bound, Encoding(encoding), params, weight_norm)
    except ValueError:
        raise SerializationError(
            f"{kind.label}: expected a message bound as the format writes it, or zeros; the object is damaged"
        ) from None


def _foreign_fields(kind: Kind) -> SerializationError:
    return SerializationError(
        f"{kind.label}: the header has fields that this kind does not have; the object is damaged"
    )


def _truncated(expected: int, available: int) -> SerializationError:
    return SerializationError(
        f"object: expected at least {expected} more bytes, got {available}; it is truncated, transfer it again"
    )
