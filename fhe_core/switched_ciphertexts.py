"""Results in few bits: LWE ciphertexts with every word rounded to a modulus 2^b, for the owner of the key and nobody else to go on with.

Rounding is public arithmetic on words that could be sent as they are, so it tells nothing more; what stays on the server is low bits, all noise.
Section 11 of docs/reference/specification.md. Source: [BV11] modulus reduction; ours rounds to the nearest and keeps the dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine, wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import on_host
from cloakwork.fhe_core.ciphertexts import (
    Ciphertexts,
    PackedCiphertexts,
    SeededCiphertexts,
    SeededPackedCiphertexts,
    _CiphertextArray,
)
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.wire.layout import MAX_WEIGHT_NORM, MAX_WORD_BITS
from cloakwork.fhe_core.words import Words

__all__ = ["SwitchedCiphertexts", "load_ciphertexts", "load_results"]


class SwitchedCiphertexts(_CiphertextArray):
    """LWE ciphertexts modulo 2^b: `words` uint32 of shape `shape + (kN + r,)`. Made by `switch`, read by `expand`."""

    kind = wire.Kind.SWITCHED_CIPHERTEXTS
    seeded = False

    def __init__(
        self, parameters: ParameterSet, words: Any, shape: tuple[int, ...], word_bits: int, **metadata: Any
    ) -> None:
        super().__init__(parameters, words, shape, **metadata)
        self._word_bits = word_bits

    @classmethod
    def switch(cls, ciphertexts: Ciphertexts, word_bits: int, threads: int = 1) -> SwitchedCiphertexts:
        """Rounds every word x to floor((x 2^b + floor(Q / 2)) / Q) mod 2^b.

        Args:
            word_bits: b, 1 to 32.

        Noise: plus `noise.word_rounding_variance`.
        """
        if not 1 <= word_bits <= MAX_WORD_BITS:
            raise ParameterError(f"word_bits: expected 1 to {MAX_WORD_BITS}, got {word_bits}")
        words = switched_words(ciphertexts.parameters, on_host(ciphertexts.words), word_bits, threads)
        return cls(
            ciphertexts.parameters,
            words,
            ciphertexts.shape,
            word_bits,
            encoding=ciphertexts.encoding,
            weight_norm=ciphertexts.weight_norm,
            key_id=ciphertexts.key_id,
            purpose=ciphertexts.purpose,
        )

    @property
    def word_bits(self) -> int:
        """b, log2 of the modulus."""
        return self._word_bits

    def expand(self) -> Ciphertexts:
        """Expands to the nearest words modulo Q."""
        modulus, half = self.parameters.modulus, 1 << (self._word_bits - 1)
        words = self._words.astype(np.uint64)
        # floor((x Q + 2^(b-1)) / 2^b), Q in two halves so that nothing overflows: x and 2^b are at most 2^32, Q is below 2^54.
        high, low = divmod(modulus, 1 << 27)
        lower = words * np.uint64(low) + np.uint64(half)
        upper = words * np.uint64(high)
        shift = np.uint64(self._word_bits)
        # upper 2^27 + lower, divided by 2^b
        quotient, rest = upper >> shift, upper & np.uint64((1 << self._word_bits) - 1)
        middle = rest * np.uint64(1 << 27) + lower
        result = (quotient << np.uint64(27)) + (middle >> shift)
        expanded_words = (result % np.uint64(modulus)).astype(word_dtype(self.parameters))
        expanded = Ciphertexts(
            self.parameters,
            expanded_words,
            self.shape,
            encoding=self.encoding,
            weight_norm=self.weight_norm,
            key_id=self.key_id,
            purpose=self.purpose,
        )
        expanded.rounded_bits = self._word_bits
        return expanded

    def _header(self) -> wire.Header:
        return wire.Header(
            kind=self.kind,
            parameters=self._parameters,
            seeded=False,
            key_id=self._key_id,
            shape=self._shape,
            encoding=self._encoding,
            weight_norm=min(self.weight_norm, MAX_WEIGHT_NORM),
            word_bits=self._word_bits,
            purpose=self._purpose,
        )

    @classmethod
    def _from_sections(cls, header: wire.Header, sections: list[wire.Section]) -> SwitchedCiphertexts:
        words = sections[0]
        assert isinstance(words, np.ndarray)
        return cls(header.parameters, words, header.shape, header.word_bits, **header.metadata())


def switched_words(params: ParameterSet, words: Words, word_bits: int, threads: int = 1) -> NDArray[np.uint32]:
    """Rounds words: floor((x 2^b + floor(Q / 2)) / Q) mod 2^b."""
    rows = np.ascontiguousarray(words).reshape(-1, words.shape[-1])
    return _engine.switch_words(params, rows, word_bits, threads).reshape(words.shape)


def load_results(
    data: wire.Buffer, *, parameters: ParameterSet | None = None, max_bytes: int = wire.DEFAULT_MAX_BYTES
) -> Ciphertexts:
    """Reads an answer of a server as LWE ciphertexts, whichever way it came: switched, or in full words.

    Raises:
        SerializationError: neither of the two.
    """
    options: dict[str, Any] = {"parameters": parameters, "max_bytes": max_bytes}
    header = wire.peek(data)
    if header.kind is wire.Kind.SWITCHED_CIPHERTEXTS:
        purpose = header.purpose is not None
        full = wire.object_bytes(wire.Kind.CIPHERTEXTS, header.parameters, False, header.shape, purpose=purpose)
        wire.check_size(full, max_bytes)
        return SwitchedCiphertexts.from_bytes(data, **options).expand()
    return Ciphertexts.from_bytes(data, **options)


def load_ciphertexts(
    data: wire.Buffer, *, parameters: ParameterSet | None = None, max_bytes: int = wire.DEFAULT_MAX_BYTES
) -> Ciphertexts | PackedCiphertexts:
    """Loads ciphertexts of any kind from bytes, seeded and switched ones expanded (after `max_bytes` has been checked for the expanded size too)."""
    header = wire.peek(data)
    if header.kind is wire.Kind.SWITCHED_CIPHERTEXTS:
        return load_results(data, parameters=parameters, max_bytes=max_bytes)
    if header.kind not in (wire.Kind.CIPHERTEXTS, wire.Kind.PACKED_CIPHERTEXTS):
        raise wire.wrong_kind(header.kind, wire.Kind.CIPHERTEXTS)
    if header.seeded:
        full = wire.object_bytes(
            header.kind, header.parameters, False, header.shape, purpose=header.purpose is not None
        )
        wire.check_size(full, max_bytes)
    options: dict[str, Any] = {"parameters": parameters, "max_bytes": max_bytes}
    if header.kind is wire.Kind.CIPHERTEXTS:
        return (
            SeededCiphertexts.from_bytes(data, **options).expand()
            if header.seeded
            else Ciphertexts.from_bytes(data, **options)
        )
    return (
        SeededPackedCiphertexts.from_bytes(data, **options).expand()
        if header.seeded
        else PackedCiphertexts.from_bytes(data, **options)
    )
