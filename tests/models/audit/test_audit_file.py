"""The reader of audit files against files that strangers made: a clear error, and never more memory than the file has bytes."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from json_mutations import mutated

from cloakwork.fhe_core.errors import FheError, SerializationError
from cloakwork.models.audit.audit_file import AuditFile, AuditObject, Manifest, write_audit_file

KEYS, EXCHANGES = b"k" * 50, [(b"first request", b"first answer"), (b"second request", b"2")]
PREFIX = struct.Struct("<4sHHQ")


def manifest(has_keys: bool = True) -> Manifest:
    parts = tuple((AuditObject.of(request), AuditObject.of(answer)) for request, answer in EXCHANGES)
    times = "2026-11-24T01:02:03Z"
    return Manifest(
        "toy", "1", "ab" * 32, "cd" * 8, "http://127.0.0.1:8123", times, AuditObject.of(KEYS), has_keys, parts
    )


def write(path: Path, has_keys: bool = True) -> bytes:
    keys = path.with_suffix(".keys")
    keys.write_bytes(KEYS)
    write_audit_file(path, manifest(has_keys), keys, EXCHANGES)
    return path.read_bytes()


def assembled(fields: Any, objects: bytes = KEYS + b"".join(map(b"".join, EXCHANGES))) -> bytes:
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return PREFIX.pack(b"CLKA", 1, 0, len(text)) + text + objects


@pytest.mark.parametrize("has_keys", [True, False])
def test_what_is_written_is_read(tmp_path: Path, has_keys: bool) -> None:
    path = tmp_path / "a.clka"
    write(path, has_keys)
    file = AuditFile.open(path)
    assert file.manifest == manifest(has_keys)
    assert [(file.request(i), file.answer(i)) for i in range(2)] == EXCHANGES
    if has_keys:
        assert file.keys() == KEYS


def test_every_cut_and_every_added_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.clka"
    data = write(path)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(SerializationError):
            AuditFile.open(path)
    path.write_bytes(data + b"x")
    with pytest.raises(SerializationError, match="truncated or something was added"):
        AuditFile.open(path)


def test_an_altered_object_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.clka"
    data = write(path)
    start = AuditFile.open(path).start
    for position in range(start, len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        path.write_bytes(changed)
        file = AuditFile.open(path)
        objects = [(file.keys, ()), *((read, (i,)) for read in (file.request, file.answer) for i in range(2))]
        refused = 0
        for read, number in objects:
            try:
                read(*number)
            except SerializationError:
                refused += 1
        assert refused == 1


@pytest.mark.parametrize(
    "change",
    [
        {"model": "../../etc/passwd"},
        {"model": ".."},
        {"model": "a/b"},
        {"model": "a" * 65},
        {"version": "1/../../2"},
        {"version": ""},
        {"version": 1},
        {"program": "AB" * 32},
        {"audit_key": "cd" * 9},
        {"service": "http://x\x1b[2J"},
        {"service": "http://x\nanswer: the same"},
        {"time": "yesterday"},
        {"time": "2026-11-24T01:02:03Z\n"},
        {"keys": None},
        {"keys": {"bytes": 50, "sha256": "0" * 64}},
        {"keys": {"bytes": 50, "sha256": "0" * 64, "included": 1}},
        {"keys": {"bytes": -1, "sha256": "0" * 64, "included": True}},
        {"keys": {"bytes": 2**60, "sha256": "0" * 64, "included": True}},
        {"keys": {"bytes": 50.0, "sha256": "0" * 64, "included": True}},
        {"exchanges": []},
        {"exchanges": [{}]},
        {"exchanges": [{"request": {"bytes": 0, "sha256": "0" * 64}, "answer": {"bytes": 1, "sha256": "0" * 64}}]},
        {"surplus": 1},
    ],
)
def test_made_up_manifests_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    fields = {**json.loads(manifest().to_json()), **change}
    path = tmp_path / "a.clka"
    path.write_bytes(assembled(fields))
    with pytest.raises(SerializationError) as caught:
        AuditFile.open(path)
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[]", b"{", b'{"model":"toy"}', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"NaN"]
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.clka"
    path.write_bytes(assembled(text))
    with pytest.raises(SerializationError):
        AuditFile.open(path)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    text = manifest().to_json().replace('{"model":"toy"', '{"model":"other","model":"toy"', 1)
    path = tmp_path / "a.clka"
    path.write_bytes(assembled(text.encode()))
    with pytest.raises(SerializationError):
        AuditFile.open(path)


def test_lengths_beyond_the_file_allocate_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.clka"
    for length in (2**63, 2**40, 3 << 20, 400):
        path.write_bytes(PREFIX.pack(b"CLKA", 1, 0, length) + b"{}")
        with pytest.raises(SerializationError, match="manifest of at most"):
            AuditFile.open(path)
    for version, reserved in ((0, 0), (2, 0), (1, 1)):
        path.write_bytes(PREFIX.pack(b"CLKA", version, reserved, 2) + b"{}")
        with pytest.raises(SerializationError, match="version"):
            AuditFile.open(path)


def test_mutated_manifests_are_read_or_refused(tmp_path: Path) -> None:
    rng, path, fields = random.Random(5), tmp_path / "a.clka", json.loads(manifest().to_json())
    read = 0
    for _ in range(1500):
        try:
            path.write_bytes(assembled(mutated(fields, rng)))
            AuditFile.open(path)
            read += 1
        except SerializationError:
            pass
    assert read < 1500


def test_no_or_too_many_exchanges_are_not_written(tmp_path: Path) -> None:
    for count in (0, 4097):
        with pytest.raises(FheError, match="1 to 4096"):
            write_audit_file(tmp_path / "a.clka", manifest(), None, [(b"r", b"a")] * count)
    assert list(tmp_path.iterdir()) == []
