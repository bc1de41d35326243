"""Objects of several plaintext moduli as one, and keys of several in one file: the way there and back, and what is none."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from cloakwork.fhe_core.errors import FheError, SerializationError
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey, load_keys, save_keys
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.several import KeyShapes, joined_bytes, joined_size, split_bytes
from cloakwork.fhe_core.levelled.wire import Kind

WORD = "of this test, and long enough"


@pytest.fixture(scope="module")
def keys() -> list[LevelledClientKey]:
    return [LevelledClientKey.generate(LevelledParameters.of("toy_bgv12", t)) for t in (65537, 786433, 257)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_there_and_back(keys: list[LevelledClientKey], count: int, tmp_path: Path) -> None:
    queries = [
        each.encrypt_seeded(np.ones((1, each.parameters.polynomial_size), dtype=int), 2) for each in keys[:count]
    ]
    objects = [each.to_bytes() for each in queries]
    data = joined_bytes(objects)
    assert len(data) == joined_size([len(each) for each in objects]) and (count > 1 or data == objects[0])
    assert list(map(bytes, split_bytes(data, Kind.SEEDED_CIPHERTEXTS))) == objects
    save_keys(tmp_path / "keys", keys[:count], WORD)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    assert [each.key_id for each in load_keys(tmp_path / "keys", WORD)] == [each.key_id for each in keys[:count]]


@pytest.mark.parametrize("rounds, products", [(0, False), (0, True), (2, False)])
def test_shapes_say_what_keys_have(keys: list[LevelledClientKey], rounds: int, products: bool) -> None:
    shapes = KeyShapes(tuple(ExpansionKeyShape(each.parameters, rounds, products) for each in keys))
    made = [
        key.evaluation_keys(shape.automorphisms, products=products).to_bytes()
        for key, shape in zip(keys, shapes.shapes, strict=True)
    ]
    data = joined_bytes(made)
    assert len(data) == shapes.byte_count
    found = [LevelledEvaluationKeys.from_bytes(each) for each in split_bytes(data, Kind.EVALUATION_KEYS)]
    assert [list(each.keys) for each in found] == [each.numbers for each in shapes.shapes]
    other = KeyShapes((*shapes.shapes[:2], ExpansionKeyShape(keys[2].parameters, rounds, not products)))
    assert len({shapes.digest, other.digest, KeyShapes(shapes.shapes[::-1]).digest}) == 3
    assert KeyShapes(shapes.shapes[:1]).digest == shapes.shapes[0].digest


def test_damage(keys: list[LevelledClientKey], tmp_path: Path) -> None:
    objects = [
        each.encrypt_seeded(np.zeros((1, each.parameters.polynomial_size), dtype=int), 1).to_bytes() for each in keys
    ]
    data, rng = joined_bytes(objects), random.Random(3)
    wrong = [
        b"",
        data[:10],
        data[:-1],
        data + b"\0",
        data[:-32],
        joined_bytes([*objects, objects[0]]),
        joined_bytes([b"x", b"y"]),
    ]
    flipped = [bytearray(data) for _ in range(50)]
    for each in flipped:
        each[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    for each in [*wrong, *map(bytes, flipped)]:
        with pytest.raises(FheError):
            for part in split_bytes(each, Kind.SEEDED_CIPHERTEXTS):
                SeededLevelledCiphertexts.from_bytes(part)
    save_keys(tmp_path / "keys", keys, WORD)
    saved = (tmp_path / "keys").read_bytes()
    for each in (b"", saved[:-1], saved + b"\0", saved + saved[: len(saved) // 3], saved[1:], bytes(2 << 20)):
        (tmp_path / "wrong").write_bytes(each)
        with pytest.raises(SerializationError, match="wrong"):
            load_keys(tmp_path / "wrong", WORD)
    with pytest.raises(SerializationError, match="one plaintext modulus"):
        LevelledClientKey.load(tmp_path / "keys", WORD)
