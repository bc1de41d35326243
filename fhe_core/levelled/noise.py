"""The noise of a levelled ciphertext's phase, in units of 1: fresh, after each operation, and how likely it is to wrap.

A phase is v = D + R: D, of messages, is bounded whatever they are; R is random with independent coefficients. R is a polynomial in Gaussian-like
variables (noises, roundings and the secret), counted by degree: parts of different degree are uncorrelated, so that their variances add up.
Products of homogeneous ones obey |A B|^2 <= C(a + b, a) |A|^2 |B|^2, an equality for powers of one variable: squares are then as noisy as
foreseen, and products of independent ciphertexts less, by that binomial. What has one degree counts as dependent, unless it is said to be
independent: deviations add up.

Source: [BBEM90] the inequality, Bombieri's. Ours: what follows from it for noise, so that no independence is assumed of operands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from cloakwork.fhe_core.levelled.parameters import SECRET_VARIANCE, SIGMA, LevelledParameters
from cloakwork.fhe_core.noise import log2_two_sided_tail

MOST_DEGREE: Final = 255  # of ciphertexts that are sent
_MOST_DEVIATIONS: Final = 1e9  # the tail of as many is nothing
# A part of high degree is left out where it is this much less than all, though products multiply it by up to 16 for each degree.
_NEGLIGIBLE: Final = 2.0**-60


@dataclass(frozen=True)
class Noise:
    """The noise of every coefficient of a phase.

    Attributes:
        bound: of |D|.
        variances: of the parts of R, by degree from 0 on.
    """

    bound: float
    variances: tuple[float, ...]

    @property
    def variance(self) -> float:
        """Returns the variance of R."""
        return sum(self.variances)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)

    @property
    def degree(self) -> int:
        return len(self.variances) - 1

    def plus(self, other: Noise, *, independent: bool = False) -> Noise:
        pairs = list(zip_longest(self.variances, other.variances, fillvalue=0.0))
        if independent:
            return Noise(self.bound + other.bound, tuple(a + b for a, b in pairs))
        return Noise(self.bound + other.bound, tuple((math.sqrt(a) + math.sqrt(b)) ** 2 for a, b in pairs))

    def times(self, other: Noise, size: int) -> Noise:
        deviations = [0.0] * (self.degree + other.degree + 1)
        for i, a in enumerate(self.variances):
            for j, b in enumerate(other.variances):
                if a > 0 and b > 0:
                    deviations[i + j] += math.sqrt(size) * _root_binomial(i + j, i) * math.sqrt(a) * math.sqrt(b)
        for left, right in ((self, other), (other, self)):
            for i, a in enumerate(right.variances):
                deviations[i] += math.sqrt(size) * left.bound * math.sqrt(a)
        return Noise(size * self.bound * other.bound, tuple(each * each for each in deviations))._without_negligible()

    def scaled(self, factor: float) -> Noise:
        return Noise(self.bound * abs(factor), tuple(each * factor * factor for each in self.variances))

    def times_plain(self, norm1: float, norm2: float) -> Noise:
        """Times a polynomial of these norms (the sum of absolute coefficients, the root of the sum of their squares)."""
        return Noise(self.bound * norm1, tuple(each * norm2 * norm2 for each in self.variances))

    def _without_negligible(self) -> Noise:
        total, kept = self.variance, len(self.variances)
        while (
            total < math.inf
            and kept > 3
            and self.variances[kept - 1] * 16.0 ** min(kept - 1, 200) <= _NEGLIGIBLE * total
        ):
            kept -= 1
        return Noise(self.bound, self.variances[:kept])


def _root_binomial(n: int, k: int) -> float:
    """sqrt(C(n, k)), infinite where it is too much for a float."""
    log = (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / 2
    return math.exp(log) if log < 700 else math.inf


def message(parameters: LevelledParameters) -> Noise:
    """Returns the noise of a plaintext: none."""
    return Noise(parameters.plaintext_modulus / 2, (0.0,))


def fresh(parameters: LevelledParameters) -> Noise:
    t = parameters.plaintext_modulus
    return Noise(t / 2, (0.0, (t * SIGMA) ** 2))


def rounding(parameters: LevelledParameters, primes: int, parts: int = 2) -> Noise:
    """Returns the noise of a division by these primes: t times a sum of `primes` uniform numbers for each part, times a power of the secret."""
    size, t = parameters.polynomial_size, parameters.plaintext_modulus
    one = t**2 * primes / 12
    return Noise(0.0, (0.0, *(one * math.factorial(k) * (size * SECRET_VARIANCE) ** k for k in range(parts))))


def after_division(noise: Noise, parameters: LevelledParameters, divisor: int, primes: int, parts: int = 2) -> Noise:
    """Divided by the product `divisor` of `primes` primes. The rounding is of words that look random: independent of all before."""
    divided = noise.scaled(1 / _as_float(divisor))
    return divided.plus(rounding(parameters, primes, parts), independent=True)._without_negligible()


def sum_of_products(a: Noise, b: Noise, parameters: LevelledParameters, terms: int, rounded: int) -> Noise:
    """Returns the noise of `terms` products of a ciphertext `a` and one `b`.

    Every `a` was divided by `rounded` primes at the end (0: none). These roundings are independent of each other and of all that went before: with
    whatever each is multiplied by, variances add up. All else counts as dependent.
    """
    size = parameters.polynomial_size
    rounding_noise = rounding(parameters, rounded) if rounded else Noise(0.0, (0.0,))
    pairs = zip_longest(a.variances, rounding_noise.variances, fillvalue=0.0)
    before = Noise(a.bound, tuple(max(0.0, whole - part) for whole, part in pairs))
    return (
        before.times(b, size)
        .scaled(terms)
        .plus(rounding_noise.times(b, size).scaled(math.sqrt(terms)), independent=True)
    )


def dropped(parameters: LevelledParameters, bits: int, parts: int = 2) -> Noise:
    """Returns the noise of leaving out the last bits of ciphertexts' coefficients over t (`rounded.py`); 1 part where it is bodies alone."""
    # numbers from 1 - 2^(bits - 1) to 2^(bits - 1), whose mean square is (4^bits + 2) / 12
    return rounding(parameters, 1, parts).scaled(math.sqrt(4.0**bits + 2)) if bits else Noise(0.0, (0.0,))


