"""The bridge from levelled arithmetic to look-ups, on the server: coefficients of polynomials become LWE ciphertexts of a set of look-ups.

A ciphertext modulo Q_l with phase m + t e is multiplied by u / t modulo Q_l, which moves m from the low end of words to the high one, F m / t of the
torus for the u that makes it so, and its words are scaled to Q. The mask is cut into digits, which meet the key: products of polynomials of integers,
exact as residues modulo enough primes.

Source: [BGV12] and [CGGI20] the two forms of a message, which a factor turns into one another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.encoding import Encoding, default_encoding, slot_bits
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, ShapeError, require_kind
from cloakwork.fhe_core.levelled.backends import backend_of
from cloakwork.fhe_core.levelled.bridges.keys import (
    ToLookupsKey,
    effective_norm,
    require_bridge,
    rounding_variance,
    switch_variance,
)
from cloakwork.fhe_core.levelled.bridges.torus_words import composed, signed_digits, small_residues, torus_words
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, require_levelled, require_same_key
from cloakwork.fhe_core.levelled.large_ntt import transform_primes
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.noise import (
    keyswitch_variance,
    lookup_margin,
    lookup_offset,
    modulus_switch_variance,
)
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.words import Phases

_CIPHERTEXTS_AT_ONCE = 16


class ToLookups:
    """Takes ciphertexts of one levelled key to look-ups.

    Args:
        key: of the client.
        device: of the products, "cpu", "cuda" or "cuda:N"; results are the same words.
        threads: of the CPU.
    """

    def __init__(self, key: ToLookupsKey, *, device: str = "cpu", threads: int = 1) -> None:
        require_kind(key, ToLookupsKey, "key", "pass what the client made with to_lookups_key")
        self._key = key
        size, lookups = key.parameters.polynomial_size, key.lookups
        self._ratio = require_bridge(key.parameters, lookups)
        digits = key.gadget.level_count
        largest = size * digits * 2 ** (key.gadget.base_log - 1) * lookups.modulus // 2
        self._primes = next(
            primes
            for count in range(1, 9)
            if math.prod(primes := transform_primes(key.parameters.set.log_size, count)) > 4 * largest
        )
        # A special prime because an engine has one: nothing here is keyswitched by it.
        primes = transform_primes(key.parameters.set.log_size, len(self._primes) + 1)
        engine = _engine.Levelled(key.parameters.set.log_size, primes, 1, 1, 2)
        self._backend = backend_of(engine, device, threads)
        self._source = backend_of(key.parameters.engine, device, threads)
        words = key.encrypted.expand().words.reshape(digits, self._ratio, -1, lookups.polynomial_size)
        rows = words.transpose(2, 0, 3, 1).reshape(-1, digits, size).astype(np.int64)  # [k + 1, digits, M]
        centred = np.where(rows > lookups.modulus // 2, rows - lookups.modulus, rows)
        shape = (len(rows), digits, len(self._primes), size)
        self._table = self._backend.table(
            (small_residues(each[None], self._primes) for each in centred.reshape(-1, size)), shape
        )

    @property
    def parameters(self) -> LevelledParameters:
        """Returns the parameters of the levelled side."""
        return self._key.parameters

    def packed(
        self, ciphertexts: LevelledCiphertexts, encoding: Encoding | None = None, factor: int = 1
    ) -> PackedCiphertexts:
        """Extracts every coefficient, as values [batch, M] in an order of their own: number r N + m is coefficient r + R m (`places`).

        Args:
            encoding: of the values, by default that of the set of look-ups. Messages are m in [0, 2^p) for `message` and `full_domain`;
                for `torus` m, from -t/2 to t/2, becomes factor m / t of the torus, which is F m / t modulo 1.
            factor: F, of `torus`.

        Raises:
            KeyMismatchError: ciphertexts of another key or set.
            ParameterError: too noisy, an encoding that is neither of the three, or t too small for it.
        """
        require_levelled(ciphertexts, "bridge")
        if ciphertexts.parameters != self.parameters:
            raise KeyMismatchError(
                f"expected ciphertexts of {self.parameters.label}, got some of {ciphertexts.parameters.label}"
            )
        require_same_key(self._key.key_id, ciphertexts.key_id)
        lookups = self._key.lookups
        chosen = default_encoding(lookups) if encoding is None else encoding
        multiplier, bias = _multiplier(self.parameters, lookups, chosen, factor)
        primes, t = self.parameters.set.primes[: ciphertexts.level], self.parameters.plaintext_modulus
        modulus = math.prod(primes)
        # What m is multiplied by, modulo t, when a phase is divided by t.
        unit = -pow(modulus, -1, t) * ciphertexts.scale
        u = multiplier * pow(unit, -1, t) % t
        u -= t if u > t // 2 else 0
        norm = self._norm(ciphertexts, abs(u) / t / modulus, bias, chosen)
        factors = [u * pow(t * (modulus // p), -1, p) % p for p in primes]
        parts = [
            self._switched(
                torus_words(self._source.coefficients(self._source.here(words)), factors, primes, lookups.modulus)
            )
            for words in _chunks(ciphertexts)
        ]
        words = np.concatenate(parts).reshape(-1, *parts[0].shape[2:]).astype(word_dtype(lookups))
        shape = (len(ciphertexts), self.parameters.polynomial_size)
        bound = (0, (1 << lookups.message_bits) - 1) if chosen is Encoding.MESSAGE else None
        # A norm that is not 1 counts as opaque: what one levelled ciphertext became two of, their noise has in common.
        return PackedCiphertexts(
            lookups,
            words,
            shape,
            encoding=chosen,
            weight_norm=norm,
            key_id=self._key.encrypted.key_id,
            message_bound=bound,
        )

    def places(self, coefficients: ArrayLike) -> NDArray[np.int64]:
        """Returns where `packed` has them. ShapeError: none, or one that is out of range."""
        numbers = np.asarray(coefficients)
        size = self.parameters.polynomial_size
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or not numbers.size or not _within(numbers, size):
            raise ShapeError(f"coefficients: expected some integers in [0, {size})")
        indices: NDArray[np.int64] = numbers.astype(np.int64)
        return indices % self._ratio * self._key.lookups.polynomial_size + indices // self._ratio

    def convert(
        self,
        session: Session,
        ciphertexts: LevelledCiphertexts,
        coefficients: ArrayLike,
        encoding: Encoding | None = None,
        factor: int = 1,
    ) -> Ciphertexts:
        """LWE ciphertexts [batch, coefficients] for look-ups of a session of the same key; arguments and errors as of `packed`."""
        places = self.places(coefficients)
        columns, back = np.unique(places, return_inverse=True)
        return session.extract_columns(self.packed(ciphertexts, encoding, factor), columns)[:, back]

    def _switched(self, words: Phases) -> Phases:
        """[batch, 2, M] -> GLWE words [batch, R, k + 1, N]."""
        lookups, batch, size = self._key.lookups, len(words), words.shape[-1]
        digits = signed_digits(words[:, 1], lookups, self._key.gadget)
        transformed = self._backend.transform(small_residues(digits, self._primes))
        products = self._backend.coefficients(self._backend.products(transformed, self._table))
        switched = composed(products, self._primes, lookups.modulus)  # [k + 1, batch, M]
        switched[-1] = (switched[-1] + words[:, 0]) % np.uint64(lookups.modulus)
        split = switched.reshape(len(switched), batch, size // self._ratio, self._ratio)
        return np.ascontiguousarray(split.transpose(1, 3, 0, 2))

    def _norm(self, ciphertexts: LevelledCiphertexts, ratio: float, bias: float, encoding: Encoding) -> float:
        """Args: ratio: of the torus for a unit of the phase."""
        size, lookups, noise = self.parameters.polynomial_size, self._key.lookups, ciphertexts.noise
        variance = ratio**2 * noise.variance + switch_variance(size, lookups, self._key.gadget)
        variance += rounding_variance(size, lookups, ciphertexts.level)
        offset = ratio * noise.bound + bias
        if encoding is Encoding.TORUS:
            return effective_norm(lookups, variance + offset**2, 0.0, 1.0, 0.0)
        margin = lookup_margin(lookups) - lookup_offset(lookups)
        rest = keyswitch_variance(lookups) + modulus_switch_variance(lookups)
        return effective_norm(lookups, variance, offset, margin, rest)


def _multiplier(
    parameters: LevelledParameters, lookups: _engine.ParameterSet, encoding: Encoding, factor: int
) -> tuple[int, float]:
    """F, and how far F m / t is from where the encoding has m, at most."""
    t = parameters.plaintext_modulus
    if encoding is Encoding.TORUS:
        if math.gcd(factor, t) == t:
            raise ParameterError(f"factor: expected no multiple of the plaintext modulus {t}, got {factor}")
        return int(factor) % t, 0.0
    if encoding is Encoding.BOOLEAN:
        raise ParameterError("encoding: expected message, full_domain or torus, got boolean")
    slots = 1 << slot_bits(lookups, encoding)
    if t < slots:
        raise ParameterError(
            f"plaintext_modulus: expected at least {slots} for {encoding.label} of '{lookups.name}', got {t}"
        )
    multiplier = (t + slots // 2) // slots
    return multiplier, (1 << lookups.message_bits) * abs(multiplier / t - 1 / slots)


def _chunks(ciphertexts: LevelledCiphertexts) -> Sequence[NDArray[np.uint32]]:
    words = ciphertexts.to_host().words
    return [words[i : i + _CIPHERTEXTS_AT_ONCE] for i in range(0, len(words), _CIPHERTEXTS_AT_ONCE)]


def _within(values: NDArray[np.integer], size: int) -> bool:
    return 0 <= int(values.min()) and int(values.max()) < size
