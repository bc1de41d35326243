"""Masks of levelled answers, looked at before decryption as those of look-ups are (`fhe_core/session/answer_masks.py`), and with the same limits.

A mask of few coefficients makes phases of few coefficients of the key each, and so do two masks that differ in few. One that is zero altogether shows
nothing: a server gives it where weights are all zero.
"""

from __future__ import annotations

import math

import numpy as np

from cloakwork.fhe_core.levelled.backends import on_host
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.rounded import digits
from cloakwork.fhe_core.session.answer_masks import has_twins, most_zero_words, sparse_masks, twin_masks, twin_width


def check_masks(ciphertexts: LevelledCiphertexts) -> None:
    """Raises: SerializationError: a mask of few coefficients, or one that has many in common with another's."""
    parameters, level = ciphertexts.parameters, min(ciphertexts.level, 2)
    mixed_radix = digits(parameters, np.ascontiguousarray(on_host(ciphertexts.words)[:, 1])).astype(np.uint64)
    masks = mixed_radix[:, 0] >> np.uint64(ciphertexts.dropped_bits)
    if level > 1:
        masks |= mixed_radix[:, 1] << np.uint64(32)
    word_bits = sum(map(math.log2, parameters.set.primes[:level])) - ciphertexts.dropped_bits
    zeros = (masks == 0).sum(axis=1)
    zeros = int(zeros[zeros < masks.shape[1]].max(initial=0))
    if zeros > (most := most_zero_words(masks.shape[1], word_bits)):
        raise sparse_masks(zeros, most, masks.shape[1])
    if has_twins(masks, masks, twin_width(masks.shape[1], word_bits)):
        raise twin_masks()
