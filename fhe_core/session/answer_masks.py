"""Masks of answers, looked at before decryption: those of an evaluation are as good as uniform and independent.

A phase is the body less the product of mask and secret key. Masks that are zero almost everywhere, or that differ in few words, make phases of
single coefficients of the key. No evaluation that ends in `Session.rerandomise` gives such answers, but for LIMIT_LOG2. It is no proof of an honest
answer: a mask of random words with a known relation to another passes (docs/howto/client.md).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.arrays.device_words import on_host
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.errors import SerializationError

__all__ = ["LIMIT_LOG2", "check_masks", "has_twins", "most_zero_words", "sparse_masks", "twin_masks", "twin_width"]

LIMIT_LOG2: Final = -96  # log2 of the probability that an honest ciphertext is refused: -64 for 2^32 of them
_BLOCK_BITS: Final = 128  # words that two honest masks never have in common
_MOST_BLOCKS: Final = 64
_HASH: Final = 0x9E3779B97F4A7C15


@cache
def most_zero_words(words: int, word_bits: float) -> int:
    """Returns t, the least with C(words, t + 1) 2^(-bits (t + 1)) below 2^LIMIT_LOG2: uniform words have more zeros with at most that probability."""
    zeros, log2 = 0, math.log2(words) - word_bits
    while zeros < words and log2 >= LIMIT_LOG2:
        zeros += 1
        log2 += math.log2(max(words - zeros, 1) / (zeros + 1)) - word_bits
    return zeros


def check_masks(ciphertexts: Ciphertexts) -> None:
    """Checks the masks of an answer. Raises: SerializationError: a mask has more zero words than uniform ones have, or as many words as have 128
    bits in common with another's."""
    params = ciphertexts.parameters
    rows = np.ascontiguousarray(on_host(ciphertexts.words)).reshape(-1, params.large_words)
    masks = rows[:, : params.large_dimension]
    word_bits = math.log2(params.modulus) if ciphertexts.rounded_bits is None else float(ciphertexts.rounded_bits)
    zeros = int((masks == 0).sum(axis=1).max(initial=0))
    if zeros > (most := most_zero_words(params.large_dimension, word_bits)):
        raise sparse_masks(zeros, most, params.large_dimension)
    if has_twins(rows, masks, twin_width(params.large_dimension, word_bits)):
        raise twin_masks()


def sparse_masks(zeros: int, most: int, words: int) -> SerializationError:
    """Makes the error of a mask that has more zero words than uniform ones have."""
    return SerializationError(
        f"answer: expected masks of random words, at most {most} of {words} of them zero, got {zeros}; no evaluation gives it, and its decryption "
        "would show the secret key: do not trust this server"
    )


def twin_masks() -> SerializationError:
    return SerializationError(
        "answer: expected masks that differ, got two with the same words; no evaluation gives them, and the difference of their decryptions "
        "would show the secret key: do not trust this server"
    )


def twin_width(words: int, word_bits: float) -> int:
    """Returns the number of words at the same place that two masks never have in common."""
    return max(math.ceil(_BLOCK_BITS / word_bits), math.ceil(words / _MOST_BLOCKS))


def has_twins(rows: NDArray[np.unsignedinteger], masks: NDArray[np.unsignedinteger], width: int) -> bool:
    """Whether two masks have the same block of `width` words at the same place, in ciphertexts that are not the same altogether."""
    count, blocks = len(masks), masks.shape[1] // width
    if count < 2:
        return False
    parts = masks[:, : blocks * width].reshape(count, blocks, width)
    with np.errstate(over="ignore"):
        factors = np.uint64(_HASH) ** np.arange(1, width + 1, dtype=np.uint64)
        hashes = np.zeros((count, blocks), dtype=np.uint64)
        for i, factor in enumerate(factors):
            hashes += parts[:, :, i] * factor
    order = np.argsort(hashes, axis=0, kind="stable")
    ordered = np.take_along_axis(hashes, order, axis=0)
    for place, block in np.argwhere(ordered[1:] == ordered[:-1]):
        one, other = order[place, block], order[place + 1, block]
        if np.array_equal(parts[one, block], parts[other, block]) and not np.array_equal(rows[one], rows[other]):
            return True
    return False
