"""Parameter sets of levelled arithmetic.

A set is a ring, primes of 28 bits for ciphertexts and special primes for keys; a plaintext modulus is chosen beside it, on which security does
not depend. Sources: [BGV12] the scheme; [HK20] keys of so many digits under special primes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.levelled.large_ntt import transform_primes

# Messages: integers of any width modulo the plaintext modulus.


def residues(values: NDArray[Any], modulus: int) -> NDArray[np.int64]:
    """Reduces to [0, modulus). Args: values: of any integer dtype: narrow ones do not hold the modulus, and uint64 ones not fit into int64."""
    wide = values if values.dtype == np.uint64 else values.astype(np.int64)
    return (wide % wide.dtype.type(modulus)).astype(np.int64)


def centred(values: NDArray[Any], modulus: int) -> NDArray[np.signedinteger]:
    """Reduces to (-modulus / 2, modulus / 2], of 32 or 64 bits. Args: modulus: below 2^31."""
    if values.size and -(modulus // 2) < int(values.min()) and int(values.max()) <= modulus // 2:
        return values.astype(np.int32)
    reduced = residues(values, modulus)
    return np.where(reduced > modulus // 2, reduced - modulus, reduced)


def polynomials(messages: ArrayLike, size: int, modulus: int) -> NDArray[np.int64]:
    """Integers [batch, N] or [N] as residues [batch, N]. Raises: ShapeError: another shape, or numbers that are no integers."""
    values = np.asarray(messages)
    if values.dtype.kind not in "iu" or values.ndim not in (1, 2) or values.shape[-1] != size:
        raise ShapeError(
            f"messages: expected integers of shape [batch, {size}] or [{size}], got {values.dtype} of shape {list(values.shape)}"
        )
    return residues(values.reshape(-1, size), modulus)


SIGMA: Final = 3.19  # of fresh noise, of ciphertexts and keys
PLAINTEXT_LIMIT: Final = 1 << 26
SECRET_VARIANCE: Final = 2 / 3  # of a ternary coefficient


@dataclass(frozen=True)
class LevelledSet:
    """One row of the table.

    Attributes:
        log_size: polynomials have N = 2^log_size coefficients.
        levels: primes of a fresh ciphertext.
        special_primes: keys have that many more.
        digit_primes: a polynomial is keyswitched in digits of so many primes, at most `special_primes`.
        security_bits: the least of the attacks in tools/security_estimates.json, rounded down; None: insecure, for tests.
    """

    name: str
    log_size: int
    levels: int
    special_primes: int
    digit_primes: int
    security_bits: int | None

    @property
    def polynomial_size(self) -> int:
        """N, a power of two: how many slots a ciphertext has."""
        return 1 << self.log_size

    @cached_property
    def primes(self) -> list[int]:
        """Those of ciphertexts, then the special ones, which are the largest: they have to exceed what a digit brings."""
        largest = transform_primes(self.log_size, self.levels + self.special_primes)
        return largest[self.special_primes :] + largest[: self.special_primes]

    @cached_property
    def digest(self) -> bytes:
        """Digests everything that keys and ciphertexts depend on, 32 bytes."""
        described = [self.name, self.log_size, self.levels, self.special_primes, self.digit_primes, SIGMA, self.primes]
        return hashlib.sha256(json.dumps(described).encode()).digest()

    @property
    def modulus(self) -> int:
        """Returns the modulus of keys, Q P, which security is about."""
        return math.prod(self.primes)


SETS: Final = {
    row.name: row
    for row in (
        LevelledSet("bgv12", 12, 2, 1, 1, 165),
        LevelledSet("bgv13", 13, 5, 2, 2, 140),
        LevelledSet("bgv14", 14, 11, 3, 3, 141),
        LevelledSet("bgv15", 15, 23, 6, 6, 137),
        LevelledSet("bgv16", 16, 47, 12, 12, 136),
        LevelledSet("toy_bgv12", 12, 4, 2, 2, None),
    )
}


@dataclass(frozen=True)
class LevelledParameters:
    """A set and a plaintext modulus.

    Args:
        set: the row of a shipped set, which `of` takes by name.
        plaintext_modulus: t, 2 to 2^26 - 1; messages are polynomials of integers modulo t. For slots (`slots.py`) a prime that is 1 modulo 2N,
            as 65537 up to N = 2^15 and 786433 up to 2^17.

    Raises:
        ParameterError: an unknown set, a modulus outside, an insecure set outside tests.
    """

    set: LevelledSet
    plaintext_modulus: int

    @classmethod
    def of(cls, name: str, plaintext_modulus: int = 65537) -> LevelledParameters:
        """Returns a shipped set, with a plaintext modulus.

        Args:
            name: "bgv12" to "bgv16", with polynomials of N = 2^12 to 2^16 coefficients.
            plaintext_modulus: t, 2 to 2^26 - 1; `Slots` wants a prime that is 1 modulo 2N.

        Raises:
            ParameterError: an unknown name, or a modulus out of range.
        """
        if name not in SETS:
            raise ParameterError(f"parameters: expected one of {', '.join(SETS)}, got '{name}'")
        return cls(SETS[name], plaintext_modulus)

    @property
    def label(self) -> str:
        """The set and the modulus, as messages have them."""
        return f"'{self.set.name}' modulo {self.plaintext_modulus}"

    def __post_init__(self) -> None:
        if self.set.security_bits is None and os.environ.get("CLOAKWORK_ALLOW_TOY") != "1":
            raise ParameterError(
                f"parameter set '{self.set.name}' is insecure and for tests only; set CLOAKWORK_ALLOW_TOY=1 there"
            )
        if not isinstance(self.plaintext_modulus, int | np.integer):
            raise ShapeError(f"plaintext_modulus: expected an integer, got {type(self.plaintext_modulus).__name__}")
        if not 2 <= self.plaintext_modulus < PLAINTEXT_LIMIT:
            raise ParameterError(f"plaintext_modulus: expected 2 to 2^26 - 1, got {str(self.plaintext_modulus)[:40]}")

    @property
    def engine(self) -> _engine.Levelled:
        """The same for equal parameters: what one has prepared another takes."""
        return _engine_of(self.set, self.plaintext_modulus)

    @property
    def polynomial_size(self) -> int:
        """N: how many slots a ciphertext has."""
        return self.set.polynomial_size

    @property
    def levels(self) -> int:
        """Counts the primes of a fresh ciphertext."""
        return self.set.levels

    def modulus(self, level: int) -> int:
        """Returns the modulus of a ciphertext of `level` primes."""
        return math.prod(self.set.primes[:level])

    @property
    def special_modulus(self) -> int:
        """The product of the primes that only keys have."""
        return math.prod(self.set.primes[self.levels :])

    def ciphertext_bytes(self, level: int | None = None) -> int:
        """Counts the bytes of two polynomials in words of four bytes; seeded ones take half of it."""
        return 8 * self.polynomial_size * (self.levels if level is None else level)

    @property
    def switch_key_bytes(self) -> int:
        """Counts the bytes of one key, seeded; in memory it takes twice that."""
        return 4 * math.prod(self.engine.key_bodies_shape)


_engines: WeakValueDictionary[tuple[LevelledSet, int], _engine.Levelled] = WeakValueDictionary()
_engines_lock = threading.Lock()


def _engine_of(row: LevelledSet, plaintext_modulus: int) -> _engine.Levelled:
    with _engines_lock:
        return _kept_engine(row, plaintext_modulus)


@lru_cache(maxsize=16)
def _kept_engine(row: LevelledSet, plaintext_modulus: int) -> _engine.Levelled:
    """The latest stay, others while somebody holds them: two of equal parameters would not take each other's prepared words."""
    engine = _engines.get((row, plaintext_modulus))
    if engine is None:
        engine = _engine.Levelled(row.log_size, row.primes, row.special_primes, row.digit_primes, plaintext_modulus)
        _engines[row, plaintext_modulus] = engine
    return engine
