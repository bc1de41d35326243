"""What becomes of levelled evaluation keys whose bytes are changed, with a checksum that is right."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloakwork.api.service.keys.checks import verify
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.models.model import KeyParameters
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

SHAPE = ExpansionKeyShape.of(LevelledParameters.of("bgv12", 12345), 5)
KEY_ID = range(40, 56)


@pytest.fixture(scope="module")
def keys() -> bytes:
    key = LevelledClientKey.generate(SHAPE.parameters)
    return key.evaluation_keys(SHAPE.automorphisms, products=False).to_bytes()


@pytest.fixture
def record() -> KeyRecord:
    params = KeyParameters(SHAPE.parameters.set.name, SHAPE.digest.hex(), SHAPE.byte_count)
    return KeyRecord.of_upload("alice", params, None)


def verified(path: Path, record: KeyRecord, data: bytes) -> bytes:
    path.write_bytes(data)
    return verify(path, record)[0]


def test_sizes_and_digests_follow_from_the_shape(keys: bytes, record: KeyRecord, tmp_path: Path) -> None:
    assert len(keys) == SHAPE.byte_count and SHAPE.rounds == 3 and SHAPE.automorphisms == [4097, 2049, 1025]
    assert verified(tmp_path / "keys", record, keys) == LevelledEvaluationKeys.from_bytes(keys).key_id
    others = [ExpansionKeyShape(SHAPE.parameters, 2), ExpansionKeyShape(LevelledParameters.of("bgv12", 12347), 3)]
    assert len({SHAPE.digest, *(other.digest for other in others)}) == 3
    none = ExpansionKeyShape.of(SHAPE.parameters, 1)
    assert none.automorphisms == [] and none.byte_count == wire.HEADER_BYTES + 32
    # Pinned: clients and services of other releases have to agree on it.
    assert SHAPE.digest.hex()[:16] == "cecd345e9809a9e2"


def test_keys_with_the_one_for_products_are_another_shape(keys: bytes, record: KeyRecord, tmp_path: Path) -> None:
    shape = ExpansionKeyShape.of(SHAPE.parameters, 5, products=True)
    assert shape.numbers == [0, *SHAPE.automorphisms] and shape.digest != SHAPE.digest
    with pytest.raises(FheError):  # announced with it, sent without
        verified(tmp_path / "keys", replace(record, parameter_digest=shape.digest.hex()), keys)
    empty = wire.Header(kind=wire.Kind.EVALUATION_KEYS, parameters=SHAPE.parameters, key_id=bytes(16))
    for digest in (SHAPE.digest, shape.digest):
        assert ExpansionKeyShape.of_header(empty, digest) == ExpansionKeyShape(SHAPE.parameters, 0)
        with pytest.raises(FheError):
            announced = replace(record, parameter_digest=digest.hex(), bytes=empty.byte_count)
            verified(tmp_path / "keys", announced, wire.dump(empty, []))


def test_every_changed_byte_is_refused(keys: bytes, record: KeyRecord, tmp_path: Path) -> None:
    """But for the name of the secret key, seeds, and words that stay below their primes."""
    section = wire.HEADER_BYTES + 36 + wire.packed_bytes(2 * 3 * 4096)
    heads = [wire.HEADER_BYTES + i for i in range(4)] + [section + i for i in range(4)]
    for place in [*range(wire.HEADER_BYTES), *heads]:
        changed = bytearray(keys)
        changed[place] ^= 1 << place % 7
        sealed = bytes(changed[:-32]) + hashlib.sha256(changed[:-32]).digest()
        with pytest.raises(FheError) as told:  # the object's checksum
            verified(tmp_path / "keys", record, bytes(changed))
        assert 400 <= told.value.http_status < 500
        if place in KEY_ID:
            assert verified(tmp_path / "keys", record, sealed) == sealed[40:56]
            continue
        with pytest.raises(FheError) as told:
            verified(tmp_path / "keys", record, sealed)
        assert 400 <= told.value.http_status < 500, place


def test_every_length_is_refused(keys: bytes, record: KeyRecord, tmp_path: Path) -> None:
    for length in (0, 1, 79, 80, 112, len(keys) // 2, len(keys) - 1):
        with pytest.raises(FheError):
            verified(tmp_path / "keys", record, keys[:length])
    with pytest.raises(FheError):
        verified(tmp_path / "keys", record, keys + b"\0")


def test_random_bytes_are_refused(record: KeyRecord, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        start = b"CLKL" if rng.random() < 0.5 else b""
        with pytest.raises(FheError) as told:
            verified(tmp_path / "keys", record, start + rng.bytes(int(rng.integers(0, 500))))
        assert 400 <= told.value.http_status < 500
