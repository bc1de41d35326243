"""Masks that no evaluation gives are refused, and those that it gives are taken."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.parameters import parameter_set, word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.answer_masks import LIMIT_LOG2, check_masks, most_zero_words
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts

SETS = ("toy", "toy_two_limb", "toy_lanes", "lut2", "lut3")
COUNT = 6


def uniform(name: str, seed: int, count: int = COUNT) -> np.ndarray:
    params = parameter_set(name)
    words = np.random.default_rng(seed).integers(0, params.modulus, (count, params.large_words), dtype=np.uint64)
    return words.astype(word_dtype(params))


def answer(name: str, words: np.ndarray) -> Ciphertexts:
    return Ciphertexts(parameter_set(name), words, words.shape[:1], encoding=Encoding.TORUS)


@pytest.mark.parametrize("words", [256, 1024, 2048, 4096])
@pytest.mark.parametrize("bits", [1, 3, 8, 12, 16, 27, 54])
def test_the_limit_is_that_of_a_binomial_tail(words: int, bits: int) -> None:
    """The sum of the exact tail, not its first term, is what must be small."""
    most = most_zero_words(words, bits)

    def log2(zeros: int) -> float:
        ways = (math.lgamma(words + 1) - math.lgamma(zeros + 1) - math.lgamma(words - zeros + 1)) / math.log(2)
        return ways - bits * zeros + (words - zeros) * math.log2(1 - 2.0**-bits)

    tail = math.log2(sum(2.0 ** max(log2(zeros), -1000) for zeros in range(most + 1, words + 1)))
    assert tail < LIMIT_LOG2 + 1
    assert most < words  # a mask of zeros is refused whatever the words are rounded to


@pytest.mark.parametrize("name", SETS)
def test_uniform_masks_are_taken(name: str) -> None:
    words = uniform(name, 1, 200)
    check_masks(answer(name, words))
    for bits in (1, 2, 5, 12, 20):
        check_masks(SwitchedCiphertexts.switch(answer(name, words), bits).expand())


def test_equal_ciphertexts_are_taken() -> None:
    """Two outputs of a program may be one wire; they differ only after re-randomisation."""
    words = uniform("toy", 2)
    words[3] = words[0]
    check_masks(answer("toy", words))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("attack", ["trivial", "one word", "half", "another body", "one word differs", "a block"])
def test_masks_that_show_the_key_are_refused(name: str, attack: str) -> None:
    words, dimension = uniform(name, 3), parameter_set(name).large_dimension
    match attack:
        case "trivial":
            words[2, :dimension] = 0
        case "one word":
            words[:, :dimension] = np.eye(COUNT, dimension, dtype=words.dtype)
        case "half":
            words[4, : dimension // 2] = 0
        case "another body":
            words[5, :dimension] = words[1, :dimension]
        case "one word differs":
            words[5, :dimension] = words[1, :dimension]
            words[5, 7] ^= 1
        case "a block":
            words[5, : dimension // 8] = words[1, : dimension // 8]
    with pytest.raises(SerializationError, match=r"zero, got|same words"):
        check_masks(answer(name, words))


def test_few_bits_are_refused_too() -> None:
    words = uniform("toy", 4)
    words[1, :-1] = 0
    switched = SwitchedCiphertexts.switch(answer("toy", words), 9)
    assert SwitchedCiphertexts.from_bytes(switched.to_bytes()).expand().rounded_bits == 9
    with pytest.raises(SerializationError, match="zero, got 256"):
        check_masks(switched.expand())


def test_what_a_session_sends_is_taken() -> None:
    """Constants and equal wires too, once they are re-randomised."""
    key = ClientKey.generate("toy")
    session = Session(key.evaluation_keys())
    none = np.zeros_like(uniform("toy", 0))
    trivial = Ciphertexts(key.parameters, none, (COUNT,), encoding=Encoding.TORUS, key_id=key.key_id)
    check_masks(session.rerandomise(trivial))
