"""Look-up tables as polynomials, ready for a blind rotation: section 8 of docs/reference/specification.md.

Source: [CJP21] programmable bootstrapping. Ours: every ciphertext of a batch may have a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import (
    Encoding,
    Integers,
    Reals,
    encode_torus,
    first_position,
    negate,
    real_array,
    slot_bits,
)
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.words import Phases, Words

Function: TypeAlias = Callable[[int], int]
TableLike: TypeAlias = Function | ArrayLike | Sequence[Function | ArrayLike]
RealFunction: TypeAlias = Callable[[Reals], ArrayLike]


@dataclass(frozen=True, eq=False)
class LookupTables:
    """T tables of one parameter set as `polynomials` [T, `table_size`], and the encoding of what they give. Build once, use often.

    The methods take the set itself: `Session.parameters`, or `parameter_set(name)`. Tables of other lengths or of real numbers are a ShapeError,
    entries that the set has no message for a ParameterError.
    """

    parameters: ParameterSet
    polynomials: Words
    output: Encoding
    bounds: NDArray[np.float64] | None = None  # [T, 2], least and largest entry where they are messages

    def __len__(self) -> int:
        return len(self.polynomials)

    @classmethod
    def of_messages(cls, params: ParameterSet, table: TableLike, output: Encoding = Encoding.MESSAGE) -> LookupTables:
        """Builds functions on [0, 2^p), with padding: a callable, 2^p integers, or a sequence or array of such tables [.., 2^p]."""
        return cls._of_slots(params, table, 1 << _message_bits(params), output)

    @classmethod
    def of_half_domain(cls, params: ParameterSet, table: TableLike) -> LookupTables:
        """Builds negacyclic functions, no padding: the entries for [0, 2^(p-1)); m + 2^(p-1) gives the negated entry of m."""
        return cls._of_slots(params, table, 1 << (_message_bits(params) - 1), Encoding.FULL_DOMAIN)

    @classmethod
    def _of_slots(cls, params: ParameterSet, table: TableLike, slots: int, output: Encoding) -> LookupTables:
        entries = _entries(params, table, slots)
        bits = slot_bits(params, output)
        scaled = entries.astype(np.uint64) * np.uint64(params.modulus) + np.uint64(1 << (bits - 1))
        words = (scaled >> np.uint64(bits)) % np.uint64(params.modulus)
        bounds = np.stack([entries.min(axis=1), entries.max(axis=1)], axis=1).astype(np.float64)
        return cls(params, slot_polynomials(params, words), output, bounds if output is Encoding.MESSAGE else None)

    @classmethod
    def of_activations(cls, params: ParameterSet, functions: RealFunction | Sequence[RealFunction]) -> LookupTables:
        """Builds real functions on [-1/4, 1/4): entry j is f(j / 2S), in the second half -f(j / 2S - 1/2)."""
        points = np.arange(params.table_size) / (2 * params.table_size)
        half = params.table_size // 2
        points[half:] -= 0.5
        words = _sampled(params, functions, points)
        words[:, half:] = negate(params, words[:, half:])
        return cls(params, words.astype(word_dtype(params)), Encoding.TORUS)

    @classmethod
    def of_negacyclic(cls, params: ParameterSet, functions: RealFunction | Sequence[RealFunction]) -> LookupTables:
        """Builds real functions on [0, 1/2): entry j is f(j / 2S); x - 1/2 gives -f(x)."""
        points = np.arange(params.table_size) / (2 * params.table_size)
        return cls(params, _sampled(params, functions, points).astype(word_dtype(params)), Encoding.TORUS)

    @classmethod
    def of_sign(cls, params: ParameterSet, magnitude: int, output: Encoding) -> LookupTables:
        """Builds +magnitude (a torus word) on the upper half of the torus, -magnitude on the lower."""
        polynomials = np.full((1, params.table_size), magnitude, dtype=word_dtype(params))
        return cls(params, polynomials, output)


def slot_polynomials(params: ParameterSet, torus_words: Phases) -> Words:
    """Spreads entries [T, E] to tables [T, S]: LUT[j] = f[floor((j + slot/2) / slot)], the last half slot is -f[0]."""
    entries = torus_words.shape[1]
    slot = params.table_size // entries
    assert slot * entries == params.table_size and slot >= 2
    polynomials = np.roll(np.repeat(torus_words, slot, axis=1), -(slot // 2), axis=1)
    polynomials[:, -(slot // 2) :] = negate(params, torus_words[:, :1])
    return polynomials.astype(word_dtype(params))


def _message_bits(params: ParameterSet) -> int:
    return slot_bits(params, Encoding.FULL_DOMAIN)


def _entries(params: ParameterSet, table: TableLike, slots: int) -> Integers:
    """Any of the accepted forms as integers [T, slots] in [0, 2^p)."""
    if callable(table):
        table = [table]
    if isinstance(table, Sequence) and any(callable(part) for part in table):
        table = [[part(m) for m in range(slots)] if callable(part) else part for part in table]
    try:
        array = np.asarray(table)
    except ValueError:
        raise ShapeError(f"table: expected tables of {slots} entries each, got tables of different lengths") from None
    if array.ndim == 0 or array.shape[-1] != slots or array.size == 0:
        raise ShapeError(
            f"table: expected {slots} entries for parameter set '{params.name}', got shape {list(array.shape)}; "
            "give one entry per message"
        )
    if array.dtype.kind not in "iub":
        raise ShapeError(
            f"table: expected integers, got dtype {array.dtype}; round them, or use activation for real numbers"
        )
    outside = (array < 0) | (array >= 1 << params.message_bits)
    if outside.any():
        raise ParameterError(
            f"table: expected entries in [0, {1 << params.message_bits}) for parameter set '{params.name}'; "
            f"the one at position {first_position(outside)} is outside; reduce it, or choose a set with more message bits"
        )
    return array.reshape(-1, slots).astype(np.int64)


def _sampled(params: ParameterSet, functions: RealFunction | Sequence[RealFunction], points: Reals) -> Phases:
    rows = [functions] if callable(functions) else list(functions)
    if not rows:
        raise ShapeError("activation: expected at least one function, got none")
    return np.stack([encode_torus(params, _values(function, points), 0.5) for function in rows])


def _values(function: RealFunction, points: Reals) -> NDArray[np.float64]:
    values = real_array(function(points), "activation")
    if values.shape not in ((), points.shape):
        raise ShapeError(
            f"activation: expected a function that maps an array of shape {points.shape} to the same shape, got {values.shape}; "
            "write it with numpy operations"
        )
    return np.broadcast_to(values, points.shape)
