"""Bounds of the messages of a `message` ciphertext that are public: least and largest integer, [.., 2] per ciphertext.

A fresh message of p bits lies in [0, 2^p). Sums and multiples may lie beyond, where a look-up would read -f(m - 2^p) for f(m). Bounds follow
from the operations alone, never from what is encrypted. They are float64: exact below 2^53, and beyond that only their size matters.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.errors import ParameterError, PrecisionOverflowError, ShapeError
from cloakwork.fhe_core.words import without_repeats

Bounds = NDArray[np.float64]

UNKNOWN = 1 << 62  # further away than any message; sums of these stay finite


def initial_range(params: ParameterSet, weight_norm: float) -> tuple[int, int]:
    """Returns the range of ciphertexts that do not say one: a message's own for a noise of one fresh ciphertext, all that decodes for sums."""
    bits = params.message_bits + (0 if weight_norm <= 1 else 1)
    return 0, (1 << bits) - 1


def widest_range(params: ParameterSet) -> tuple[int, int]:
    return 0, (2 << params.message_bits) - 1


def uniform(shape: tuple[int, ...], bound: tuple[float, float]) -> Bounds:
    return np.broadcast_to(np.array(bound, dtype=np.float64), (*shape, 2))


def initial(
    params: ParameterSet, encoding: Encoding, shape: tuple[int, ...], weight_norm: float, bound: tuple[int, int] | None
) -> Bounds | None:
    """Returns None for encodings whose values have no end to run over: fractions and integers modulo 2^p, and bits."""
    if encoding is not Encoding.MESSAGE:
        return None
    return uniform(shape, initial_range(params, weight_norm) if bound is None else bound)


def claimed(least: int, largest: int) -> tuple[int, int]:
    """Checks the range that a caller claims."""
    for value in (least, largest):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ShapeError(f"message bound: expected two integers, got {type(value).__name__}")
    if not -UNKNOWN <= least <= largest <= UNKNOWN:
        raise ParameterError(f"message bound: expected least <= largest, within 2^62, got {least} and {largest}")
    return int(least), int(largest)


def whole(bounds: Bounds | None) -> tuple[int, int] | None:
    """Returns the range of all ciphertexts together."""
    if bounds is None or bounds.size == 0:
        return None
    compact = without_repeats(bounds)
    return math.floor(compact[..., 0].min()), math.ceil(compact[..., 1].max())


def added(x: Bounds, y: Bounds) -> Bounds:
    return np.clip(x + y, -UNKNOWN, UNKNOWN)


def shifted(bounds: Bounds, constants: NDArray[np.generic]) -> Bounds:
    """Adds integers that broadcast with the shape."""
    return added(bounds, constants.astype(np.float64)[..., None])


def negated(bounds: Bounds) -> Bounds:
    return -bounds[..., ::-1]


def scaled(bounds: Bounds, factors: NDArray[np.generic]) -> Bounds:
    """Multiplies by integers that broadcast with the shape."""
    products = np.clip(bounds * factors.astype(np.float64)[..., None], -UNKNOWN, UNKNOWN)
    return np.sort(products, axis=-1)


def weighted(bounds: Bounds, matrix: NDArray[np.generic]) -> Bounds:
    """Returns the bounds of a linear layer [R, C] on ciphertexts [.., C]: [.., R, 2]."""
    rows = len(matrix)
    outer = bounds.shape[:-2]
    bounds = without_repeats(bounds, keep=2)
    weights = matrix.astype(np.float64).T
    above, below = np.maximum(weights, 0.0), np.minimum(weights, 0.0)
    least = bounds[..., 0] @ above + bounds[..., 1] @ below
    largest = bounds[..., 1] @ above + bounds[..., 0] @ below
    result = np.clip(np.stack([least, largest], axis=-1), -UNKNOWN, UNKNOWN)
    return np.broadcast_to(result, (*outer, rows, 2))


def check_look_up(params: ParameterSet, bounds: Bounds | None, largest_shift: int = 0) -> None:
    """Raises PrecisionOverflowError unless every message, plus the largest shift, has an entry in a table of 2^p."""
    bound = whole(bounds)
    entries = 1 << params.message_bits
    if bound is None or (bound[0] >= 0 and bound[1] + largest_shift < entries):
        return
    shift = f" plus shifts of up to {largest_shift}" if largest_shift else ""
    raise PrecisionOverflowError(
        f"bootstrap: expected messages in [0, {entries}), which the table of parameter set '{params.name}' has entries for; by the sums, weights "
        f"and constants they were made with they may lie in [{bound[0]}, {bound[1]}]{shift}. Look up earlier, choose a set with more message bits, "
        "or say what they stay within: with_message_bound(least, largest)"
    )
