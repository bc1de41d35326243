"""Objects of levelled arithmetic as bytes: the way there and back, pinned bytes, and whatever a stranger may send."""

from __future__ import annotations

import hashlib
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.parameters import SETS, LevelledParameters
from cloakwork.fhe_core.wire import CHECKSUM_BYTES

PARAMETERS = LevelledParameters.of("toy_bgv12", 65537)
READERS: dict[str, Callable[..., Any]] = {
    "ciphertexts": LevelledCiphertexts.from_bytes,
    "seeded": SeededLevelledCiphertexts.from_bytes,
    "keys": LevelledEvaluationKeys.from_bytes,
}


@pytest.fixture(scope="module")
def key() -> LevelledClientKey:
    return LevelledClientKey._from_entropy(PARAMETERS, bytes(range(32)))


@pytest.fixture(scope="module")
def objects(key: LevelledClientKey) -> dict[str, bytes]:
    messages = np.arange(2 * PARAMETERS.polynomial_size).reshape(2, -1)
    return {
        "ciphertexts": key.encrypt(messages, 2).to_bytes(),
        "seeded": key.encrypt_seeded(messages).to_bytes(),
        "keys": key.evaluation_keys((3, 8191)).to_bytes(),
    }


def sealed(data: bytes) -> bytes:
    """With a checksum that fits."""
    body = data[:-CHECKSUM_BYTES]
    return body + hashlib.sha256(body).digest()


def test_there_and_back(key: LevelledClientKey) -> None:
    a, b = np.random.default_rng(1).integers(0, 65537, (2, 3, PARAMETERS.polynomial_size))
    x = SeededLevelledCiphertexts.from_bytes(key.encrypt_seeded(a).to_bytes(), PARAMETERS).expand()
    y = LevelledCiphertexts.from_bytes(key.encrypt(b).to_bytes(), PARAMETERS)
    keys = LevelledEvaluationKeys.from_bytes(key.evaluation_keys((5,)).to_bytes(), PARAMETERS)
    server = LevelledEvaluator(PARAMETERS, keys)
    answer = server.rescale(server.automorphism(server.add(server.multiply(x, y), x), 5))
    loaded = LevelledCiphertexts.from_bytes(answer.to_bytes())
    assert (loaded.scale, loaded.level, loaded.noise) == (answer.scale, answer.level, answer.noise)
    np.testing.assert_array_equal(loaded.words, answer.words)
    np.testing.assert_array_equal(key.decrypt(loaded), key.decrypt(answer))
    assert loaded.to_bytes() == answer.to_bytes()


