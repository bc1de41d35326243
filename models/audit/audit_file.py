"""The file of an audit (`.clka`): what a client sent and got, and what it was computed with; section "Audit files" of docs/reference/wire_format.md.

Nothing in it is secret: no secret key, no clear values. Nothing in it is believed either: its objects are compared with their digests.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cloakwork.fhe_core.errors import FheError, SerializationError
from cloakwork.fhe_core.wire import DEFAULT_MAX_BYTES
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models import fields as typed

MAGIC: Final = b"CLKA"
VERSION: Final = 1
SUFFIX: Final = ".clka"
MOST_EXCHANGES: Final = 4096

_PREFIX: Final = struct.Struct("<4sHHQ")
_MOST_MANIFEST_BYTES: Final = 2 << 20
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_HEX_32_BYTES: Final = "[0-9a-f]{64}"
_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_ADDRESS: Final = "[!-~]{1,500}"
_FIELDS: Final = frozenset({"model", "version", "program", "audit_key", "service", "time", "keys", "exchanges"})


@dataclass(frozen=True)
class AuditObject:
    """An object by its size and SHA-256."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> AuditObject:
        return cls(len(data), hashlib.sha256(data).hexdigest())

    def to_fields(self) -> dict[str, Any]:
        return {"bytes": self.size, "sha256": self.sha256}


@dataclass(frozen=True)
class Manifest:
    """The manifest of an audit file."""

    model: str
    version: str
    program: str  # digest, in hexadecimal
    audit_key: str  # public id of the service's audit key
    service: str  # its address
    time: str  # of the last answer, UTC
    keys: AuditObject
    has_keys: bool  # whether the file holds the evaluation keys; the service has them too
    exchanges: tuple[tuple[AuditObject, AuditObject], ...]  # request, answer

    @property
    def parts(self) -> list[AuditObject]:
        """Lists the parts of the file, in order."""
        objects = [part for exchange in self.exchanges for part in exchange]
        return [self.keys, *objects] if self.has_keys else objects

    def to_json(self) -> str:
        record = {
            **{name: getattr(self, name) for name in ("model", "version", "program", "audit_key", "service", "time")},
            "keys": {**self.keys.to_fields(), "included": self.has_keys},
            "exchanges": [
                {"request": request.to_fields(), "answer": answer.to_fields()} for request, answer in self.exchanges
            ],
        }
        return json.dumps(record, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Parses a manifest.

        Raises:
            ValueError: anything but the fields of this version, each of its kind.
        """
        record = typed.parsed_object(text, unique=True)
        _require_fields(record, _FIELDS)
        keys = record["keys"]
        included = typed.flag(keys.pop("included", None)) if isinstance(keys, dict) else False
        exchanges = []
        for exchange in typed.entries(record["exchanges"], MOST_EXCHANGES):
            _require_fields(exchange, {"request", "answer"})
            exchanges.append((_part(exchange["request"]), _part(exchange["answer"])))
        if not exchanges:
            raise ValueError("expected at least one exchange")
        return cls(
            _matched(record["model"], _NAME),
            _matched(record["version"], _NAME),
            _matched(record["program"], _HEX_32_BYTES),
            _matched(record["audit_key"], "[0-9a-f]{16}"),
            _matched(record["service"], _ADDRESS),
            _matched(record["time"], _TIME),
            _part(keys),
            included,
            tuple(exchanges),
        )


@dataclass(frozen=True)
class AuditFile:
    """An audit file whose manifest fits its size; an object is read, and its digest compared, when it is asked for."""

    path: Path
    manifest: Manifest
    start: int  # of the first object

    @classmethod
    def open(cls, path: Path) -> AuditFile:
        """Opens an audit file.

        Raises:
            SerializationError: another kind of file, truncated, extended or made up.
        """
        size = path.stat().st_size
        with path.open("rb") as stream:
            prefix = stream.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size or prefix[:4] != MAGIC:
                raise SerializationError(
                    f"audit: expected the magic bytes 'CLKA' at the start of {path}; this is another kind of file"
                )
            _, version, reserved, length = _PREFIX.unpack(prefix)
            if version != VERSION or reserved:
                raise SerializationError(
                    f"audit: expected version {VERSION}, got {version}; read it with the release that made it"
                )
            if length > min(_MOST_MANIFEST_BYTES, size):
                raise SerializationError(
                    f"audit: expected a manifest of at most {min(_MOST_MANIFEST_BYTES, size)} bytes, got {length}"
                )
            text = stream.read(length)
        try:
            manifest = Manifest.from_json(text)
        except (ValueError, TypeError) as error:
            line = " ".join(str(error).split())[:200]
            raise SerializationError(
                f"audit: expected the manifest of version {VERSION}; the file is not a valid audit ({line})"
            ) from error
        start = _PREFIX.size + length
        expected = start + sum(part.size for part in manifest.parts)
        if size != expected:
            raise SerializationError(
                f"audit: expected {expected} bytes, got {size}; the file is truncated or something was added"
            )
        return cls(path, manifest, start)

    def keys(self) -> bytes:
        """Returns the evaluation keys, of a file that holds them."""
        assert self.manifest.has_keys
        return self._object(0, "the evaluation keys")

    def request(self, number: int) -> bytes:
        return self._object(int(self.manifest.has_keys) + 2 * number, f"request {number + 1}")

    def answer(self, number: int) -> bytes:
        return self._object(int(self.manifest.has_keys) + 2 * number + 1, f"answer {number + 1}")

    def _object(self, index: int, what: str) -> bytes:
        parts = self.manifest.parts
        with self.path.open("rb") as stream:
            stream.seek(self.start + sum(part.size for part in parts[:index]))
            data = stream.read(parts[index].size)
        if AuditObject.of(data) != parts[index]:
            raise SerializationError(
                f"audit: {what}: the SHA-256 is not the one that the file says; it was altered or damaged after it was written"
            )
        return data


def write_audit_file(
    path: Path, manifest: Manifest, keys: Path | None, exchanges: Sequence[tuple[bytes, bytes]]
) -> None:
    """Appears under its name when it is complete.

    Args:
        keys: the file of the evaluation keys, where the manifest says that they are in it.
        exchanges: each request with its answer.
    """
    if not 0 < len(exchanges) <= MOST_EXCHANGES:
        raise FheError(
            f"audit: expected 1 to {MOST_EXCHANGES} requests, got {len(exchanges)}; score fewer samples at once"
        )
    text = manifest.to_json().encode()
    with atomic_writer(path) as stream:
        stream.write(_PREFIX.pack(MAGIC, VERSION, 0, len(text)) + text)
        if manifest.has_keys:
            assert keys is not None
            stream.write(keys.read_bytes())
        for request, answer in exchanges:
            stream.write(request)
            stream.write(answer)


def _part(value: Any) -> AuditObject:
    _require_fields(value, {"bytes", "sha256"})
    return AuditObject(typed.integer(value["bytes"], 1, DEFAULT_MAX_BYTES), _matched(value["sha256"], _HEX_32_BYTES))


def _matched(value: Any, pattern: str) -> str:
    text = typed.text(value)
    if re.fullmatch(pattern, text, re.ASCII) is None:
        raise ValueError(f"expected a text of the form {pattern}")
    return text


def _require_fields(value: Any, names: frozenset[str] | set[str]) -> None:
    if not isinstance(value, dict) or set(value) != names:
        raise ValueError(f"expected an object of {', '.join(sorted(names))}")
