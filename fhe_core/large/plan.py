"""Look-ups that find the bits of a large value, lowest first, and how probably one of them fails: arithmetic on a parameter row alone.

A value m of B bits stands at m / 2^B of the torus. A *window* [position, top) reads its bits from 2^(B - top) times the ciphertext, where the
bits above have left the torus, less outputs of earlier rotations, which take bits below away. What remains below is less than a slot, and half
of it is subtracted. A window of several bits takes two rotations: a negacyclic one for its top bit (`sign`), and one for the other bits, which
without the top bit lie in half of the torus. An output that stands for bits d 2^i at *scale* t is d 2^i / 2^t of the torus; times 2^(t - s), with
as much more noise, it is the same at scale s.

Source: [LMP21] floor, sign and decomposition by two look-ups for each digit. Ours subtracts digits where the next window reads them, and not from
the value itself, so that their noise meets the scale of a digit (docs/decisions/large-precision.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.noise import (
    blind_rotation_variance,
    keyswitch_variance,
    lookup_offset,
    modulus_switch_variance,
    p_fail_log2,
)

__all__ = [
    "Input",
    "LookupNoise",
    "Output",
    "Plan",
    "Rotation",
    "function_p_fail_log2",
    "rotations_p_fail_log2",
    "sum_log2",
    "widest_window",
]

_NORM_STEPS: Final = 4


@dataclass(frozen=True)
class Input:
    """The encrypted value, as a plan needs to know it.

    Args:
        bits: B.
        norm: standard deviation of its noise, in units of a fresh look-up's output.
        rounding: how far its phase is moved beside the noise, in words, at most.
    """

    bits: int
    norm: float
    rounding: float = 0.0

    def rounded(self) -> Input:
        """Rounds the input to one at least as noisy, of few different numbers, so that few plans are made."""
        norm, rounding = (
            _rounded_up(number, steps) for number, steps in ((self.norm, _NORM_STEPS), (self.rounding, 1))
        )
        return Input(self.bits, norm, rounding)


def _rounded_up(number: float, steps: int) -> float:
    """To a power of 2^(1/steps)."""
    return 0.0 if number == 0 else 2.0 ** (math.ceil(math.log2(number) * steps - 1e-6) / steps)


@dataclass(frozen=True)
class Rotation:
    """One look-up of a plan.

    Args:
        position, top: the window's bits are [position, top).
        removed: earlier rotations whose outputs are subtracted first.
        sign: it finds the top bit; else the bits below, the top bit being among `removed`.
        scale: of its output.
    """

    position: int
    top: int
    removed: tuple[int, ...]
    sign: bool
    scale: int

    @property
    def found(self) -> tuple[int, int]:
        """The bits that its output stands for, [lowest, end)."""
        return (self.top - 1, self.top) if self.sign else (self.position, self.top - 1)


@dataclass(frozen=True)
class Output:
    """A sum of outputs of rotations, at one scale: what a floor takes away, or a digit."""

    scale: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Rotations in order, what is made of them, and log2 of the probability that any of it is wrong (at most: the sum over all)."""

    bits: int
    rotations: tuple[Rotation, ...]
    outputs: tuple[Output, ...]
    p_fail_log2: float = 0.0

    def margin(self, rotation: Rotation) -> float:
        """Returns half a slot less half of what remains below it: (2^position - 2^c + 1) / 2^(top + 1), c the lowest bit that is taken away.

        It is what is added to the phase, too, so that both edges of a slot are as far.
        """
        return self.margin_words(rotation) / 2.0 ** (rotation.top + 1)

    def margin_words(self, rotation: Rotation) -> int:
        bit_ranges = [self.rotations[i].found for i in rotation.removed]
        lowest = min([rotation.position, *(first for first, end in bit_ranges if end <= rotation.position)])
        return (1 << rotation.position) - (1 << lowest) + 1

    def left_below(self, output: Output) -> int:
        """Returns 2^c - 1, c the lowest bit of an output: what may be left below it."""
        return (1 << min(self.rotations[i].found[0] for i in output.parts)) - 1


# --- failure ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LookupNoise:
    """Variances of a row, torus squared: a look-up's output, what a look-up adds to its input; and the shift of the mean."""

    output: float
    added: float
    offset: float
    modulus: int

    @classmethod
    def of(cls, params: ParameterSet) -> LookupNoise:
        added = keyswitch_variance(params) + modulus_switch_variance(params)
        return cls(blind_rotation_variance(params), added, lookup_offset(params), params.modulus)


def sum_log2(terms: Sequence[float]) -> float:
    """Returns log2 of the sum of 2^term, at most 0."""
    largest = max(terms, default=-math.inf)
    if largest == -math.inf:
        return largest
    return min(0.0, largest + math.log2(sum(2.0 ** (term - largest) for term in terms)))


def _rotation_p_fail_log2(plan: Plan, rotation: Rotation, noise: LookupNoise, value: Input) -> float:
    """Returns the rotation failure probability (log2) of one look-up: its input is a sum of distinct sources, the value's noise and one output of
    each removed rotation."""
    times = 2.0 ** (value.bits - rotation.top)
    squares = (times * value.norm) ** 2 + sum(4.0 ** (plan.rotations[i].scale - rotation.top) for i in rotation.removed)
    offset = noise.offset + (times * value.rounding + 1) / noise.modulus
    return p_fail_log2(plan.margin(rotation), squares * noise.output + noise.added, offset)


def rotations_p_fail_log2(plan: Plan, noise: LookupNoise, value: Input) -> float:
    return sum_log2([_rotation_p_fail_log2(plan, rotation, noise, value) for rotation in plan.rotations])


def function_p_fail_log2(params: ParameterSet, modulus: int, value: Input, negacyclic: bool) -> float:
    """Returns log2 of the failure probability of any function of an integer modulo q at m / q, two rotations, or of a negacyclic one, one rotation.

    Halving the phase halves its noise: the sign sees it with margin 1 / 4q, the look-up after it the sign's output as well.
    """
    noise = LookupNoise.of(params)
    squares, moved = value.norm**2, (value.rounding + 1) / params.modulus
    if negacyclic:
        variance = squares * noise.output + noise.added
        return p_fail_log2(1 / (2 * modulus), variance, noise.offset + moved)
    halved = [squares / 4 * noise.output, (squares / 4 + 1) * noise.output]
    offset = noise.offset + moved / 2
    return sum_log2([p_fail_log2(1 / (4 * modulus), variance + noise.added, offset) for variance in halved])


def widest_window(params: ParameterSet, target_log2: float) -> int:
    """Returns bits of a window that one look-up of a noiseless input reads with at most that failure probability; 0: none."""
    noise = LookupNoise.of(params)
    width = 0
    while p_fail_log2(2.0 ** -(width + 2), noise.added, noise.offset) <= target_log2:
        width += 1
    return width
