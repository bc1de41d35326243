"""Sums of products of ciphertexts with one keyswitch: against the products one by one, their noise, and wrong input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cloakwork.fhe_core.errors import KeyMismatchError, ShapeError
from cloakwork.fhe_core.levelled import noise
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

PARAMETERS = LevelledParameters.of("toy_bgv12", 65537)
SIZE = PARAMETERS.polynomial_size
RNG = np.random.default_rng(18)


@pytest.fixture(scope="module")
def key() -> LevelledClientKey:
    return LevelledClientKey._from_entropy(PARAMETERS, bytes(range(32)))


@pytest.fixture(scope="module")
def server(key: LevelledClientKey) -> LevelledEvaluator:
    return LevelledEvaluator(PARAMETERS, key.evaluation_keys(), threads=2)


@pytest.mark.parametrize(("terms", "results"), [(1, 1), (3, 1), (1, 4), (5, 2)])
def test_sums_are_those_of_products(
    key: LevelledClientKey, server: LevelledEvaluator, terms: int, results: int
) -> None:
    left, right = RNG.integers(0, 65537, (terms * results, SIZE)), RNG.integers(0, 65537, (terms, SIZE))
    a, b = key.encrypt(left, 3), key.encrypt(right, 3)
    found = key.decrypt(server.multiply_sum(a, b))
    one_by_one = np.stack(
        [key.decrypt(server.multiply(server.take(a, slice(i, i + 1)), server.take(b, slice(k, k + 1))))[0]
         for k in range(terms) for i in range(k * results, (k + 1) * results)]
    )  # fmt: skip
    np.testing.assert_array_equal(found, one_by_one.reshape(terms, results, SIZE).sum(axis=0) % 65537)


def test_roundings_count_as_independent(key: LevelledClientKey, server: LevelledEvaluator) -> None:
    """Of ciphertexts that were divided each by itself: foreseen noise grows with the root of the terms, and is above what is measured."""
    terms = 24
    zeros = np.zeros((terms, SIZE), dtype=int)
    a = server.modulus_switch(key.encrypt(zeros), 3)
    b = server.modulus_switch(server.concatenate([key.encrypt(zeros[:1])] * terms), 3)  # the same in every term
    dependent, independent = (server.multiply_sum(a, b, rounded=primes) for primes in (0, 1))
    np.testing.assert_array_equal(dependent.words, independent.words)
    assert dependent.noise.deviation > 4 * independent.noise.deviation
    primes = PARAMETERS.set.primes[:3]
    modulus = math.prod(primes)
    words = key.phases(independent).astype(object)
    total = sum(words[:, i] * pow(modulus // q, -1, q) % q * (modulus // q) for i, q in enumerate(primes)) % modulus
    phase = np.where(total > modulus // 2, total - modulus, total).astype(float)
    assert 0.3 * independent.noise.deviation < np.std(phase) < 1.08 * independent.noise.deviation


def test_what_is_not_rounding_counts_as_dependent() -> None:
    """Nothing is left out: with no rounding all deviations add up, and parts add up to the whole."""
    a, b = noise.fresh(PARAMETERS), noise.rounding(PARAMETERS, 1)
    plain = noise.sum_of_products(a, b, PARAMETERS, 9, 0)
    assert plain.deviation == pytest.approx(9 * a.times(b, SIZE).deviation)
    divided = noise.after_division(a, PARAMETERS, PARAMETERS.set.primes[3], 1)
    assert noise.sum_of_products(divided, b, PARAMETERS, 1, 1).deviation == pytest.approx(
        divided.times(b, SIZE).deviation, rel=0.01
    )


def test_wrong_input(key: LevelledClientKey, server: LevelledEvaluator) -> None:
    x = key.encrypt(np.zeros((3, SIZE), dtype=int))
    for a, b in (
        (x, server.take(x, slice(0, 2))),
        (server.take(x, slice(0, 1)), x),
        (server.modulus_switch(x, 3), x),
    ):
        with pytest.raises(ShapeError, match="multiple of"):
            server.multiply_sum(a, b)
    with pytest.raises(KeyMismatchError, match="products"):
        LevelledEvaluator(PARAMETERS).multiply_sum(x, x)
    stranger = LevelledClientKey.generate(PARAMETERS).encrypt(np.zeros((3, SIZE), dtype=int))
    with pytest.raises(KeyMismatchError):
        server.multiply_sum(x, stranger)
