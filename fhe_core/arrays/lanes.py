"""Lanes of a common mask: which axis of values and of arrays is that of a ciphertext's r bodies.

With r = 1 there is none. Else a ciphertext holds r values, the last axis of what is encrypted and decrypted.

Source: [BBC+25] several messages under one mask.
"""

from __future__ import annotations

import math

import numpy as np

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Reals
from cloakwork.fhe_core.errors import ShapeError
from cloakwork.fhe_core.words import Phases

__all__ = [
    "ciphertext_shape",
    "ciphertexts_of",
    "laid_in_lanes",
    "lane_axis",
    "packed_words",
    "taken_from_lanes",
    "unpacked_words",
]


def lane_axis(params: ParameterSet) -> tuple[int, ...]:
    """Returns the axis of a ciphertext's bodies or values: (r,), or nothing where r = 1."""
    return () if params.lane_count == 1 else (params.lane_count,)


def ciphertext_shape(params: ParameterSet, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the ciphertexts that hold values of this shape; ShapeError when its last axis is not that of the lanes."""
    lanes = lane_axis(params)
    if shape[len(shape) - len(lanes) :] != lanes or len(shape) < len(lanes):
        raise ShapeError(
            f"values: expected shape [.., {params.lane_count}], a value for each of the {params.lane_count} lanes of a ciphertext of parameter "
            f"set '{params.name}', got {list(shape)}; put the values of one ciphertext on the last axis"
        )
    return shape[: len(shape) - len(lanes)]


def packed_words(params: ParameterSet, words: Phases) -> Phases:
    """Packs torus words [.., r] in C order as plaintext polynomials [G, r, N] (r = 1: [..] as [G, N]), the last ones filled with zeros."""
    if words.size == 0:
        raise ShapeError(f"values: expected at least one value, got an array of shape {words.shape}")
    size, lanes = params.polynomial_size, params.lane_count
    count = words.size // lanes
    values = np.zeros((-(-count // size), size, lanes), dtype=np.uint64)
    values.reshape(-1, lanes)[:count] = words.reshape(count, lanes)
    polynomials = np.ascontiguousarray(values.swapaxes(1, 2))
    return polynomials.reshape(len(values), *lane_axis(params), size)


def unpacked_words(params: ParameterSet, polynomials: Phases, shape: tuple[int, ...]) -> Phases:
    """Inverts `packed_words` for ciphertexts of this shape: [G, r, N] to torus words `shape` + [r]."""
    lanes = lane_axis(params)
    values = polynomials.reshape(len(polynomials), params.lane_count, -1).swapaxes(1, 2).reshape(-1, params.lane_count)
    return values[: math.prod(shape)].reshape((*shape, *lanes))


def ciphertexts_of(params: ParameterSet, samples: int) -> int:
    """Counts the rows of ciphertexts that hold these samples, a sample to a lane."""
    return -(-samples // params.lane_count)


def laid_in_lanes(params: ParameterSet, samples: Reals) -> Reals:
    """Lays samples [S, F] into lanes for encryption: [ceil(S / r), F, r], sample s in lane s mod r, copies of the last one in lanes left over; r =
    1: themselves."""
    if params.lane_count == 1:
        return samples
    rows = ciphertexts_of(params, len(samples))
    filled = np.concatenate([samples, np.repeat(samples[-1:], rows * params.lane_count - len(samples), axis=0)])
    return np.ascontiguousarray(filled.reshape(rows, params.lane_count, -1).swapaxes(1, 2))


def taken_from_lanes(params: ParameterSet, values: Reals, samples: int | None = None) -> Reals:
    """Takes decrypted values [C, O, r] by samples, [C r, O]; r = 1: themselves.

    Args:
        samples: how many there were; None: all that there is room for, copies in lanes left over among them.

    Raises:
        ShapeError: so many samples have another number of rows.
    """
    if samples is not None and ciphertexts_of(params, samples) != len(values):
        raise ShapeError(
            f"result: expected {ciphertexts_of(params, samples)} rows of ciphertexts for {samples} samples of parameter set '{params.name}', "
            f"got {len(values)}; say how many samples were encrypted"
        )
    if params.lane_count == 1:
        return values
    by_sample = values.swapaxes(1, 2).reshape(len(values) * params.lane_count, -1)
    return by_sample if samples is None else by_sample[:samples]
