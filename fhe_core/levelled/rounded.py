"""Ciphertexts without their last bits: fewer bytes than a whole prime less would save.

A phase is m + t e, so a ciphertext over t modulo Q has e in its last bits, and m over t above all of them. Coefficients are taken over t and
written in mixed radix, d_0 + d_1 q_0 + d_2 q_0 q_1 + .., d_i < q_i; the last `bits` of d_0 are replaced by the middle of what they can be. That adds
t times a number of at most 2^(bits - 1) to each coefficient. The rest is computed with as before.

Source: [AP13] appendix A, messages in the last bits and in the first ones are a factor t apart. Ours: the digits.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

MOST_BITS: Final = 27  # of the first digit's 28
Words: TypeAlias = NDArray[np.uint32]


def digits(parameters: LevelledParameters, words: Words) -> Words:
    """Returns mixed radix digits of coefficients over t. Args: words: transformed, [.., level, N]. Returns: [.., level, N], d_0 first."""
    level, t = words.shape[-2], parameters.plaintext_modulus
    primes = parameters.set.primes[:level]
    coefficients = parameters.engine.transform(words.reshape(-1, *words.shape[-2:]), True).astype(np.uint64)
    mixed_radix = np.empty_like(coefficients)
    for i, q in enumerate(primes):
        rest = coefficients[:, i] * np.uint64(pow(t, -1, q)) % np.uint64(q)
        for j in range(i):
            rest = (
                (rest + np.uint64(q) - mixed_radix[:, j] % np.uint64(q))
                * np.uint64(pow(primes[j], -1, q))
                % np.uint64(q)
            )
        mixed_radix[:, i] = rest
    return mixed_radix.astype(np.uint32).reshape(words.shape)


def from_digits(parameters: LevelledParameters, mixed_radix: Words) -> Words:
    """Inverts `digits`."""
    level, t = mixed_radix.shape[-2], parameters.plaintext_modulus
    primes, wide = parameters.set.primes[:level], mixed_radix.reshape(-1, *mixed_radix.shape[-2:]).astype(np.uint64)
    words = np.empty_like(wide)
    for i, q in enumerate(primes):
        value = np.zeros_like(wide[:, 0])
        for j in reversed(range(level)):
            value = (value * np.uint64(primes[j]) + wide[:, j]) % np.uint64(q)
        words[:, i] = value * np.uint64(t) % np.uint64(q)
    return parameters.engine.transform(words.astype(np.uint32), False).reshape(mixed_radix.shape)


def without_bits(parameters: LevelledParameters, words: Words, bits: int) -> Words:
    """Puts the last bits of coefficients of words [.., level, N] in the middle of what they can be. Raises: ParameterError: not 0 to 27 bits."""
    if not 0 <= bits <= MOST_BITS:
        raise ParameterError(f"bits: expected 0 to {MOST_BITS}, got {bits}")
    if bits == 0:
        return words
    # The first digit alone changes, and with it the coefficient by t times as much.
    t, rows = parameters.plaintext_modulus, words.reshape(-1, *words.shape[-2:])
    primes = np.array(parameters.set.primes[: words.shape[-2]], dtype=np.int64)[:, None]
    coefficients = parameters.engine.transform(np.ascontiguousarray(rows[:, :1]), True).astype(np.uint64)
    first_digits = (coefficients * np.uint64(pow(t, -1, int(primes[0, 0]))) % np.uint64(primes[0, 0])).astype(np.uint32)
    change = middle(parameters, first_digits >> np.uint32(bits), bits).astype(np.int64) - first_digits  # below 2^27
    added = parameters.engine.transform((change * t % primes).astype(np.uint32), False)
    return parameters.engine.add(rows, added).reshape(words.shape)


def middle(parameters: LevelledParameters, shifted: Words, bits: int) -> Words:
    """Puts the middle in place of the last bits, which are gone, of first digits; below the prime. So taken away they are the same again."""
    first_digits: Words = np.minimum(
        (shifted << np.uint32(bits)) + np.uint32(1 << (bits - 1)), np.uint32(parameters.set.primes[0] - 1)
    )
    return first_digits
