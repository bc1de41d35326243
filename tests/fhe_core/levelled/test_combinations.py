"""Integer combinations of ciphertexts are those by `scale` and `add`, and forecasts what evaluators do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.levelled.backends import backend_of
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.forecast import Foreseen, LevelledForecast
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.slots import Slots


@pytest.mark.parametrize(("rows", "terms"), [(1, 1), (3, 5), (40, 300)])
def test_combinations(rows: int, terms: int) -> None:
    """Word by word, at the largest words and weights too."""
    parameters = LevelledParameters.of("bgv12", 65537)
    backend, rng = backend_of(parameters.engine, "cpu", 2), np.random.default_rng(1)
    primes = np.array(parameters.set.primes[:2], dtype=np.uint32)[:, None]
    words = rng.integers(0, primes, (terms, 2, 2, parameters.polynomial_size), dtype=np.uint32)
    words[0] = primes - 1
    most = ((1 << 25) - 1) // terms
    weights = rng.integers(-most, most + 1, (rows, terms))
    weights[0] = most
    found = backend.combine(words, weights)
    residues = [words[:, :, i].astype(np.int64).reshape(terms, -1) for i in range(2)]
    for i, prime in enumerate(parameters.set.primes[:2]):
        expected = np.zeros((rows, residues[i].shape[1]), dtype=np.int64)
        for k in range(terms):
            expected = (expected + weights[:, k, None] * residues[i][k]) % prime
        np.testing.assert_array_equal(found[:, :, i].reshape(rows, -1), expected)


def test_they_are_sums() -> None:
    parameters = LevelledParameters.of("bgv12", (1 << 26) - 1)
    key, server = LevelledClientKey.generate(parameters), LevelledEvaluator(parameters)
    rng = np.random.default_rng(2)
    x = rng.integers(-100, 101, (5, parameters.polynomial_size))
    weights = rng.integers(-1000, 1001, (3, 5))
    found = server.combine(key.encrypt(x), weights, independent=True)
    np.testing.assert_array_equal(key.decrypt(found, signed=True), weights @ x)


def test_wrong_weights() -> None:
    parameters = LevelledParameters.of("bgv12", 65537)
    key, server = LevelledClientKey.generate(parameters), LevelledEvaluator(parameters)
    a = key.encrypt(np.zeros((2, parameters.polynomial_size), dtype=np.int64))
    wrong: list[Any] = [[1, 2], [[1, 2, 3]], [[0.5, 1]], np.zeros((0, 2), dtype=int)]
    for weights in wrong:
        with pytest.raises(ShapeError, match="weights"):
            server.combine(a, weights)
    with pytest.raises(ParameterError, match="2\\^25"):
        server.combine(a, [[1 << 25, 0]])
    with pytest.raises(ParameterError, match="wrongly"):
        server.combine(key.encrypt(np.zeros((1, parameters.polynomial_size), dtype=int), 1), [[1 << 24]])


def test_forecasts() -> None:
    """The same levels and noise, operation by operation."""
    parameters = LevelledParameters.of("bgv13", 65537)
    key, slots, forecast = LevelledClientKey.generate(parameters), Slots(parameters), LevelledForecast(parameters)
    server = LevelledEvaluator(parameters, key.evaluation_keys())
    x = np.arange(2 * slots.count).reshape(2, -1) % 50
    a, b = key.encrypt(slots.encode(x), 4), forecast.fresh(2, 4)
    weights = np.array([[1, -2], [3, 4], [5, 0]])

    def same(done: Any, foreseen: Foreseen) -> None:
        assert (len(done), done.level, done.noise) == (len(foreseen), foreseen.level, foreseen.noise)

    same(a, b)
    a, b = server.combine(a, weights, independent=True), forecast.combine(b, weights, independent=True)
    same(a, b)
    a, b = server.add_plain(a, x[:1]), forecast.add_plain(b, x[:1])
    same(a, b)
    a, b = server.rescale(a), forecast.rescale(b)
    same(a, b)
    a, b = server.multiply(a, a), forecast.multiply(b, b)
    same(a, b)
    a, b = server.add(a, a), forecast.add(b, b)
    same(a, b)
    least = forecast.least_level(b)
    a, b = server.modulus_switch(a, least), forecast.modulus_switch(b, least)
    same(a, b)
    assert forecast.work.transforms > 0 and forecast.work.products > 0
    with pytest.raises(ParameterError):
        forecast.multiply(forecast.fresh(1, 1), forecast.fresh(1, 1))
