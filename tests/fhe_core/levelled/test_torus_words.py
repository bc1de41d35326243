"""Words of levelled arithmetic as words of look-ups and back: as they are defined, in integers of any size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cloakwork.fhe_core.levelled.bridges.torus_words import (
    Gadget,
    composed,
    scaled_residues,
    signed_digits,
    small_residues,
    torus_words,
)
from cloakwork.fhe_core.levelled.large_ntt import transform_primes
from cloakwork.fhe_core.parameters import parameter_set


@pytest.mark.parametrize("lookups", ["toy", "toy_two_limb"])
@pytest.mark.parametrize("level", [1, 2, 7])
def test_words_are_scaled_as_they_are_defined(lookups: str, level: int) -> None:
    params, primes = parameter_set(lookups), transform_primes(12, level)
    q, modulus, rng = params.modulus, math.prod(primes), np.random.default_rng(1)
    x = np.concatenate([[0, 1, q // 2, q // 2 + 1, q - 1], rng.integers(0, q, 200)]).astype(np.uint64)
    expected = [(int(each) * modulus + q // 2) // q for each in x]
    found = scaled_residues(x[None], primes, q)[0]
    assert found.tolist() == [[each % p for each in expected] for p in primes]

    values = [0, 1, modulus // 2, modulus - 1, *(int.from_bytes(rng.bytes(40), "little") % modulus for _ in range(200))]
    residues = np.array([[[each % p for each in values] for p in primes]], dtype=np.uint32)
    factors = [int(f) for f in rng.integers(1, 1 << 27, level)]
    parts = [[(each % p) * f % p for each in values] for p, f in zip(primes, factors, strict=True)]
    rounded = [
        sum((a * q + p // 2) // p for a, p in zip(column, primes, strict=True)) % q
        for column in zip(*parts, strict=True)
    ]
    assert torus_words(residues, factors, primes, q)[0].tolist() == rounded


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("modulus", [132710401, 132710401 * 134176769])
def test_residues_become_integers_again(count: int, modulus: int) -> None:
    primes = transform_primes(12, count)
    most, rng = math.prod(primes) // 4, np.random.default_rng(2)
    values = [0, 1, -1, most, -most, *(int.from_bytes(rng.bytes(16), "little") % (2 * most) - most for _ in range(300))]
    residues = np.array([[each % p for each in values] for p in primes], dtype=np.uint32)
    assert composed(residues, primes, modulus).tolist() == [each % modulus for each in values]


@pytest.mark.parametrize("lookups", ["toy", "toy_two_limb"])
@pytest.mark.parametrize("gadget", [Gadget(1, 1), Gadget(9, 3), Gadget(4, 6), Gadget(26, 1)])
def test_digits_are_those_of_the_specification(lookups: str, gadget: Gadget) -> None:
    params = parameter_set(lookups)
    q, drop = params.modulus, gadget.dropped_bits(params)
    x = np.concatenate([[0, 1, q // 2, q // 2 + 1, q - 1], np.random.default_rng(3).integers(0, q, 500)]).astype(
        np.uint64
    )
    digits = signed_digits(x, params, gadget)
    total = sum(w * d.astype(object) for w, d in zip(gadget.weights(params), digits, strict=True))
    signed = np.where(x > q // 2, x.astype(object) - q, x.astype(object))
    assert (np.abs(total - signed) <= (1 << drop) // 2).all()
    assert (np.abs(digits) <= 1 << (gadget.base_log - 1)).all()
    assert (digits[1:] < 1 << (gadget.base_log - 1)).all()
    residues = small_residues(digits, [5, 7])
    assert residues.shape == (gadget.level_count, 2, len(x)) and (residues[:, 0] == digits % 5).all()