def test_sizes(objects: dict[str, bytes]) -> None:
    size = PARAMETERS.polynomial_size
    around = wire.HEADER_BYTES + CHECKSUM_BYTES
    assert len(objects["ciphertexts"]) == around + 2 * 8 + 2 * 2 * 2 * size * 7 // 2
    assert len(objects["seeded"]) == around + 32 + 2 * 4 * size * 7 // 2
    assert len(objects["keys"]) == around + 3 * (36 + 2 * 6 * size * 7 // 2)


def test_bytes_are_pinned(objects: dict[str, bytes]) -> None:
    """A change of them makes what is stored unreadable: it wants another version."""
    digests = {name: hashlib.sha256(data).hexdigest()[:16] for name, data in objects.items()}
    assert digests == {"ciphertexts": "615220ae5396f46b", "seeded": "43022697097a8e0d", "keys": "7c09bc28401f7e17"}


@pytest.mark.parametrize("count", [2, 6, 4096])
def test_words_of_28_bits(count: int) -> None:
    words = np.random.default_rng(count).integers(0, 1 << 28, count, dtype=np.uint32)
    words[0], words[-1] = (1 << 28) - 1, 1
    packed = wire.pack_words(words)
    assert len(packed) == wire.packed_bytes(count)
    np.testing.assert_array_equal(wire.unpack_words(packed, (count,)), words)
    assert int.from_bytes(packed[:7], "little") == int(words[0]) | int(words[1]) << 28


def test_a_secret_key_rests_encrypted(key: LevelledClientKey, tmp_path: Path) -> None:
    path = tmp_path / "key"
    key.save(path, "a passphrase")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    data = path.read_bytes()
    assert key._secret.export() not in data and b"a passphrase" not in data
    loaded = LevelledClientKey.load(path, "a passphrase")
    messages = np.arange(PARAMETERS.polynomial_size)
    np.testing.assert_array_equal(loaded.decrypt(key.encrypt(messages))[0], messages)
    assert (loaded.key_id, loaded.parameters) == (key.key_id, key.parameters)
    with pytest.raises(KeyMismatchError, match="passphrase does not open"):
        LevelledClientKey.load(path, "another")
    for place in (20, 50, wire.HEADER_BYTES + 3, wire.HEADER_BYTES + 30, len(data) - 60):
        changed = bytearray(data)
        changed[place] ^= 1
        for each in (bytes(changed), sealed(bytes(changed))):
            path.write_bytes(each)
            with pytest.raises((KeyMismatchError, SerializationError), match="key: "):
                LevelledClientKey.load(path, "a passphrase")
    for reader in READERS.values():
        with pytest.raises(SerializationError, match="must stay with its owner"):
            reader(data)


@pytest.mark.parametrize("kind", READERS)
def test_damage(objects: dict[str, bytes], kind: str) -> None:
    data, read = objects[kind], READERS[kind]
    for wrong in (
        b"",
        data[:10],
        data[:-1],
        data + b"\0",
        data[: wire.HEADER_BYTES],
        data[:4] + data[5:],
        b"CLKW" + data[4:],
    ):
        with pytest.raises(SerializationError):
            read(wrong)
    for place in range(0, len(data), 1009):
        changed = bytearray(data)
        changed[place] ^= 0x10
        with pytest.raises((SerializationError, KeyMismatchError)):
            read(bytes(changed))
    with pytest.raises(SerializationError, match="at most 1000 bytes"):
        read(data, max_bytes=1000)
    for other in objects.keys() - {kind}:
        with pytest.raises(SerializationError, match="object: expected levelled"):
            read(objects[other])
    with pytest.raises(KeyMismatchError, match="expected set 'toy_bgv12' modulo 17"):
        read(data, LevelledParameters.of("toy_bgv12", 17))


FIELDS = {  # byte, format, values that no object has
    "version": (4, "<H", [0, 2, 65535]),
    "flags": (7, "<B", [1, 128]),
    "modulus": (56, "<I", [0, 1, 1 << 26, 1 << 31]),
    "items": (60, "<I", [0, 1, 4097, (1 << 20) + 1, (1 << 32) - 1]),
    "scale": (64, "<I", [0, 65537, (1 << 32) - 1]),
    "level": (68, "<B", [0, 3, 5, 255]),
    "parts": (69, "<B", [1, 3]),
    "degree": (70, "<H", [0, 2, 256, 65535]),
    "bound": (72, "<d", [-1.0, float("inf"), float("nan")]),
    "variance": (88, "<d", [-1.0, float("inf"), float("nan")]),
}


@pytest.mark.parametrize("field", FIELDS)
def test_hostile_headers(objects: dict[str, bytes], field: str) -> None:
    """With checksums that fit: the header is looked at, and nothing is allocated for what it claims."""
    place, form, values = FIELDS[field]
    data = objects["ciphertexts"]
    for value in values:
        changed = bytearray(data)
        struct.pack_into(form, changed, place, value)
        with pytest.raises(SerializationError):
            LevelledCiphertexts.from_bytes(sealed(bytes(changed)))


def test_hostile_words_and_automorphisms(objects: dict[str, bytes]) -> None:
    for kind, read in READERS.items():
        changed = bytearray(objects[kind])
        start = wire.HEADER_BYTES + {"ciphertexts": 16, "seeded": 32, "keys": 36}[kind]
        changed[start : start + 7] = b"\xff" * 7
        with pytest.raises(SerializationError, match="below its prime"):
            read(sealed(bytes(changed)))
    for g in (2, 8193, (1 << 32) - 1):
        changed = bytearray(objects["keys"])
        struct.pack_into("<I", changed, wire.HEADER_BYTES, g)
        with pytest.raises(SerializationError, match="automorphisms"):
            LevelledEvaluationKeys.from_bytes(sealed(bytes(changed)))


def test_random_mutations(objects: dict[str, bytes]) -> None:
    """Anything is read, or refused with an error of ours."""
    rng = np.random.default_rng(28)
    for kind, read in READERS.items():
        for _ in range(60):
            changed = bytearray(objects[kind])
            for _ in range(int(rng.integers(1, 4))):
                place = int(rng.integers(0, min(len(changed), 2 * wire.HEADER_BYTES)))
                changed[place] = int(rng.integers(0, 256))
            try:
                read(sealed(bytes(changed)))
            except FheError:
                continue


def test_sets_do_not_change() -> None:
    """Objects name their set by this."""
    assert {name: row.digest.hex()[:12] for name, row in SETS.items()} == {
        "bgv12": "309f683689e0",
        "bgv13": "d33945a523cd",
        "bgv14": "eb660d765db5",
        "bgv15": "4411f89c4b10",
        "bgv16": "0b443a7b5e69",
        "toy_bgv12": "5fb63f7ec7ac",
    }