def keyswitch(parameters: LevelledParameters, level: int) -> Noise:
    """Returns the noise that a keyswitch of a polynomial of `level` primes adds: digits times the key's noise over P, and the division."""
    row, size, t = parameters.set, parameters.polynomial_size, parameters.plaintext_modulus
    digits = 0.0
    for first in range(0, level, row.digit_primes):
        primes = row.primes[first : min(first + row.digit_primes, level)]
        digits += len(primes) / 12 * (math.prod(primes) / parameters.special_modulus) ** 2
    return Noise(0.0, (0.0, size * digits * (t * SIGMA) ** 2)).plus(
        rounding(parameters, row.special_primes), independent=True
    )


def after_keyswitch(noise: Noise, parameters: LevelledParameters, level: int) -> Noise:
    """Digits of what is switched look random: what is added is independent of what is there."""
    return noise.plus(keyswitch(parameters, level), independent=True)


def failure_log2(noise: Noise, parameters: LevelledParameters, level: int) -> float:
    """log2 of the probability that some coefficient wraps, at most 0; of one ciphertext."""
    room = _as_float(parameters.modulus(level)) / 2 - noise.bound
    if not room > 0:  # what is too much for a float is infinite
        return 0.0
    if noise.variance == 0:
        return -math.inf
    if not noise.deviation < math.inf:
        return 0.0
    deviations = min(room / noise.deviation, _MOST_DEVIATIONS)
    return min(0.0, math.log2(parameters.polynomial_size) + log2_two_sided_tail(deviations))


def _as_float(modulus: int) -> float:
    """Converts a modulus; more bits than a float holds count as the largest, beyond any noise."""
    return float(min(modulus, 1 << 1000))
