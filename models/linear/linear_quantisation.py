"""Integer weights and features of a linear model, as fine as fresh encryption noise allows an exact result.

    u_j = (x_j - centre_j) / half_j in [-1, 1],   q_j = round(u_j F) in [-F, F],   w_rj = round(W_rj half_j g_r)
    score_r = intercept_r + sum_j W_rj centre_j + (sum_j w_rj q_j) / (g_r F)

The integer sum is decrypted exactly: one unit is `step` of the torus, at least twice the margin that the failure probability asks for, and
the largest possible sum stays within half a turn, whatever the sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import NoParameterSetError

OUTPUT_LIMIT: Final = 0.49  # of the torus, either way, for the sums
INPUT_LIMIT: Final = 0.25  # for the features; what `encrypt_torus` takes
LEAST_BITS: Final = 4  # of features and of weights, below which a model is refused
MOST_BITS: Final = 20


@dataclass(frozen=True, eq=False)
class LinearQuantisation:
    """What `quantise_linear` chose."""

    weights: Indices  # [outputs, features]
    levels: int  # F
    gain: Reals  # [outputs], g
    step: float  # of the torus, per unit of the sum
    p_fail_log2: float  # of decoding one output


def quantise_linear(
    effects: Reals, params: ParameterSet, p_fail_log2: float, bits: int | None = None
) -> LinearQuantisation:
    """Splits the room between weights and features where the error of a score is least.

    Args:
        effects: [outputs, features], W half: what a feature's half range changes in a score.
        p_fail_log2: log2 of the largest probability that one output is decoded wrongly.
        bits: of a feature, sign included; None: as many as are best.

    Raises:
        NoParameterSetError: with fewer than LEAST_BITS bits for features and weights.
    """
    choices = range(LEAST_BITS, MOST_BITS + 1) if bits is None else (bits,)
    best: tuple[float, LinearQuantisation] | None = None
    for feature_bits in choices:
        for weight_bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            found = _fit(effects, params, p_fail_log2, 1 << (feature_bits - 1), (1 << (weight_bits - 1)) - 1)
            if found is None:
                continue
            error = _error(effects, found)
            if best is None or error < best[0]:
                best = (error, found)
            break  # fewer bits for the weights are worse
    if best is None:
        raise NoParameterSetError(
            f"linear model of {effects.shape[1]} features: parameter set '{params.name}' leaves room for fewer than {LEAST_BITS} bits; "
            "use a set of two limbs (lut3, lut4, nn05) or fewer features"
        )
    return best[1]


def _fit(
    effects: Reals, params: ParameterSet, p_fail_log2: float, levels: int, largest: int
) -> LinearQuantisation | None:
    """None when the sums do not fit the torus."""
    peak = np.abs(effects).max(axis=1)
    gain = np.where(peak > 0, largest / np.where(peak > 0, peak, 1.0), 1.0)
    weights = np.rint(effects * gain[:, None]).astype(np.int64)
    norm = max(1.0, float(np.sqrt(np.square(weights.astype(np.float64)).sum(axis=1)).max()))
    total = max(1, int(np.abs(weights).sum(axis=1).max())) * levels
    step = min(OUTPUT_LIMIT / total, INPUT_LIMIT / levels)
    variance = noise.linear_variance(noise.fresh_variance(params) + (1 / params.modulus) ** 2, norm)
    variance += noise.rerandomisation_variance(params)
    reached = noise.p_fail_log2(step / 2, variance)
    return LinearQuantisation(weights, levels, gain, step, reached) if reached <= p_fail_log2 else None


def _error(effects: Reals, found: LinearQuantisation) -> float:
    """Largest standard deviation of a score's rounding error relative to the model's largest effect, samples uniform in their ranges."""
    scale = max(float(np.abs(effects).max()), np.finfo(np.float64).tiny)
    in_weights = np.square(effects - found.weights / found.gain[:, None]).sum(axis=1) / 3
    in_features = np.square(effects).sum(axis=1) / 12 / found.levels**2
    return math.sqrt(float((in_weights + in_features).max())) / scale
