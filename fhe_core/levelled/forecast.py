"""Forecasts of `LevelledEvaluator`, without ciphertexts: noise and work of the same operations, by which sets and levels are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.levelled import noise
from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2, combination_norms, rescaled_level
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.levelled.parameters import LevelledParameters


@dataclass(frozen=True)
class Foreseen:
    """So many ciphertexts of a level."""

    count: int
    level: int
    noise: Noise

    def __len__(self) -> int:
        return self.count


@dataclass
class Work:
    """Counted as operations are foreseen.

    Attributes:
        transforms: of one prime's polynomial.
        products: of words, each added to a sum.
    """

    transforms: int = 0
    products: int = 0


class LevelledForecast:
    """The operations of `LevelledEvaluator` by their names; those that it would refuse are refused.

    Args:
        p_fail_log2: as the evaluator's.
    """

    def __init__(self, parameters: LevelledParameters, p_fail_log2: float = FAILURE_LOG2) -> None:
        self._parameters, self._limit = parameters, p_fail_log2
        self.work = Work()

    @property
    def parameters(self) -> LevelledParameters:
        return self._parameters

    def fresh(self, count: int, level: int) -> Foreseen:
        """Forecasts a fresh ciphertext of the client, whose work is not counted."""
        return Foreseen(count, level, noise.fresh(self._parameters))

    def add(self, a: Foreseen, b: Foreseen) -> Foreseen:
        """Adds at one scale, or noise of it: b times t at most."""
        level = min(a.level, b.level)
        a, b = self.modulus_switch(a, level), self.modulus_switch(b, level)
        return self._checked(replace(a, noise=a.noise.plus(b.noise)))

    def add_plain(self, a: Foreseen, messages: NDArray[np.int64]) -> Foreseen:
        """Args: messages: whichever; they count as the largest."""
        self.work.transforms += a.count * a.level
        return self._checked(replace(a, noise=a.noise.plus(noise.message(self._parameters))))

    def combine(self, a: Foreseen, weights: NDArray[np.int64], *, independent: bool = False) -> Foreseen:
        rows, terms = weights.shape
        norm1, norm2 = combination_norms(weights)
        self.work.products += rows * terms * 2 * a.level * self._parameters.polynomial_size
        summed = a.noise.times_plain(norm1, math.sqrt(1 if independent else terms) * norm2)
        return self._checked(Foreseen(rows, a.level, summed))

    def multiply(self, a: Foreseen, b: Foreseen) -> Foreseen:
        row, size = self._parameters.set, self._parameters.polynomial_size
        level = min(a.level, b.level)
        a, b = self.modulus_switch(a, level), self.modulus_switch(b, level)
        digits = -(-level // row.digit_primes)
        extended = level + row.special_primes
        self.work.transforms += a.count * (level + digits * extended + 2 * extended)
        self.work.products += a.count * size * (4 * level + 2 * digits * extended)
        product = a.noise.times(b.noise, size)
        return self._checked(replace(a, noise=noise.after_keyswitch(product, self._parameters, level)))

    def modulus_switch(self, a: Foreseen, level: int) -> Foreseen:
        if level == a.level:
            return a
        divisor = math.prod(self._parameters.set.primes[level : a.level])
        self.work.transforms += 2 * a.count * a.level
        after = noise.after_division(a.noise, self._parameters, divisor, a.level - level)
        return self._checked(Foreseen(a.count, level, after))

    def rescale(self, a: Foreseen) -> Foreseen:
        return self.modulus_switch(a, rescaled_level(self._parameters, a.level, a.noise, self._limit))

    def least_level(self, a: Foreseen) -> int:
        """Returns the least level to which a result can be switched before it is sent."""
        for level in range(1, a.level):
            divisor = math.prod(self._parameters.set.primes[level : a.level])
            after = noise.after_division(a.noise, self._parameters, divisor, a.level - level)
            if noise.failure_log2(after, self._parameters, level) <= self._limit:
                return level
        return a.level

    def _checked(self, a: Foreseen) -> Foreseen:
        if noise.failure_log2(a.noise, self._parameters, a.level) > self._limit:
            raise ParameterError(f"set '{self._parameters.set.name}' has no room at level {a.level}")
        return a
