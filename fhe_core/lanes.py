"""Lanes of a common mask: which axis of values and of arrays is that of a ciphertext's r bodies.

With r = 1 there is none. Else a ciphertext holds r values, the last axis of what is encrypted and decrypted.

Source: [BBC+25] several messages under one mask.
"""

from __future__ import annotations

import math

import numpy as np

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays import Phases
from cloakwork.fhe_core.errors import ShapeError

__all__ = ["ciphertext_shape", "lane_axis", "packed_words", "unpacked_words"]


def lane_axis(params: ParameterSet) -> tuple[int, ...]:
    """The axis of a ciphertext's bodies or values: (r,), or nothing where r = 1."""
    return () if params.lane_count == 1 else (params.lane_count,)


def ciphertext_shape(params: ParameterSet, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the ciphertexts that hold values of this shape; ShapeError when its last axis is not that of the lanes."""
    lanes = lane_axis(params)
    if shape[len(shape) - len(lanes) :] != lanes or len(shape) < len(lanes):
        raise ShapeError(
            f"values: expected shape [.., {params.lane_count}], a value for each of the {params.lane_count} lanes of a ciphertext of parameter "
            f"set '{params.name}', got {list(shape)}; put the values of one ciphertext on the last axis"
        )
    return shape[: len(shape) - len(lanes)]


def packed_words(params: ParameterSet, words: Phases) -> Phases:
    """Torus words [.., r] in C order as plaintext polynomials [G, r, N] (r = 1: [..] as [G, N]), the last ones filled with zeros."""
    if words.size == 0:
        raise ShapeError(f"values: expected at least one value, got an array of shape {words.shape}")
    size, lanes = params.polynomial_size, params.lane_count
    count = words.size // lanes
    values = np.zeros((-(-count // size), size, lanes), dtype=np.uint64)
    values.reshape(-1, lanes)[:count] = words.reshape(count, lanes)
    polynomials = np.ascontiguousarray(values.swapaxes(1, 2))
    return polynomials.reshape(len(values), *lane_axis(params), size)


def unpacked_words(params: ParameterSet, polynomials: Phases, shape: tuple[int, ...]) -> Phases:
    """The inverse for ciphertexts of this shape: [G, r, N] to torus words `shape` + [r]."""
    lanes = lane_axis(params)
    values = polynomials.reshape(len(polynomials), params.lane_count, -1).swapaxes(1, 2).reshape(-1, params.lane_count)
    return values[: math.prod(shape)].reshape((*shape, *lanes))
