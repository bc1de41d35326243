"""`cloakwork.engine.from_bytes`: objects of every class from what `to_bytes` wrote, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.engine import (
    ClientKey,
    EvaluationKeys,
    LevelledClientKey,
    LevelledParameters,
    Party,
    from_bytes,
    from_lookups_keys,
    joint_public_key,
    to_lookups_key,
)
from cloakwork.errors import KeyMismatchError, SerializationError

KEY = ClientKey._from_entropy("toy", bytes(32))
LEVELLED = LevelledClientKey._from_entropy(
    LevelledParameters.of("toy_bgv12", 2 << KEY.parameters.message_bits), bytes(32)
)
MESSAGES = np.array([1, 2, 3])


def lookups_and_levelled() -> list[Any]:
    values = np.arange(4096) % 2
    parties = [Party._from_entropy("toy_2p", index, bytes(32)) for index in range(2)]
    offered = [each.commitment for each in parties], [each.contribution for each in parties]
    shares = [each.public_share(*offered) for each in parties]
    joint = joint_public_key(shares, [each.commitment for each in shares])
    evaluation_share = parties[0].evaluation_share(joint)
    return [
        KEY.public_key(),
        KEY.encrypt(MESSAGES),
        shares[0],
        evaluation_share,
        LEVELLED.encrypt(values),
        LEVELLED.encrypt_seeded(values),
        LEVELLED.evaluation_keys(),
        from_lookups_keys(LEVELLED, KEY),
    ]


def test_what_is_sent_is_read(keys: EvaluationKeys) -> None:
    for sent in [keys, *lookups_and_levelled()]:
        data = sent.to_bytes()
        read = from_bytes(data)
        assert type(read) is type(sent) and read.to_bytes() == data


def test_a_key_to_lookups_names_its_levelled_key() -> None:
    key = to_lookups_key(LEVELLED, KEY)
    read = from_bytes(key.to_bytes(), levelled=LEVELLED.evaluation_keys())
    assert type(read) is type(key) and read.to_bytes() == key.to_bytes()
    other = LevelledClientKey._from_entropy(LEVELLED.parameters, bytes([1] * 32))
    with pytest.raises(KeyMismatchError):
        from_bytes(key.to_bytes(), levelled=other.evaluation_keys())


def test_seeded_ciphertexts_are_expanded() -> None:
    for seeded in (KEY.encrypt(MESSAGES, seeded=True), KEY.encrypt_packed(MESSAGES)):
        np.testing.assert_array_equal(KEY.decrypt(from_bytes(seeded.to_bytes())), MESSAGES)


@pytest.mark.parametrize("data", [b"", b"CLKL", b"CLKL" + bytes(200), b"CLKW", b"nothing that is sent", bytes(500)])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        from_bytes(data)


def test_secret_keys_are_not_sent(tmp_path: Path) -> None:
    for key in (KEY, LEVELLED):
        key.save(tmp_path / "key", "of this test, and long enough")
        with pytest.raises(SerializationError, match="secret key"):
            from_bytes((tmp_path / "key").read_bytes())
