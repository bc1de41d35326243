"""Arithmetic on arrays of LWE words [.., kN + r] modulo Q, exact, for one and two limbs; words on a device are combined there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays import device_words
from cloakwork.fhe_core.arrays.device_words import DeviceWords
from cloakwork.fhe_core.arrays.encoding import Encoding, slot_bits
from cloakwork.fhe_core.errors import DeviceError, ParameterError, ShapeError
from cloakwork.fhe_core.words import Words


def reduce_once(words: Any, modulus: int) -> Any:
    """Reduces [0, 2Q) to [0, Q); a difference below zero wraps and stays the larger one."""
    return np.minimum(words, words - words.dtype.type(modulus))


def add(params: ParameterSet, x: Words | DeviceWords, y: Words | DeviceWords) -> Words | DeviceWords:
    if isinstance(x, DeviceWords) and isinstance(y, DeviceWords):
        shape = device_words.broadcast_shape((x.shape[:-1], y.shape[:-1]), _no_broadcast)
        return device_words.combine(params, shape, (x, 1), (y, 1))
    if isinstance(x, DeviceWords) or isinstance(y, DeviceWords):
        raise DeviceError(
            "ciphertexts: expected both on the host or both on one device; move one with to_device or to_host"
        )
    try:
        total: Words = x + y  # below 2^28 or 2^55
    except ValueError:
        raise _no_broadcast(x.shape[:-1], y.shape[:-1]) from None
    result: Words = reduce_once(total, params.modulus)
    return result


def negate_words(params: ParameterSet, words: Words | DeviceWords) -> Words | DeviceWords:
    if isinstance(words, DeviceWords):
        return device_words.combine(params, words.shape[:-1], (words, -1))
    result: Words = reduce_once(params.modulus - words, params.modulus)
    return result


def add_to_bodies(
    params: ParameterSet, words: Words | DeviceWords, constants: NDArray[np.uint64] | np.uint64
) -> Words | DeviceWords:
    """Returns constants that broadcast with the array's shape, added to the bodies of each ciphertext."""
    shape = device_words.broadcast_shape((words.shape[:-1], np.shape(constants)), _no_broadcast)
    if isinstance(words, DeviceWords):
        return device_words.combine(params, shape, (words, 1), constants=np.asarray(constants, dtype=np.uint64))
    result: Words = np.broadcast_to(words, (*shape, words.shape[-1])).copy()
    bodies = result[..., params.large_dimension :]
    bodies[:] = (bodies.astype(np.uint64) + np.asarray(constants)[..., None]) % np.uint64(params.modulus)
    return result


def multiply(params: ParameterSet, words: Words | DeviceWords, factors: NDArray[np.int64]) -> Words | DeviceWords:
    """Returns words * factors [.., 1] mod Q by Horner's rule on 8-bit digits of |factor|: (Q - 1) * (2^8 + 2^8 - 1) < 2^63."""
    if isinstance(words, DeviceWords):
        shape = device_words.broadcast_shape((words.shape[:-1], factors.shape[:-1]), _no_broadcast)
        return device_words.combine(params, shape, (words, factors[..., 0]))
    modulus = np.uint64(params.modulus)
    source = words.astype(np.uint64)
    magnitude = np.abs(factors).astype(np.uint64)
    digits = (max(int(magnitude.max(initial=0)).bit_length(), 1) + 7) // 8
    try:
        result = source * (magnitude >> np.uint64(8 * (digits - 1))) % modulus
    except ValueError:
        raise _no_broadcast(words.shape[:-1], factors.shape[:-1]) from None
    for digit in range(digits - 2, -1, -1):
        part = (magnitude >> np.uint64(8 * digit)) & np.uint64(255)
        result = (result * np.uint64(256) + source * part) % modulus
    result = np.where(factors < 0, (modulus - result) % modulus, result)
    return result.astype(words.dtype)


def halve(params: ParameterSet, words: Words | DeviceWords) -> Words | DeviceWords:
    """Multiplies by the inverse of 2 modulo Q: x / 2 for even x, (x + Q) / 2 for odd x."""
    if isinstance(words, DeviceWords):
        return device_words.combine(params, words.shape[:-1], (words, (params.modulus + 1) // 2))
    halved: Words = ((words + params.modulus * (words & 1)) >> 1).astype(words.dtype)
    return halved


def constant_words(params: ParameterSet, constants: ArrayLike, encoding: Encoding) -> NDArray[np.uint64]:
    """Returns plaintext constants of any sign in the encoding: integers times a slot, or fractions of the torus."""
    array = np.asarray(constants)
    if encoding is Encoding.BOOLEAN:
        raise ParameterError("constants: bits have none; use add_torus_constant for a fraction of the torus, or NOT")
    if encoding is Encoding.TORUS:
        if array.dtype.kind not in "fiu" or not bool(np.isfinite(array).all()):
            raise ParameterError("constants: expected finite numbers, fractions of the torus")
        signed = np.rint(np.remainder(array.astype(np.float64), 1.0) * params.modulus).astype(np.int64)
        torus_words: NDArray[np.uint64] = (signed % params.modulus).astype(np.uint64)
        return torus_words
    if array.dtype.kind not in "iu":
        raise ShapeError(f"constants: expected integers for encoding {encoding.label}, got dtype {array.dtype}")
    bits = slot_bits(params, encoding)
    residues = (array.astype(np.int64) % (1 << bits)).astype(np.uint64)
    scaled = residues * np.uint64(params.modulus) + np.uint64(1 << (bits - 1))
    words: NDArray[np.uint64] = (scaled >> np.uint64(bits)) % np.uint64(params.modulus)
    return words


def _no_broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> ShapeError:
    return ShapeError(f"ciphertexts: shapes {list(x)} and {list(y)} do not broadcast; make their dimensions equal or 1")
