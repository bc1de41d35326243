"""Values to torus words and back: section 8 of docs/reference/specification.md.

Four encodings. `boolean`: -1/8 and +1/8 of the torus. `message`: m in [0, 2^p) at m / 2^(p+1), half of the torus is padding.
`full_domain`: m in [0, 2^p) at m / 2^p, no padding. `torus`: a real number is its own position on the torus.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.words import Phases

Integers: TypeAlias = NDArray[np.int64]
Reals: TypeAlias = NDArray[np.float64]

DEFAULT_TORUS_LIMIT = 0.25


class Encoding(IntEnum):
    """The encoding of a value by a phase, a point of the torus [0, 1); the number is the byte of the wire format. p: the set's message bits.

    Attributes:
        TORUS: a real number is its own phase: of activations, in [-1/4, 1/4].
        MESSAGE: an integer m in [0, 2^p) at m / 2^(p + 1); the upper half of the torus is padding.
        FULL_DOMAIN: an integer m in [0, 2^p) at m / 2^p, no padding.
        BOOLEAN: a bit, false at -1/8 and true at +1/8.
    """

    TORUS = 0
    MESSAGE = 1
    FULL_DOMAIN = 2
    BOOLEAN = 3

    @property
    def label(self) -> str:
        """The name in small letters, as messages have it."""
        return self.name.lower()


def default_encoding(params: ParameterSet) -> Encoding:
    """Returns booleans of gate sets, messages of exact ones, torus values of approximate ones."""
    kinds = {"gate": Encoding.BOOLEAN, "exact": Encoding.MESSAGE, "approximate": Encoding.TORUS}
    return kinds[params.kind]


# --- values to torus words -------------------------------------------------------------------------------------------------------


def encode(
    params: ParameterSet, values: ArrayLike, encoding: Encoding, torus_limit: float = DEFAULT_TORUS_LIMIT
) -> Phases:
    """Encodes values of any shape to torus words of the same shape, uint64 in [0, Q). ParameterError names the first position out of range."""
    if encoding is Encoding.BOOLEAN:
        return encode_booleans(params, values)
    if encoding is Encoding.TORUS:
        return encode_torus(params, values, torus_limit)
    return encode_messages(params, values, encoding)


def encode_messages(params: ParameterSet, values: ArrayLike, encoding: Encoding = Encoding.MESSAGE) -> Phases:
    """Encodes messages as floor((m Q + 2^(b-1)) / 2^b) mod Q with b = p + 1 (message) or p (full_domain)."""
    bits = slot_bits(params, encoding)
    array = np.asarray(values)
    if array.dtype.kind not in "iub":
        raise ShapeError(f"messages: expected integers, got dtype {array.dtype}; round and convert them first")
    outside = (array < 0) | (array >= 1 << params.message_bits)
    if outside.any():
        raise ParameterError(
            f"messages: expected integers in [0, {1 << params.message_bits}) for parameter set '{params.name}'; "
            f"the one at position {first_position(outside)} is outside; reduce it, or choose a set with more message bits"
        )
    scaled = array.astype(np.uint64) * np.uint64(params.modulus) + np.uint64(1 << (bits - 1))  # below 2^62
    words: Phases = (scaled >> np.uint64(bits)) % np.uint64(params.modulus)
    return words


def encode_booleans(params: ParameterSet, values: ArrayLike) -> Phases:
    """Encodes False as -floor(Q/8), True as +floor(Q/8)."""
    array = np.asarray(values)
    if array.dtype != np.bool_:
        if array.dtype.kind not in "iu":
            raise ShapeError(f"bits: expected booleans or integers 0 and 1, got dtype {array.dtype}; compare first")
        outside = (array != 0) & (array != 1)
        if outside.any():
            raise ParameterError(f"bits: expected 0 or 1; the one at position {first_position(outside)} is neither")
        array = array.astype(np.bool_)
    eighth = params.modulus // 8
    return np.where(array, np.uint64(eighth), np.uint64(params.modulus - eighth))


def encode_torus(params: ParameterSet, values: ArrayLike, limit: float = DEFAULT_TORUS_LIMIT) -> Phases:
    """Encodes fractions of the torus in [-limit, limit], limit at most 1/2: round(x Q) mod Q."""
    array = real_array(values, "torus values")
    if not 0 < limit <= 0.5:
        raise ParameterError(f"torus limit: expected a number in (0, 0.5], got {limit}; it is a fraction of the torus")
    outside = ~(np.abs(array) <= limit)  # true for NaN
    if outside.any():
        raise ParameterError(
            f"torus values: expected numbers in [-{limit:g}, {limit:g}]; the one at position {first_position(outside)} is outside; "
            "scale the input (half of the torus is padding by default)"
        )
    signed = np.rint(array * params.modulus).astype(np.int64)
    return (signed % np.int64(params.modulus)).astype(np.uint64)


def torus_constant(params: ParameterSet, numerator: int, denominator: int) -> int:
    """Returns the torus word of numerator / denominator, rounded down, in [0, Q)."""
    return (numerator * params.modulus // denominator) % params.modulus


def slot_bits(params: ParameterSet, encoding: Encoding) -> int:
    """Returns log2 of the number of slots on the whole torus: p + 1 with padding, p without."""
    if params.message_bits == 0:
        raise ParameterError(
            f"parameter set '{params.name}' is of kind {params.kind} and has no integer messages; "
            "use an exact set (lut1 .. lut8), or the encoding that this set has"
        )
    return params.message_bits + (1 if encoding is Encoding.MESSAGE else 0)


# --- phases to values ------------------------------------------------------------------------------------------------------------


def decode(params: ParameterSet, phases: Phases, encoding: Encoding) -> NDArray[np.generic]:
    """Decodes phases in [0, Q) to values: bool, int64 or float64 of the same shape.

    A `message` is given modulo 2^(p+1): at least 2^p means that a sum ran into the padding.
    """
    if encoding is Encoding.BOOLEAN:
        return phases < np.uint64((params.modulus + 1) // 2)
    if encoding is Encoding.TORUS:
        return centre(params, phases) / params.modulus
    bits = slot_bits(params, encoding)
    rounded = ((phases << np.uint64(bits)) + np.uint64(params.modulus // 2)) // np.uint64(params.modulus)
    return (rounded & np.uint64((1 << bits) - 1)).astype(np.int64)


def centre(params: ParameterSet, words: Phases) -> Integers:
    """Maps [0, Q) to [-(Q-1)/2, (Q-1)/2]."""
    signed = words.astype(np.int64)
    return np.where(signed > (params.modulus - 1) // 2, signed - params.modulus, signed)


def phase_error(params: ParameterSet, phases: Phases, decoded: NDArray[np.generic], encoding: Encoding) -> Reals:
    """Returns phase - encode(decoded), as a fraction of the torus in [-1/2, 1/2)."""
    if encoding in (Encoding.BOOLEAN, Encoding.TORUS):
        ideal = encode(params, decoded, encoding, 0.5)
    else:
        bits = slot_bits(params, encoding)
        residues = (decoded.astype(np.int64) % (1 << bits)).astype(np.uint64)
        scaled = residues * np.uint64(params.modulus) + np.uint64(1 << (bits - 1))
        ideal = (scaled >> np.uint64(bits)) % np.uint64(params.modulus)
    difference = (phases + np.uint64(params.modulus) - ideal) % np.uint64(params.modulus)
    return centre(params, difference) / params.modulus


# --- helpers ----------------------------------------------------------------------------------------------------------------------


def negate(params: ParameterSet, words: Phases) -> Phases:
    """Returns -x modulo Q, word by word."""
    return (np.uint64(params.modulus) - words) % np.uint64(params.modulus)


def first_position(mask: NDArray[np.bool_]) -> int | tuple[int, ...]:
    """Finds where a mask is first true, as one integer for vectors."""
    position = tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
    return position[0] if len(position) == 1 else position


def real_array(values: ArrayLike, name: str) -> Reals:
    """Returns an array as float64; ShapeError for what is not real numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{name}: expected real numbers, got dtype {array.dtype}; convert them to float64")
    return array.astype(np.float64)
