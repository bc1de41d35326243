"""Validates the non-ciphertext arguments of a session, and converts them to the form that the engine takes."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding, first_position, slot_bits
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.words import Small

_MAX_WEIGHT: Final = (1 << 31) - 1


def checked_weights(weights: ArrayLike) -> NDArray[Any]:
    """Returns an integer matrix [R, C]."""
    matrix = np.asarray(weights)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iub" or 0 in matrix.shape:
        raise ShapeError(
            f"linear: expected an integer matrix [R, C], got dtype {matrix.dtype} of shape {list(matrix.shape)}; quantise weights first"
        )
    if int(matrix.max()) > _MAX_WEIGHT or int(matrix.min()) < -_MAX_WEIGHT:
        raise ParameterError("linear: expected weights below 2^31 in magnitude; rescale the layer")
    return matrix


def table_numbers(index: ArrayLike | None, tables: int, shape: tuple[int, ...]) -> Small | None:
    """Checks which table each ciphertext of a batch uses [B]; None: the only one."""
    count = math.prod(shape)
    if index is None:
        if tables == 1:
            return None
        if tables == count:
            return np.arange(count, dtype=np.uint32)
        raise ShapeError(
            f"table: expected one table, or one for each of {count} ciphertexts, got {tables}; pass table_index"
        )
    array = np.asarray(index)
    if array.dtype.kind not in "iu":
        raise ShapeError(f"table_index: expected integers, got dtype {array.dtype}")
    outside = (array < 0) | (array >= tables)
    if outside.any():
        raise ParameterError(
            f"table_index: expected indices in [0, {tables}); the one at position {first_position(outside)} is outside"
        )
    try:
        spread = np.broadcast_to(array, shape)
    except ValueError:
        raise ShapeError(f"table_index: shape {list(array.shape)} does not broadcast to {list(shape)}") from None
    return np.ascontiguousarray(spread, dtype=np.uint32).reshape(-1)


def shift_coefficients(params: ParameterSet, shifts: ArrayLike) -> Small:
    """Returns the coefficients that hold f(m + s)."""
    slots = 1 << slot_bits(params, Encoding.FULL_DOMAIN)
    array: NDArray[Any] = np.atleast_1d(np.asarray(shifts))
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0:
        raise ShapeError(f"shifts: expected a vector of integers, got dtype {array.dtype} of shape {list(array.shape)}")
    outside = (array < 0) | (array >= slots)
    if outside.any():
        raise ParameterError(
            f"shifts: expected integers in [0, {slots}); the one at position {first_position(outside)} is outside"
        )
    return (array * (params.table_size // slots)).astype(np.uint32)


def checked_coefficients(params: ParameterSet, coefficients: ArrayLike) -> Small:
    """Checks the coefficients of a table."""
    array: NDArray[Any] = np.asarray(coefficients)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0:
        raise ShapeError(
            f"coefficients: expected a vector of integers, got dtype {array.dtype} of shape {list(array.shape)}"
        )
    outside = (array < 0) | (array >= params.table_size)
    if outside.any():
        raise ParameterError(
            f"coefficients: expected integers in [0, {params.table_size}); "
            f"the one at position {first_position(outside)} is outside"
        )
    return array.astype(np.uint32)


def checked_columns(columns: ArrayLike, width: int) -> NDArray[np.int64]:
    """Checks columns of the last axis of values, each at most once."""
    array: NDArray[Any] = np.asarray(columns)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0:
        raise ShapeError(
            f"columns: expected a vector of integers, got dtype {array.dtype} of shape {list(array.shape)}"
        )
    chosen = array.astype(np.int64)
    if not 0 <= int(chosen[0]) <= int(chosen[-1]) < width or bool((np.diff(chosen) <= 0).any()):
        raise ShapeError(f"columns: expected ascending integers in [0, {width})")
    return chosen
