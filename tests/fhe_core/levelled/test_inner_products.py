"""Inner products of an encrypted vector with plaintext rows: sizes about powers of two and blocks, noise below its model, wrong input."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cloakwork.fhe_core.errors import FheError, KeyMismatchError, ParameterError, ShapeError
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import expansion_automorphisms
from cloakwork.fhe_core.levelled.neighbours.inner_products import (
    InnerProductTable,
    expand,
    packed_query,
    products_noise,
    rows_of,
)
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

PARAMETERS = LevelledParameters.of("bgv12", 131071)
RNG = np.random.default_rng(18)


@pytest.fixture(scope="module")
def key() -> LevelledClientKey:
    return LevelledClientKey._from_entropy(PARAMETERS, bytes(range(32)))


@pytest.fixture(scope="module")
def server(key: LevelledClientKey) -> LevelledEvaluator:
    return LevelledEvaluator(PARAMETERS, key.evaluation_keys(expansion_automorphisms(PARAMETERS, 64)), threads=2)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 33])
def test_expansion(key: LevelledClientKey, server: LevelledEvaluator, count: int) -> None:
    vector = RNG.integers(-70000, 70000, count)
    found = key.decrypt(expand(server, key.encrypt(packed_query(PARAMETERS, vector)), count))
    expected = np.zeros((count, PARAMETERS.polynomial_size), dtype=int)
    expected[:, 0] = vector % PARAMETERS.plaintext_modulus
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (5, 3), (4096, 2), (4097, 16), (9001, 33)])
@pytest.mark.parametrize("offsets", [False, True])
def test_products(key: LevelledClientKey, server: LevelledEvaluator, rows: int, count: int, offsets: bool) -> None:
    table = RNG.integers(-128, 128, (rows, count)).astype(np.int8)
    added = RNG.integers(-9999, 9999, rows) if offsets else None
    vector = RNG.integers(-127, 128, count)
    made = InnerProductTable(server, table, added)
    assert made.shape == (rows, count)
    answer = made.products(key.encrypt(packed_query(PARAMETERS, vector), 2))
    assert (len(answer), answer.level) == (-(-rows // 4096), 1)
    expected = table.astype(int) @ vector + (0 if added is None else added)
    modulus = PARAMETERS.plaintext_modulus
    found = rows_of(key.decrypt(answer, signed=True), rows)
    np.testing.assert_array_equal((found - expected) % modulus, 0)
    assert np.abs(found).max() <= modulus // 2
    blocks = [np.abs(table[i : i + 4096].astype(float)) for i in range(0, rows, 4096)]
    norm1, norm2 = max(block.sum() for block in blocks), max(np.linalg.norm(block) for block in blocks)
    foreseen = products_noise(PARAMETERS, (2, 1), count, norm1, norm2)
    assert answer.noise.deviation <= foreseen.deviation * (1 + 1e-9)


@pytest.mark.parametrize("count", [16, 64])
def test_noise_is_below_its_model(count: int) -> None:
    """The weakest case: every row the same large numbers, so that noises of the terms add up along each other."""
    parameters = LevelledParameters.of("bgv13", 131071)
    key = LevelledClientKey._from_entropy(parameters, bytes(32))
    server = LevelledEvaluator(parameters, key.evaluation_keys(expansion_automorphisms(parameters, count)), threads=2)
    for table in (np.full((8192, count), 127), RNG.integers(-127, 128, (8192, count))):
        made = InnerProductTable(server, table, level=3, answer_level=3)
        answer = made.products(key.encrypt(packed_query(parameters, np.zeros(count, int)), 3))
        primes = parameters.set.primes[:3]
        words, total = key.phases(answer)[0], 0
        for i, q in enumerate(primes):
            other = math.prod(primes) // q
            total = total + words[i].astype(object) * pow(other, -1, q) % q * other
        modulus = math.prod(primes)
        phase = np.array([int(v) - modulus if int(v) > modulus // 2 else int(v) for v in total % modulus], dtype=float)
        # The largest coefficient too: noises of an expansion lie on few of them.
        assert np.abs(phase).max() < 6.5 * answer.noise.deviation
        assert np.sqrt(np.mean(phase**2)) > answer.noise.deviation / 2**11


def test_wrong_input(key: LevelledClientKey, server: LevelledEvaluator) -> None:
    query = key.encrypt(packed_query(PARAMETERS, np.arange(4)), 2)
    table = InnerProductTable(server, np.ones((3, 4), int))
    for wrong in (np.ones(4), np.ones((2, 4), int), np.zeros(0, int), np.zeros(4097, int)):
        with pytest.raises(ShapeError, match="vector"):
            packed_query(PARAMETERS, wrong)
    with pytest.raises(ParameterError, match="odd"):
        packed_query(LevelledParameters.of("bgv12", 65536), np.arange(4))
    for wrong in (
        np.ones((3, 4)),
        np.ones(4, int),
        np.ones((0, 4), int),
        np.ones((3, 0), int),
        np.ones((3, 5000), int),
    ):
        with pytest.raises(ShapeError):
            InnerProductTable(server, wrong)
    for offsets in (np.ones(2, int), np.ones(3)):
        with pytest.raises(ShapeError, match="offsets"):
            InnerProductTable(server, np.ones((3, 4), int), offsets)
    with pytest.raises(FheError):
        InnerProductTable(server, np.ones((3, 4), int), level=3)
    with pytest.raises(ShapeError, match="one ciphertext"):
        table.products(key.encrypt(np.zeros((2, 4096), int), 2))
    with pytest.raises(ShapeError, match="level"):
        table.products(key.encrypt(packed_query(PARAMETERS, np.arange(4)), 1))
    for scaled in (query, server.modulus_switch(key.encrypt(packed_query(PARAMETERS, np.arange(4)), 2), 1)):
        with pytest.raises(ShapeError, match="fresh|level"):
            table.products(replace(scaled, scale=5))
    with pytest.raises(ShapeError, match="fresh"):
        table.products_of_all([query, replace(query, scale=5)])
    assert table.products_of_all([]) == []
    for summands in (
        server.summands(np.ones(4096, int), 1),
        server.summands(np.ones((2, 4096), int), 2),
        server.summands(np.ones(4096, int), 2, 3),
    ):
        with pytest.raises(ShapeError, match="summands"):
            server.add_summands(query, summands)
    with pytest.raises(KeyMismatchError, match="no key for the automorphism"):
        InnerProductTable(LevelledEvaluator(PARAMETERS), np.ones((3, 4), int)).products(query)
    with pytest.raises(KeyMismatchError):
        table.products(LevelledClientKey.generate(PARAMETERS).encrypt(packed_query(PARAMETERS, np.arange(4)), 2))
