"""Ciphertexts without their last bits: what they decrypt to, their noise and bytes, and what a stranger may write."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest

from cloakwork.fhe_core.errors import ParameterError, SerializationError
from cloakwork.fhe_core.levelled import noise, wire
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.rounded import digits, from_digits

PARAMETERS = LevelledParameters.of("toy_bgv12", 65537)
SIZE = PARAMETERS.polynomial_size
AROUND = wire.HEADER_BYTES + wire.CHECKSUM_BYTES


@pytest.fixture(scope="module")
def key() -> LevelledClientKey:
    return LevelledClientKey._from_entropy(PARAMETERS, bytes(range(32)))


def phases(key: LevelledClientKey, ciphertexts: LevelledCiphertexts) -> np.ndarray:
    """Centred integers [batch, N]."""
    primes = PARAMETERS.set.primes[: ciphertexts.level]
    modulus = math.prod(primes)
    words = key.phases(ciphertexts).astype(object)
    total = sum(words[:, i] * pow(modulus // q, -1, q) % q * (modulus // q) for i, q in enumerate(primes)) % modulus
    return np.where(total > modulus // 2, total - modulus, total).astype(float)


@pytest.mark.parametrize("level", [1, 2, 4])
def test_digits_are_the_coefficients(key: LevelledClientKey, level: int) -> None:
    """Over t, by integers of any size."""
    primes, modulus = PARAMETERS.set.primes[:level], math.prod(PARAMETERS.set.primes[:level])
    words = key.encrypt(np.arange(SIZE), level).words
    found = digits(PARAMETERS, words)
    assert (found < np.array(primes, dtype=np.uint32)[:, None]).all()
    np.testing.assert_array_equal(from_digits(PARAMETERS, found), words)
    radix = [math.prod(primes[:i]) for i in range(level)]
    integers = sum(found[0, :, i].astype(object) * radix[i] for i in range(level)) * 65537 % modulus
    coefficients = PARAMETERS.engine.transform(words[0], True)
    for i, q in enumerate(primes):
        np.testing.assert_array_equal((integers % q).astype(np.uint32), coefficients[:, i])


@pytest.mark.parametrize(("level", "bits"), [(1, 1), (1, 3), (2, 13), (2, 24), (4, 27)])
def test_there_and_back(key: LevelledClientKey, level: int, bits: int) -> None:
    messages = np.random.default_rng(bits).integers(0, 65537, (3, SIZE))
    exact = key.encrypt(messages, level)
    rounded = exact.rounded(bits)
    data = rounded.to_bytes()
    assert len(data) == AROUND + 8 * len(rounded.noise.variances) + 3 * 2 * SIZE * (28 * level - bits) // 8
    loaded = LevelledCiphertexts.from_bytes(data, PARAMETERS)
    np.testing.assert_array_equal(loaded.words, rounded.words)
    assert (loaded.noise, loaded.dropped_bits) == (rounded.noise, bits) and loaded.to_bytes() == data
    np.testing.assert_array_equal(key.decrypt(loaded), messages)
    added = phases(key, rounded) - phases(key, exact)
    assert math.sqrt(np.mean(added**2)) == pytest.approx(noise.dropped(PARAMETERS, bits).deviation, rel=0.15)

    seeded = key.encrypt_seeded(messages, level)
    short = seeded.rounded(bits)
    data = short.to_bytes()
    assert len(data) == AROUND + 32 + 3 * SIZE * (28 * level - bits) // 8
    read = SeededLevelledCiphertexts.from_bytes(data, PARAMETERS)
    assert read.expand().noise == short.expand().noise and read.to_bytes() == data
    np.testing.assert_array_equal(key.decrypt(read.expand()), messages)
    added = phases(key, read.expand()) - phases(key, seeded.expand())
    assert np.abs(added).max() <= 65537 * 2 ** (bits - 1)
    assert math.sqrt(np.mean(added**2)) == pytest.approx(noise.dropped(PARAMETERS, bits, 1).deviation, rel=0.08)


def test_results_have_all_bits(key: LevelledClientKey) -> None:
    """What is computed from rounded ciphertexts is not sent as if it were rounded itself."""
    server = LevelledEvaluator(PARAMETERS, key.evaluation_keys((3,)))
    x = key.encrypt(np.ones(SIZE, dtype=int)).rounded(9)
    assert x.rounded(0).dropped_bits == 0
    for result in (server.add(x, x), server.automorphism(x, 3), server.modulus_switch(x, 2), server.concatenate([x])):
        assert result.dropped_bits == 0
        np.testing.assert_array_equal(LevelledCiphertexts.from_bytes(result.to_bytes()).words, result.words)
    part = server.take(server.concatenate([x, x]), slice(0, 1))
    assert part.dropped_bits == 0


def test_what_a_stranger_writes(key: LevelledClientKey) -> None:
    messages = np.zeros((1, SIZE), dtype=int)
    for wrong in (-1, 28):
        with pytest.raises(ParameterError, match="0 to 27"):
            key.encrypt(messages).rounded(wrong)
    read = {
        key.encrypt(messages, 2).rounded(12).to_bytes(): LevelledCiphertexts.from_bytes,
        key.encrypt_seeded(messages, 2).rounded(12).to_bytes(): SeededLevelledCiphertexts.from_bytes,
    }
    for data, reader in read.items():
        for place, value in ((69, 0), (69, 11), (69, 28), (69, 255), (68, 1), (-40, 255)):
            changed = bytearray(data)
            changed[place] = value
            if place < 0:  # a later digit, at its most
                changed[-39 : -wire.CHECKSUM_BYTES] = b"\xff" * 7
            body = bytes(changed[: -wire.CHECKSUM_BYTES])
            with pytest.raises(SerializationError):
                reader(body + hashlib.sha256(body).digest())
    first = bytearray(key.encrypt_seeded(messages, 2).rounded(1).to_bytes())
    first[wire.HEADER_BYTES + 32 : wire.HEADER_BYTES + 36] = b"\xff" * 4
    body = bytes(first[: -wire.CHECKSUM_BYTES])
    with pytest.raises(SerializationError, match="below its prime"):
        SeededLevelledCiphertexts.from_bytes(body + hashlib.sha256(body).digest())


def test_too_few_bits_are_refused(key: LevelledClientKey) -> None:
    """Where noise would not leave room an answer says so."""
    server = LevelledEvaluator(PARAMETERS, None)
    with pytest.raises(ParameterError, match="decrypt wrongly"):
        server.add(*(2 * [key.encrypt(np.ones(SIZE, dtype=int), 1).rounded(12)]))
    assert replace(key.encrypt(np.ones(SIZE, dtype=int), 1).rounded(12)).failure_log2 > -128
