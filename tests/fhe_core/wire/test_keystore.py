"""Secret keys at rest: encrypted, private to the user, and limited in what a file may ask of its reader."""

from __future__ import annotations

import stat
import struct
from pathlib import Path

import numpy as np
import pytest

from cloakwork.fhe_core import wire
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.wire import keystore
from cloakwork.fhe_core.wire.keystore import ScryptCost, load_secret, save_secret

CHEAP = ScryptCost(log2_n=10)
KEY_ID = bytes(range(16))
COST_OFFSET = wire.HEADER_BYTES  # the key derivation block follows the header


@pytest.fixture
def secret() -> bytes:
    params = parameter_set("toy")
    return (
        np.random.default_rng(1).integers(0, 2, params.lwe_dimension + params.large_dimension, dtype=np.int8).tobytes()
    )


@pytest.fixture
def key_file(tmp_path: Path, secret: bytes) -> Path:
    path = tmp_path / "client.key"
    save_secret(path, parameter_set("toy"), secret, KEY_ID, "correct horse", CHEAP)
    return path


def test_round_trip(key_file: Path, secret: bytes) -> None:
    header, loaded = load_secret(key_file, "correct horse")
    assert loaded == secret
    assert (header.parameters.name, header.key_id) == ("toy", KEY_ID)


def test_only_the_owner_can_read_the_file(key_file: Path) -> None:
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600


def test_overwriting_keeps_the_mode(key_file: Path, secret: bytes) -> None:
    key_file.chmod(0o644)
    save_secret(key_file, parameter_set("toy"), secret, KEY_ID, "another", CHEAP)
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600


def test_the_secret_is_not_in_the_file(key_file: Path, secret: bytes) -> None:
    data = key_file.read_bytes()
    assert not any(secret[i : i + 24] in data for i in range(0, len(secret) - 24, 8))


def test_the_same_key_never_gives_the_same_file(key_file: Path, secret: bytes, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    save_secret(other, parameter_set("toy"), secret, KEY_ID, "correct horse", CHEAP)
    assert other.read_bytes()[wire.HEADER_BYTES :] != key_file.read_bytes()[wire.HEADER_BYTES :]


def test_wrong_passphrase(key_file: Path) -> None:
    with pytest.raises(KeyMismatchError, match="passphrase does not open this file"):
        load_secret(key_file, "Correct horse")


def test_empty_passphrase(tmp_path: Path, secret: bytes) -> None:
    with pytest.raises(ParameterError, match="at least one character"):
        save_secret(tmp_path / "x", parameter_set("toy"), secret, KEY_ID, "", CHEAP)
    assert list(tmp_path.iterdir()) == []


def _rewrite(path: Path, offset: int, data: bytes) -> None:
    """Alters the file and mends its checksum, as an attacker would."""
    import hashlib

    body = bytearray(path.read_bytes()[: -wire.CHECKSUM_BYTES])
    body[offset : offset + len(data)] = data
    path.write_bytes(bytes(body) + hashlib.sha256(body).digest())


@pytest.mark.parametrize(
    "cost",
    [
        (21, 8, 1),
        (40, 8, 1),
        (20, 8, 1),
        (17, 65535, 1),
        (17, 8, 5),
        (17, 8, 65535),
        (17, 0, 1),
        (17, 8, 0),
        (9, 8, 1),
        (0, 0, 0),
    ],
)
def test_a_file_cannot_ask_for_gigabytes(key_file: Path, cost: tuple[int, int, int]) -> None:
    log2_n, r, p = cost
    _rewrite(key_file, COST_OFFSET + 1, struct.pack("<BHH", log2_n, r, p))
    with pytest.raises(SerializationError, match="scrypt costs"):
        load_secret(key_file, "correct horse")


def test_the_default_cost_is_inside_the_limits() -> None:
    keystore.DEFAULT_COST.check()
    assert keystore.DEFAULT_COST == ScryptCost(17, 8, 1)


def test_unknown_key_derivation(key_file: Path) -> None:
    _rewrite(key_file, COST_OFFSET, b"\x02")
    with pytest.raises(SerializationError, match="key derivation 1"):
        load_secret(key_file, "correct horse")


@pytest.mark.parametrize(
    ("offset", "what"),
    [
        (80, "key id"),
        (COST_OFFSET + 12, "salt"),
        (COST_OFFSET + 28, "nonce"),
        (COST_OFFSET + 40, "ciphertext"),
        (-(wire.CHECKSUM_BYTES + 1), "tag"),
    ],
)
def test_altered_and_mended_files_do_not_open(key_file: Path, offset: int, what: str) -> None:
    size = key_file.stat().st_size
    position = offset % size
    _rewrite(key_file, position, bytes([key_file.read_bytes()[position] ^ 1]))
    with pytest.raises(KeyMismatchError):
        load_secret(key_file, "correct horse")


def test_public_readers_refuse_a_secret_key(key_file: Path) -> None:
    for reader in (EvaluationKeys, Ciphertexts):
        with pytest.raises(SerializationError, match="got secret key; a secret key must stay with its owner"):
            reader.load(key_file)


def test_a_secret_key_reader_refuses_public_objects(tmp_path: Path) -> None:
    path = tmp_path / "public"
    ClientKey.generate("toy").public_key().save(path)
    with pytest.raises(SerializationError, match="expected secret key, got public key"):
        load_secret(path, "correct horse")


def test_client_key_end_to_end_at_the_default_cost(tmp_path: Path) -> None:
    key = ClientKey.generate("toy")
    ciphertexts = key.encrypt([0, 1, 2, 3])
    key.save(tmp_path / "client.key", "päßword")
    loaded = ClientKey.load(tmp_path / "client.key", "päßword")
    assert loaded.key_id == key.key_id
    np.testing.assert_array_equal(loaded.decrypt(ciphertexts), [0, 1, 2, 3])


def test_secret_keys_are_not_pickled() -> None:
    import copy

    with pytest.raises(TypeError, match="not pickled"):
        copy.copy(ClientKey.generate("toy"))
