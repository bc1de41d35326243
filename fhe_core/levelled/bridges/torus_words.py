"""Words of levelled arithmetic as words of look-ups and back: residues modulo primes p, of Q_l = p_1 .. p_l, and torus words modulo Q.

Every result is exact integer arithmetic as its function says, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.words import Phases

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Gadget:
    """Digits of torus words: `level_count` of `base_log` bits each, from the top; what is below them is rounded away."""

    base_log: int
    level_count: int

    def dropped_bits(self, params: ParameterSet) -> int:
        return 27 * params.limb_count - self.base_log * self.level_count

    def weights(self, params: ParameterSet) -> list[int]:
        """Returns the weights of digits, the most significant first."""
        last = self.dropped_bits(params)
        return [1 << (last + self.base_log * (self.level_count - 1 - i)) for i in range(self.level_count)]


def torus_words(residues: Words, factors: Sequence[int], primes: Sequence[int], modulus: int) -> Phases:
    """sum over i of round(a_i Q / p_i) modulo Q, a_i = residue i times factor i modulo p_i.

    Args:
        residues: [.., level, N].

    Returns:
        uint64 [.., N].
    """
    total = np.zeros((*residues.shape[:-2], residues.shape[-1]), dtype=np.uint64)
    for i, (factor, prime) in enumerate(zip(factors, primes, strict=True)):
        quotient, rest = divmod(modulus, prime)
        a = residues[..., i, :].astype(np.uint64) * np.uint64(factor % prime) % np.uint64(prime)
        total += a * np.uint64(quotient) + (a * np.uint64(rest) + np.uint64(prime // 2)) // np.uint64(prime)
        total %= np.uint64(modulus)
    return total


def scaled_residues(words: Phases, primes: Sequence[int], modulus: int) -> Words:
    """Rounds torus words x to floor((x Q_l + Q / 2) / Q), modulo each of the primes.

    Args:
        words: [.., N].

    Returns:
        uint32 [.., level, N].
    """
    big = np.uint64(modulus)
    parts, rest = [], words.astype(np.uint64)
    for prime in primes:  # x Q_l / Q = (x p_1 / Q) p_2 .. : integer parts, and what is left goes on
        digit = (rest * (prime / modulus)).astype(np.uint64)  # off by one at most: 28 bits by doubles
        left = (rest * np.uint64(prime) - digit * big).view(np.int64)  # exact modulo 2^64
        off = (left >= modulus).astype(np.int64) - (left < 0)
        parts.append((digit.view(np.int64) + off).view(np.uint64))
        rest = (left - off * modulus).view(np.uint64)
    parts[-1] += rest >= big - rest
    residues = np.empty((*words.shape[:-1], len(primes), words.shape[-1]), dtype=np.uint32)
    for i, prime in enumerate(primes):
        value = np.zeros_like(rest)
        for part, base in zip(parts, primes, strict=True):
            value = (value * np.uint64(base % prime) + part) % np.uint64(prime)
        residues[..., i, :] = value
    return residues


def signed_digits(words: Phases, params: ParameterSet, gadget: Gadget) -> NDArray[np.int64]:
    """Digits of centred words, as section 4 of docs/reference/specification.md has them, the most significant first: [levels, .., N]."""
    dropped, base = gadget.dropped_bits(params), gadget.base_log
    half = 1 << (base - 1)
    left = words.astype(np.int64)
    left = np.where(left > params.modulus // 2, left - params.modulus, left)
    if dropped:
        left = (left + (1 << (dropped - 1))) >> dropped
    digits = np.empty((gadget.level_count, *words.shape), dtype=np.int64)
    for level in range(gadget.level_count - 1, 0, -1):
        digits[level] = ((left + half) & ((1 << base) - 1)) - half
        left = (left - digits[level]) >> base
    digits[0] = left
    return digits


def small_residues(values: NDArray[np.int64], primes: Sequence[int]) -> Words:
    """Integers [.., N] modulo each of the primes: [.., primes, N]."""
    moduli = np.array(primes, dtype=np.int64)[:, None]
    return (values[..., None, :] % moduli).astype(np.uint32)


def composed(residues: Words, primes: Sequence[int], modulus: int) -> Phases:
    """Returns the integers within a quarter of the primes' product that these are residues of, modulo Q.

    Args:
        residues: [.., primes, N].

    Returns:
        uint64 [.., N], by way of mixed radix digits.
    """
    digits: list[NDArray[np.uint64]] = []
    for i, prime in enumerate(primes):
        p, value = np.uint64(prime), residues[..., i, :].astype(np.uint64)
        below = np.zeros_like(value)  # what the digits found so far are modulo this prime
        for digit, base in zip(reversed(digits), reversed(primes[:i]), strict=True):
            below = (below * np.uint64(base % prime) + digit) % p
        product = 1
        for base in primes[:i]:
            product = product * base % prime
        digits.append((value + p - below) % p * np.uint64(pow(product, -1, prime)) % p)
    total, whole, product = np.zeros_like(digits[0]), 1, 1
    for digit, base in zip(digits, primes, strict=True):
        total = (total + _product(digit, product, modulus)) % np.uint64(modulus)
        product = product * base % modulus
        whole *= base
    negative = digits[-1] > primes[-1] // 2
    return np.where(negative, (total + np.uint64(modulus - whole % modulus)) % np.uint64(modulus), total)


def _product(small: NDArray[np.uint64], constant: int, modulus: int) -> NDArray[np.uint64]:
    """small times constant modulo Q: numbers of 28 and 54 bits."""
    big = np.uint64(modulus)
    high, low = divmod(constant, 1 << 27)
    upper = small * np.uint64(high) % big
    for _ in range(3):  # times 2^27, nine bits at a time
        upper = (upper << np.uint64(9)) % big
    return (upper + small * np.uint64(low)) % big
