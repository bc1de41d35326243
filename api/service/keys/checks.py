"""Checks that the bytes of an upload are the evaluation keys that were announced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cloakwork.api.errors import ChecksumError, MalformedError, StructuredKeysError, WrongParametersError
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.models.model import (
    PREFIX_BYTES,
    KeyParameters,
    is_levelled,
    read_header,
    read_levelled_header,
    refuse_secret_key,
)
from cloakwork.api.service.models.models import TenantModels
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.levelled import wire as levelled
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.levelled.several import MOST_OBJECTS, KeyShapes, joined_size
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_sets
from cloakwork.fhe_core.wire import CHECKSUM_BYTES, Kind, check_words

_READ_BYTES: Final = 1 << 20


def known_parameters(digest: str, structured: bool, models: TenantModels) -> KeyParameters:
    """Returns what evaluation keys of this digest are for: a set of look-ups, or what an index or a model for batches needs that the tenant may use.

    Raises:
        StructuredKeysError: a set with a structured secret, unless they are allowed.
        WrongParametersError: nothing has this digest.
        UnavailableError: the models are not read yet.
    """
    params = known_set(digest)
    if params is not None and params.structured_secret and not structured:
        raise StructuredKeysError.of("evaluation keys", params.name)
    parameters = models.levelled_keys(digest) if params is None else KeyParameters.of_set(params)
    if parameters is None:
        raise WrongParametersError(
            "no parameter set of this release has this digest, and no index or model for batches needs such keys; take it from the model's "
            "client specification"
        )
    return parameters


def known_set(digest: str) -> ParameterSet | None:
    """Returns the set of look-ups of this digest."""
    return next((params for params in parameter_sets() if parameter_digest(params).hex() == digest), None)


@dataclass(frozen=True)
class KeysHeader:
    """The header of evaluation keys, and the check of their words."""

    set_name: str
    digest: str
    key_id: bytes | None  # of the secret key
    check_words: Callable[[BinaryIO], None]


def check_header(record: KeyRecord, start: bytes) -> KeysHeader:
    if is_levelled(start):
        return _checked(_levelled([start], record), record)
    return _checked(_of_lookups(start, record.bytes), record)


def _checked(header: KeysHeader, record: KeyRecord) -> KeysHeader:
    if header.digest != record.parameter_digest:
        differs = (
            "" if header.set_name != record.parameter_set else ", for another plaintext modulus or number of features"
        )
        raise WrongParametersError(
            f"these are evaluation keys of parameter set '{header.set_name}', announced were those of '{record.parameter_set}'{differs}"
        )
    if header.key_id is None:
        raise MalformedError(
            "these evaluation keys do not carry the id of their secret key; make them with this release"
        )
    return header


def _of_lookups(start: bytes, size: int) -> KeysHeader:
    header = read_header(start, size, Kind.EVALUATION_KEYS)
    digest = parameter_digest(header.parameters).hex()
    return KeysHeader(header.parameters.name, digest, header.key_id, lambda stream: check_words(stream, header))


def _levelled(starts: list[bytes], record: KeyRecord) -> KeysHeader:
    """Args: starts: what each plaintext modulus' keys begin with; of several those that are here, of which only the first is checked so far."""
    count = _moduli(starts[0], record.bytes)
    if count == 1:
        read_levelled_header(starts[0], record.bytes, levelled.Kind.EVALUATION_KEYS)
    headers = [levelled.header_of(each, levelled.Kind.EVALUATION_KEYS) for each in starts]
    shapes = _shapes(headers, record.parameter_digest)
    digest = shapes.digest.hex() if len(headers) == count else record.parameter_digest

    def check(stream: BinaryIO) -> None:
        stream.seek(0)
        for header, shape in zip(headers, shapes.shapes, strict=True):
            place = stream.tell()
            levelled.check_switch_keys(stream, header, shape.numbers)
            stream.seek(place + header.byte_count)

    return KeysHeader(headers[0].parameters.set.name, digest, headers[0].key_id, check)


def _moduli(start: bytes, size: int) -> int:
    """For how many plaintext moduli an object of this size has keys: all of them are of one set."""
    refuse_secret_key(start)
    each = levelled.header_of(start[: levelled.HEADER_BYTES], levelled.Kind.EVALUATION_KEYS).byte_count
    counts = range(2, MOST_OBJECTS + 1)
    return next((count for count in counts if joined_size([each] * count) == size), 1)


def _shapes(headers: list[levelled.Header], digest: str) -> KeyShapes:
    """Reads the shapes with keys for products where `digest` is theirs, else without."""
    without = KeyShapes(tuple(ExpansionKeyShape(each.parameters, each.items) for each in headers))
    if not all(each.items for each in headers):
        return without
    several = KeyShapes(tuple(ExpansionKeyShape(each.parameters, each.items - 1, True) for each in headers))
    return several if several.digest.hex() == digest else without


def _starts(stream: BinaryIO, size: int) -> list[bytes]:
    """Returns what the keys of each plaintext modulus begin with; they are as long as the first."""
    first = stream.read(PREFIX_BYTES)
    if not is_levelled(first) or (count := _moduli(first, size)) == 1:
        return [first]
    starts, each = [first], (size - CHECKSUM_BYTES) // count
    for number in range(1, count):
        stream.seek(number * each)
        starts.append(stream.read(PREFIX_BYTES))
    return starts


def verify(path: Path, record: KeyRecord) -> tuple[bytes, str]:
    """Verifies header, SHA-256 (the announced one, if one was), the object's own checksum, and that every word is below its modulus, in a few
    megabytes of memory. Returns the secret key's id and the SHA-256."""
    inner, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as stream:
        header = _whole_header(record, _starts(stream, size))
        assert header.key_id is not None
        stream.seek(0)
        for block in _pieces(stream, size - CHECKSUM_BYTES):
            inner.update(block)
        checksum = stream.read()
        whole = inner.copy()
        whole.update(checksum)
        _check_sums(whole.hexdigest(), inner.digest(), checksum, record)
        try:
            header.check_words(stream)
        except SerializationError as error:
            raise MalformedError(str(error)) from None
    return header.key_id, whole.hexdigest()


def _whole_header(record: KeyRecord, starts: list[bytes]) -> KeysHeader:
    return check_header(record, starts[0]) if len(starts) == 1 else _checked(_levelled(starts, record), record)


def _check_sums(whole: str, inner: bytes, checksum: bytes, record: KeyRecord) -> None:
    if record.sha256 is not None and whole != record.sha256:
        raise ChecksumError(
            "the bytes that came are not those that were announced (sha256); the upload begins again at 0"
        )
    if inner != checksum:
        raise ChecksumError(
            "the keys' own checksum does not match: they were damaged before they were sent; make them again"
        )


def _pieces(stream: BinaryIO, count: int) -> Iterator[bytes]:
    while count > 0:
        block = stream.read(min(count, _READ_BYTES))
        if not block:
            return
        count -= len(block)
        yield block
