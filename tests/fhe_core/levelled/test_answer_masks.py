"""Levelled answers whose masks show the key are refused; those of an evaluation, of outputs alike, and zeros are taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.levelled.answer_masks import check_masks
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

PARAMETERS = LevelledParameters.of("toy_bgv12", 65537)
SIZE = PARAMETERS.polynomial_size
ROUNDED = ((1, 0), (1, 12), (2, 0), (2, 20), (4, 0))  # primes of an answer, bits that are dropped


@pytest.fixture(scope="module")
def key() -> LevelledClientKey:
    return LevelledClientKey._from_entropy(PARAMETERS, bytes(range(32)))


def polynomial(level: int, coefficients: np.ndarray) -> np.ndarray:
    """Transformed [level, N]. Args: coefficients: [N]."""
    primes = np.array(PARAMETERS.set.primes[:level], dtype=np.int64)[:, None]
    return PARAMETERS.engine.transform((coefficients % primes).astype(np.uint32)[None], False)[0]


def received(answer: LevelledCiphertexts, bits: int) -> LevelledCiphertexts:
    return LevelledCiphertexts.from_bytes((answer.rounded(bits) if bits else answer).to_bytes())


@pytest.mark.parametrize(("level", "bits"), ROUNDED)
def test_masks_of_few_coefficients_are_refused(key: LevelledClientKey, level: int, bits: int) -> None:
    honest = key.encrypt(np.zeros(SIZE, dtype=np.int64), level)
    words = np.zeros_like(honest.words)
    words[:, 1] = polynomial(level, np.eye(1, SIZE, 7, dtype=np.int64)[0])
    hostile = replace(honest, words=words)
    assert set(np.unique(key.decrypt(hostile, signed=True))) == {-1, 0, 1}, "it would read the ternary key"
    with pytest.raises(SerializationError, match="zero, got 40[0-9]+; .* do not trust this server"):
        check_masks(received(hostile, bits))


@pytest.mark.parametrize(("level", "bits"), ROUNDED)
def test_masks_that_differ_in_few_coefficients_are_refused(key: LevelledClientKey, level: int, bits: int) -> None:
    honest = key.encrypt(np.zeros((3, SIZE), dtype=np.int64), level)
    words = honest.words.copy()
    few = np.eye(1, SIZE, 7, dtype=np.int64)[0] << 20
    words[2, 1] = PARAMETERS.engine.add(words[0, 1][None], polynomial(level, few)[None])[0]
    with pytest.raises(SerializationError, match="two with the same words"):
        check_masks(received(replace(honest, words=words), bits))


@pytest.mark.parametrize(("level", "bits"), ROUNDED)
def test_answers_of_an_evaluation_are_taken(key: LevelledClientKey, level: int, bits: int) -> None:
    """Sums, the same output twice, with another constant, and a zero of all weights."""
    rng = np.random.default_rng(level)
    fresh = key.encrypt(rng.integers(0, 100, (8, SIZE)), level)
    evaluator = LevelledEvaluator(PARAMETERS)
    total = evaluator.add(fresh, fresh)
    words = np.concatenate([total.words, total.words[:1], total.words[:1], np.zeros_like(total.words[:1])])
    words[-2:, 0] = polynomial(level, np.arange(SIZE))
    check_masks(received(replace(total, words=words), bits))
