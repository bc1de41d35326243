"""Real models as formulas of integers, as fine as the plaintext moduli allow whatever samples come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.fhe_core.levelled.evaluator import MOST_WEIGHT
from cloakwork.models.arrays import Reals
from cloakwork.models.batches.formula import Formula
from cloakwork.models.batches.kernels import PowerModel
from cloakwork.models.linear.linear_quantisation import Effects, quantise_for_modulus

_FEATURE_BITS: Final = range(3, 13)  # tried for powers, sign included
_EXTRA_BITS: Final = range(2, 13)  # of a row's reach, more than those
_LEAST_OUTER: Final = 7  # the largest weight of a power, at least
_JUDGED: Final = 200


@dataclass(frozen=True, eq=False)
class Quantised:
    """A formula of integers within [-limit, limit]: scores are public_offset + unit times its own.

    Attributes:
        unit, public_offset: [outputs].
    """

    formula: Formula
    limit: int
    unit: Reals
    public_offset: Reals


def quantised_linear(effects: Effects, modulus: int, bits: int | None = None) -> Quantised | None:
    """Returns None where there is no room. Args: bits: of a feature, sign included; None: as many as are best."""
    quantisation = quantise_for_modulus(effects, modulus, MOST_WEIGHT, bits)
    if quantisation is None:
        return None
    return Quantised(
        Formula(quantisation.weights, quantisation.added),
        quantisation.levels,
        1 / (quantisation.gain * quantisation.levels),
        quantisation.public_offset,
    )


def quantised_power(model: PowerModel, samples: Reals, modulus: int) -> Quantised | None:
    """Returns bits of features, rows and weights so that the samples' scores are off least; None where there is no room for any.

    Args:
        model: of u in [-1, 1], rows of reach 1 (`PowerModel.on_ranges`).
        samples: [samples, features] of u.
    """
    seen = samples[:: max(1, len(samples) // _JUDGED)]
    expected = model.scores(seen)
    spread = np.maximum(expected.std(axis=0), 1e-9 * (np.abs(expected).max(axis=0) + 1e-300))
    best: tuple[float, Quantised] | None = None
    for quantised in _choices(model, (modulus - 1) // 2):
        q = np.rint(seen * quantised.limit)
        y = q @ quantised.formula.inner.T + quantised.formula.constant
        assert quantised.formula.outer is not None and quantised.formula.added is not None
        powers = (y / quantised.limit) ** model.degree * float(quantised.limit) ** model.degree
        scores = (
            powers @ quantised.formula.outer.T + quantised.formula.added.astype(np.float64)
        ) * quantised.unit + quantised.public_offset
        error = float((np.sqrt(np.square(scores - expected).mean(axis=0)) / spread).max())
        if best is None or error < best[0]:
            best = error, quantised
    return None if best is None else best[1]


def _choices(model: PowerModel, largest: int) -> Iterator[Quantised]:
    """Units are powers of two, or of the limit: clients know them."""
    effects = Effects(model.dual, model.intercept)
    public_offset = effects.public_offset()
    rest = model.intercept - public_offset
    sums = np.abs(model.dual).sum(axis=1) + np.abs(rest)
    sums = np.where(sums > 0, sums, 1.0)
    for feature_bits in _FEATURE_BITS:
        limit = (1 << (feature_bits - 1)) - 1
        for extra in _EXTRA_BITS:
            reach = limit << extra
            inner = np.rint(model.inner * (reach / limit)).astype(np.int64)
            constant = np.rint(model.constant * reach).astype(np.int64)
            top = max(1, int((np.abs(inner).sum(axis=1) * limit + np.abs(constant)).max()))
            left = min(largest // top**model.degree, MOST_WEIGHT - 1) - model.dual.shape[1] // 2 - 1  # for rounding
            if left < _LEAST_OUTER or top >= MOST_WEIGHT:
                break
            gain = np.exp2(np.floor(np.log2(left / sums)))
            outer = np.rint(model.dual * gain[:, None]).astype(np.int64)
            if not outer.any():
                break
            if not inner.any():
                continue
            added = np.array([int(each) for each in np.rint(rest * gain * float(reach) ** model.degree)], dtype=object)
            formula = Formula(inner, constant, model.degree, outer, added)
            if formula.largest(limit) <= largest:
                yield Quantised(formula, limit, 1 / (gain * float(reach) ** model.degree), public_offset)
