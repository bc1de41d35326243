"""Whether the bytes of an upload are the evaluation keys that were announced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cloakwork.api.errors import ChecksumError, MalformedError, StructuredKeysError, WrongParametersError
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.models.key_parameters import KeyParameters
from cloakwork.api.service.models.models import TenantModels
from cloakwork.api.service.object_headers import PREFIX_BYTES, is_levelled, read_header, read_levelled_header
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.levelled import wire as levelled
from cloakwork.fhe_core.levelled.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_sets
from cloakwork.fhe_core.wire import CHECKSUM_BYTES, Kind, check_words

_READ_BYTES: Final = 1 << 20


def known_parameters(digest: str, structured_keys: bool, models: TenantModels) -> KeyParameters:
    """Returns what evaluation keys of this digest are for: a set of look-ups, or what an index needs that the tenant may use.

    Raises:
        StructuredKeysError: a set with a structured secret, unless they are allowed.
        WrongParametersError: nothing has this digest.
        UnavailableError: the models are not read yet.
    """
    params = known_set(digest)
    if params is not None and params.structured_secret and not structured_keys:
        raise StructuredKeysError.of("evaluation keys", params.name)
    found = models.levelled_keys(digest) if params is None else KeyParameters.of_set(params)
    if found is None:
        raise WrongParametersError(
            "no parameter set of this release has this digest, and no index needs such keys; take it from the model's client specification"
        )
    return found


def known_set(digest: str) -> ParameterSet | None:
    """The set of look-ups of this digest."""
    return next((params for params in parameter_sets() if parameter_digest(params).hex() == digest), None)


@dataclass(frozen=True)
class KeysHeader:
    """What the first bytes of evaluation keys say, and how their words are checked."""

    set_name: str
    digest: str
    key_id: bytes | None  # of the secret key
    check_words: Callable[[BinaryIO], None]


def check_header(record: KeyRecord, start: bytes) -> KeysHeader:
    header = (
        _levelled(start, record.bytes, record.parameter_digest)
        if is_levelled(start)
        else _of_lookups(start, record.bytes)
    )
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


def _levelled(start: bytes, size: int, announced: str) -> KeysHeader:
    header = read_levelled_header(start, size, levelled.Kind.EVALUATION_KEYS)
    shape = ExpansionKeyShape.of_header(header, bytes.fromhex(announced))

    def check(stream: BinaryIO) -> None:
        levelled.check_switch_keys(stream, header, shape.numbers)

    return KeysHeader(header.parameters.set.name, shape.digest.hex(), header.key_id, check)


def verify(path: Path, record: KeyRecord) -> tuple[bytes, str]:
    """Header, SHA-256 (the announced one, if one was), the object's own checksum, and that every word is below its modulus, in a few megabytes
    of memory. Returns the secret key's id and the SHA-256."""
    inner, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as stream:
        header = check_header(record, stream.read(PREFIX_BYTES))
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
