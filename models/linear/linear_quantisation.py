"""Integer weights and features of a linear model, as fine as fresh encryption noise allows an exact result.

    u_j = (x_j - centre_j) / half_j in [-1, 1],   q_j = round(u_j F) in [-F, F],   w_rj = round(W_rj half_j g_r)
    score_r = public_offset_r + (sum_j w_rj q_j + added_r) / (g_r F),   added_r = round((intercept_r + sum_j W_rj centre_j - public_offset_r) g_r F)

The integer sum is decrypted exactly: one unit is `step` of the torus, at least twice the margin that the failure probability asks for, and
the largest possible sum stays within half a turn, whatever the sample.

Clients know F, g and step, so these are round numbers: powers of two, the step with as many more bits as it takes to lose nothing. The score at the
centre of all ranges is the server's to add. Only one that is larger than what all features together change would take up the torus: of it the
client is told the nearest multiple of a power of two of about that size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import CompileError, NoParameterSetError

OUTPUT_LIMIT: Final = 0.49  # of the torus, either way, for the sums
INPUT_LIMIT: Final = 0.25  # for the features; what `encrypt_torus` takes
LEAST_BITS: Final = 4  # of features and of weights, below which a model is refused
MOST_BITS: Final = 20
LEAST_EFFECT: Final = 1e-140  # on a score that is one, and the largest one: their squares are numbers
LARGEST_EFFECT: Final = 1e140
_STEP_BITS: Final = 8  # of a step that is rounded down; one that takes more is what the noise asks for


@dataclass(frozen=True, eq=False)
class Effects:
    """A linear model on features u in [-1, 1]: score = at_centre + of_features u.

    Args:
        of_features: [outputs, features], W half: what a feature's half range changes in a score.
        at_centre: [outputs], the score at the centre of all ranges.
        compared: outputs are compared with each other, so that they need one unit, which says less.
    """

    of_features: Reals
    at_centre: Reals
    compared: bool = False

    def check(self) -> None:
        """Raises CompileError for effects that are not finite, or too large or small to be squared."""
        with np.errstate(all="ignore"):
            sums = np.abs(self.of_features).sum(axis=1) + np.abs(self.at_centre)
        if not ((sums == 0) | ((sums >= LEAST_EFFECT) & (sums <= LARGEST_EFFECT))).all():
            raise CompileError(
                f"linear model: its coefficients, times the ranges of their features, overflow or vanish; expected scores between {LEAST_EFFECT:g} "
                f"and {LARGEST_EFFECT:g}, or 0: scale the targets, or pass other ranges="
            )

    def peaks(self) -> Reals:
        """Returns [outputs]: the largest effect of a feature; of a model that is constant the score."""
        largest = self._of_all(np.abs(self.of_features).max(axis=1))
        constant = self._of_all(np.abs(self.at_centre))
        peaks = np.where(largest > LEAST_EFFECT, largest, constant)
        return np.where(peaks > LEAST_EFFECT, peaks, 1.0)

    def public_offset(self) -> Reals:
        """Returns [outputs]: what the client adds, multiples of a power of two no smaller than what all features change; 0 where the server does."""
        reach = self._of_all(np.abs(self.of_features).sum(axis=1))
        varies = reach > LEAST_EFFECT
        unit = np.exp2(np.ceil(np.log2(np.where(varies, reach, 1.0))))
        return np.where(varies & (np.abs(self.at_centre) > reach), np.rint(self.at_centre / unit) * unit, 0.0)

    def _of_all(self, facts: Reals) -> Reals:
        return np.full(len(facts), facts.max()) if self.compared else facts


@dataclass(frozen=True, eq=False)
class LinearQuantisation:
    """The integers that `quantise_linear` chose."""

    weights: Indices  # [outputs, features]
    added: Indices  # [outputs], to the sums
    public_offset: Reals  # [outputs], to the scores, by the client
    levels: int  # F
    gain: Reals  # [outputs], g
    step: float  # of the torus, per unit of the sum
    p_fail_log2: float  # of decoding one output


def quantise_linear(
    effects: Effects, params: ParameterSet, p_fail_log2: float, bits: int | None = None
) -> LinearQuantisation:
    """Splits the room between weights and features where the error of a score is least.

    Args:
        p_fail_log2: log2 of the largest probability that one output is decoded wrongly.
        bits: of a feature, sign included; None: as many as are best.

    Raises:
        CompileError: bits out of their range.
        NoParameterSetError: with fewer than LEAST_BITS bits for features and weights.
    """
    _check_bits(bits)
    choices = range(LEAST_BITS, MOST_BITS + 1) if bits is None else (bits,)
    best: tuple[float, LinearQuantisation] | None = None
    for feature_bits in choices:
        for weight_bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            quantisation = _fit(effects, params, p_fail_log2, 1 << (feature_bits - 1), (1 << (weight_bits - 1)) - 1)
            if quantisation is None:
                continue
            error = _error(effects.of_features, quantisation)
            if best is None or error < best[0]:
                best = (error, quantisation)
            break  # fewer bits for the weights are worse
    if best is None:
        raise NoParameterSetError(
            f"linear model of {effects.of_features.shape[1]} features: parameter set '{params.name}' leaves room for fewer than {LEAST_BITS} bits; "
            "use a set of two limbs (lut3, lut4, nn05) or fewer features"
        )
    return best[1]


def quantise_for_signs(effects: Effects, difference_bits: int, bits: int | None = None) -> LinearQuantisation | None:
    """Quantises scores at 2^-difference_bits of the torus for a unit, every difference of which has this many bits, sign included; None without
    room for LEAST_BITS bits. Nothing is told of scores, and nothing decrypted.

    Args:
        bits: of a feature, sign included; None: as many as are best. CompileError: out of their range.
    """
    _check_bits(bits)
    quantisations = []
    for feature_bits in range(LEAST_BITS, difference_bits) if bits is None else (bits,):
        levels = 1 << (feature_bits - 1)
        for weight_bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            gain, weights, added = _integers(effects, effects.at_centre, levels, (1 << (weight_bits - 1)) - 1)
            largest = np.abs(weights[:, None] - weights[None]).sum(axis=2) * levels + np.abs(
                added[:, None] - added[None]
            )
            step = 2.0**-difference_bits
            if int(largest.max()) < 1 << (difference_bits - 1) and levels * step <= INPUT_LIMIT:
                quantisations.append(
                    LinearQuantisation(weights, added, np.zeros_like(gain), levels, gain, step, -math.inf)
                )
                break
    return min(quantisations, key=lambda each: _error(effects.of_features, each), default=None)


def quantise_for_modulus(
    effects: Effects, modulus: int, most_weight: int, bits: int | None = None
) -> LinearQuantisation | None:
    """Returns sums within half of a modulus, exact in a scheme that counts by it; None without room for LEAST_BITS bits.

    Args:
        most_weight: absolute weights of an output add up to less.
        bits: of a feature, sign included; None: as many as are best. CompileError: out of their range.
    """
    _check_bits(bits)
    public_offset, quantisations = effects.public_offset(), []
    for feature_bits in range(LEAST_BITS, MOST_BITS + 1) if bits is None else (bits,):
        levels = 1 << (feature_bits - 1)
        for weight_bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            gain, weights, added = _integers(
                effects, effects.at_centre - public_offset, levels, (1 << (weight_bits - 1)) - 1
            )
            sums = np.abs(weights).sum(axis=1)
            if int(sums.max()) < most_weight and int((sums * levels + np.abs(added)).max()) <= (modulus - 1) // 2:
                quantisations.append(
                    LinearQuantisation(weights, added, public_offset, levels, gain, 1 / modulus, -math.inf)
                )
                break
    return min(quantisations, key=lambda each: _error(effects.of_features, each), default=None)


def _check_bits(bits: int | None) -> None:
    if bits is not None and not LEAST_BITS <= bits <= MOST_BITS:
        raise CompileError(
            f"input_bits: expected {LEAST_BITS} to {MOST_BITS}, or None for as many as are best, got {bits}"
        )


def _integers(effects: Effects, at_centre: Reals, levels: int, largest: int) -> tuple[Reals, Indices, Indices]:
    """Gains, weights and constants."""
    gain = np.exp2(np.floor(np.log2(largest / effects.peaks())))
    weights = np.rint(effects.of_features * gain[:, None]).astype(np.int64)
    return gain, weights, np.rint(at_centre * gain * levels).astype(np.int64)


def _fit(
    effects: Effects, params: ParameterSet, p_fail_log2: float, levels: int, largest: int
) -> LinearQuantisation | None:
    """Returns None when the sums do not fit the torus."""
    public_offset = effects.public_offset()
    gain, weights, added = _integers(effects, effects.at_centre - public_offset, levels, largest)
    norm = max(1.0, float(np.sqrt(np.square(weights.astype(np.float64)).sum(axis=1)).max()))
    total = max(1, int((np.abs(weights).sum(axis=1) * levels + np.abs(added)).max()))
    room = min(OUTPUT_LIMIT / total, INPUT_LIMIT / levels)
    variance = noise.linear_variance(noise.fresh_variance(params) + (1 / params.modulus) ** 2, norm)
    variance += noise.rerandomisation_variance(params)
    for step in _round_steps(room):
        reached = noise.p_fail_log2(step / 2, variance)
        if reached <= p_fail_log2:
            return LinearQuantisation(weights, added, public_offset, levels, gain, step, reached)
    return None


def _round_steps(room: float) -> list[float]:
    """Returns the largest numbers of one, two, .. significant bits that are not above it, and itself."""
    fraction, exponent = math.frexp(room)
    return [
        *(math.ldexp(math.floor(math.ldexp(fraction, bits)), exponent - bits) for bits in range(1, _STEP_BITS + 1)),
        room,
    ]


def _error(effects: Reals, quantisation: LinearQuantisation) -> float:
    """Returns the largest standard deviation of a score's rounding error relative to the model's largest effect, samples uniform in their ranges."""
    scale = max(float(np.abs(effects).max()), LEAST_EFFECT)
    in_weights = np.square((effects - quantisation.weights / quantisation.gain[:, None]) / scale).sum(axis=1) / 3
    in_features = np.square(effects / scale).sum(axis=1) / 12 / quantisation.levels**2
    return math.sqrt(float((in_weights + in_features).max()))
