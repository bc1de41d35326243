"""Noise that a decryption by several parties adds, and its leakage: flooding noise and the bits that key recovery may gain by it.

A party's part of a decryption is its product with the mask, which would tell the ciphertext's noise, and that depends on the keys of the
others. So it adds a discrete Gaussian f of standard deviation F, as large as the result bears. Who simulates the decryption from the message
alone is off by the ciphertext's noise e: for each order a > 1 the Renyi divergence of f + e from f is at most exp(a e^2 / 2 F^2), and of several
decryptions exp(a S / 2) with S = sum of e^2 / F^2. An attack that finds a key, or anything else that is searched for, with probability p from the
real decryptions finds it with probability p^(a / (a - 1)) exp(-a S / 2) from simulated ones, which it could have made itself. With the best a it
gains at most 2 sqrt(bits K log2 e) - K log2 e bits, K = S / 2.

This bounds searches. It is no statement of statistical indistinguishability: the total variation is bounded by sqrt(K / 2) alone.

Source: [BS23] Renyi divergence in place of statistical distance; [LM00] the tail of a weighted sum of squares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.errors import ParameterError

__all__ = ["FAILURE_LOG2", "MOST_BITS_LOST", "Leakage", "decryption_margin", "flooding_sigma", "noise_ratio"]

FAILURE_LOG2 = -64.0  # of one decrypted value, by ciphertext noise and flooding together
MOST_BITS_LOST = 4.0  # of the 132 that sets have
TAIL_LOG2 = -128.0  # that squares of noise add up to more than is counted


def decryption_margin(params: noise.NoiseParameters, encoding: Encoding) -> float | None:
    """Returns distance in torus units from a value's phase to the next wrong one; None for fractions of the torus, which have none."""
    match encoding:
        case Encoding.BOOLEAN:
            return 1 / 8
        case Encoding.MESSAGE:
            return 2.0 ** -(params.message_bits + 2)
        case Encoding.FULL_DOMAIN:
            return 2.0 ** -(params.message_bits + 1)
        case _:
            return None


def flooding_sigma(params: noise.NoiseParameters, margin: float, weight_norm: float) -> float:
    """Returns standard deviation F of each party's flooding, torus units: what the margin leaves at `FAILURE_LOG2`, shared by the parties.

    Raises:
        ParameterError: the ciphertext's own noise leaves nothing.
    """
    allowed = (margin / _deviations(FAILURE_LOG2)) ** 2
    left = allowed - _noise_deviation(params, weight_norm) ** 2
    if left < allowed / 2:
        raise ParameterError(
            f"decryption: noise of weight norm {weight_norm:.4g} and a margin of {margin:.3g} leave no room to hide it in; end the program with a "
            "look-up, or decrypt values that are further apart"
        )
    return math.sqrt(left / params.party_count)


def noise_ratio(params: noise.NoiseParameters, sigma: float, weight_norm: float) -> float:
    """Returns E[e^2] / F^2 of one decrypted value."""
    return (_noise_deviation(params, weight_norm) / sigma) ** 2


def _noise_deviation(params: noise.NoiseParameters, weight_norm: float) -> float:
    """At least that of one output of a look-up, whatever a header says."""
    return noise.SD_INFLATION * max(1.0, weight_norm) * math.sqrt(noise.blind_rotation_variance(params))


def _deviations(p_log2: float) -> float:
    """Returns z with P(|X| > z) = 2^p_log2 for a standard Gaussian, by bisection."""
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if noise.log2_two_sided_tail(middle) > p_log2 else (low, middle)
    return high


@dataclass(frozen=True)
class Leakage:
    """Leakage of a party's decryptions so far: the sum of their noise ratios, and the largest."""

    total: float = 0.0
    largest: float = 0.0

    def after(self, count: int, ratio: float) -> Leakage:
        return Leakage(self.total + count * ratio, max(self.largest, ratio) if count else self.largest)

    @property
    def square_sum(self) -> float:
        """S, but for a probability of `TAIL_LOG2`, of Gaussian noise."""
        tail = -TAIL_LOG2 * math.log(2)
        return self.total + 2 * math.sqrt(self.largest * self.total * tail) + 2 * self.largest * tail

    def bits_lost(self, security_bits: float) -> float:
        """Bounds the bits that an attack which searches for something gains at most; all of them where S is too large for the bound to say
        anything."""
        loss = self.square_sum / 2 * math.log2(math.e)
        return security_bits if loss >= security_bits else 2 * math.sqrt(security_bits * loss) - loss

    def decryptions_left(self, security_bits: float, ratio: float) -> int:
        """Counts the values of this ratio that stay within `MOST_BITS_LOST`."""
        low, high = 0, 1 << 40
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.after(middle, ratio).bits_lost(security_bits) <= MOST_BITS_LOST
            low, high = (middle, high) if fits else (low, middle - 1)
        return low
