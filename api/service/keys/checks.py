"""Whether the bytes of an upload are the evaluation keys that were announced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from cloakwork.api.errors import ChecksumError, MalformedError, StructuredKeysError, WrongParametersError
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.object_headers import PREFIX_BYTES, read_header
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_sets
from cloakwork.fhe_core.wire import CHECKSUM_BYTES, Header, Kind, check_words

_READ_BYTES: Final = 1 << 20


def known_set(digest: str, structured_keys: bool) -> ParameterSet:
    """The set of this digest; StructuredKeysError for one with a structured secret unless they are allowed."""
    for params in parameter_sets():
        if parameter_digest(params).hex() == digest:
            if params.structured_secret and not structured_keys:
                raise StructuredKeysError.of("evaluation keys", params.name)
            return params
    raise WrongParametersError(
        "no parameter set of this release has this digest; take it from the model's client specification"
    )


def check_header(record: KeyRecord, start: bytes) -> Header:
    header = read_header(start, record.bytes, Kind.EVALUATION_KEYS)
    if parameter_digest(header.parameters).hex() != record.parameter_digest:
        raise WrongParametersError(
            f"these are evaluation keys of parameter set '{header.parameters.name}', announced were those of '{record.parameter_set}'"
        )
    if header.key_id is None:
        raise MalformedError(
            "these evaluation keys do not carry the id of their secret key; make them with this release"
        )
    return header


def verify(path: Path, record: KeyRecord) -> tuple[Header, str]:
    """Header, SHA-256 (the announced one, if one was), the object's own checksum, and that every word is below its modulus, in a few megabytes
    of memory. Returns header and SHA-256."""
    inner, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as stream:
        header = check_header(record, stream.read(PREFIX_BYTES))
        stream.seek(0)
        for block in _pieces(stream, size - CHECKSUM_BYTES):
            inner.update(block)
        checksum = stream.read()
        whole = inner.copy()
        whole.update(checksum)
        _check_sums(whole.hexdigest(), inner.digest(), checksum, record)
        try:
            check_words(stream, header)
        except SerializationError as error:
            raise MalformedError(str(error)) from None
    return header, whole.hexdigest()


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
