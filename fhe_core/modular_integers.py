"""Encrypted integers modulo q, 2 to 2^32, at m / q of the torus without padding: what large-precision functions compute with.

Words and noise are those of `torus` ciphertexts. Encryptions count with the noise they have, far below that of a look-up's output: the low
bits of a value of 32 bits stand beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding, first_position
from cloakwork.fhe_core.ciphertexts import MAX_SCALAR, Ciphertexts, require_ciphertexts
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.noise import blind_rotation_variance, fresh_variance, p_fail_log2, public_key_variance
from cloakwork.fhe_core.words import Phases

__all__ = ["LARGEST_MODULUS", "ModularIntegers", "decode_integers", "encode_integers", "encryption_norm"]

LARGEST_MODULUS = 1 << 32
_ENCRYPTION_P_FAIL_LOG2 = -128.0
_DIGIT_BITS = 8


@dataclass(frozen=True, eq=False)
class ModularIntegers:
    """An array of encrypted integers modulo `modulus`: `torus` ciphertexts of phase m / modulus.

    `+`, `-` and `*` are exact modulo q: with another array of the same modulus (broadcast), with plaintext integers, `*` with integers alone.
    Noise adds up as `weight_norm` says; multiples are taken nearest to zero.

    Args:
        ciphertexts: of encoding `torus`, such as `ClientKey.encrypt_integers` and `Session.extract` give them.
        modulus: q, an integer in [2, 2^32]; 2^B for values of B bits.
        rounding: how far constants, and bits that a floor left, have moved a phase from m / q, in words, at most.
    """

    ciphertexts: Ciphertexts
    modulus: int
    rounding: float = 0.0

    def __post_init__(self) -> None:
        require_ciphertexts(self.ciphertexts, "integers")
        if self.ciphertexts.encoding is not Encoding.TORUS:
            raise ParameterError(
                f"integers: expected ciphertexts of encoding torus, got {self.ciphertexts.encoding.label}; "
                "encrypt with encrypt_integers"
            )
        object.__setattr__(self, "modulus", checked_modulus(self.modulus))

    @property
    def parameters(self) -> ParameterSet:
        """Returns the parameters of the key that they are encrypted under."""
        return self.ciphertexts.parameters

    @property
    def bits(self) -> int:
        """B of a modulus 2^B. ParameterError: another modulus."""
        if self.modulus & (self.modulus - 1):
            raise ParameterError(
                f"integers: expected a modulus that is a power of two, whose values have bits, got {self.modulus}; encrypt modulo a power of two"
            )
        return self.modulus.bit_length() - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape of the array of integers."""
        return self.ciphertexts.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.ciphertexts.ndim

    @property
    def size(self) -> int:
        """Counts the integers."""
        return self.ciphertexts.size

    @property
    def device(self) -> str:
        """One of "cpu", "cuda" or "cuda:N"."""
        return self.ciphertexts.device

    @property
    def weight_norm(self) -> float:
        """Standard deviation of the noise in units of a fresh bootstrap output, at most, of the noisiest."""
        return self.ciphertexts.weight_norm

    def __repr__(self) -> str:
        return f"<ModularIntegers {self.parameters.name} shape={self.shape} modulus={self.modulus}>"

    def _with(self, ciphertexts: Ciphertexts) -> ModularIntegers:
        return replace(self, ciphertexts=ciphertexts)

    def __len__(self) -> int:
        return len(self.ciphertexts)

    def __getitem__(self, index: Any) -> ModularIntegers:
        return self._with(self.ciphertexts[index])

    def reshape(self, *shape: Any) -> ModularIntegers:
        """Returns the same integers in another shape; one extent may be -1."""
        return self._with(self.ciphertexts.reshape(*shape))

    def to_device(self, device: str = "cuda") -> ModularIntegers:
        """Copies to a CUDA device's memory."""
        return self._with(self.ciphertexts.to_device(device))

    def to_host(self) -> ModularIntegers:
        """Copies to host memory."""
        return self._with(self.ciphertexts.to_host())

    def to(self, device: str) -> ModularIntegers:
        """Copies to a device by name, `cpu` among them."""
        return self._with(self.ciphertexts.to(device))

    __array_ufunc__ = None  # array + integers asks __radd__ instead of going element by element

    def __neg__(self) -> ModularIntegers:
        return self._with(-self.ciphertexts)

    def __add__(self, other: Any) -> ModularIntegers:
        if isinstance(other, ModularIntegers):
            if other.modulus != self.modulus:
                raise ParameterError(
                    f"integers: expected one modulus, got {self.modulus} and {other.modulus}; a function changes it (eval_func, eval_floor)"
                )
            return ModularIntegers(self.ciphertexts + other.ciphertexts, self.modulus, self.rounding + other.rounding)
        residues = _residues(other, self.modulus, "constants")
        words = encode_integers(self.parameters, residues, self.modulus)
        return replace(self, ciphertexts=self.ciphertexts._add_words(words), rounding=self.rounding + 0.5)

    __radd__ = __add__

    def __sub__(self, other: Any) -> ModularIntegers:
        return self + (-other if isinstance(other, ModularIntegers) else _negated(other, self.modulus))

    def __rsub__(self, other: Any) -> ModularIntegers:
        return (-self).__add__(other)

    def __mul__(self, factor: Any) -> ModularIntegers:
        factors = _residues(factor, self.modulus, "multiplication").astype(np.int64)
        nearest = np.where(factors > self.modulus // 2, factors - self.modulus, factors)
        largest = int(np.abs(nearest).max(initial=0))
        if largest < MAX_SCALAR:
            return replace(self, ciphertexts=self.ciphertexts * nearest, rounding=self.rounding * largest)
        half = nearest // 2  # of 2^31, which ciphertexts do not take
        parts = self.__mul__(half), self.__mul__(nearest - half)
        return parts[0] + parts[1]

    __rmul__ = __mul__


def checked_modulus(modulus: object) -> int:
    if isinstance(modulus, bool) or not isinstance(modulus, int | np.integer):
        raise ShapeError(f"modulus: expected an integer, got {type(modulus).__name__}")
    if not 2 <= modulus <= LARGEST_MODULUS:
        raise ParameterError(f"modulus: expected an integer from 2 to 2^32, got {modulus}; split larger values")
    return int(modulus)


# --- encryption -------------------------------------------------------------------------------------------------------------------


def encryption_norm(params: ParameterSet, modulus: int, *, public: bool = False) -> float:
    """Returns noise of an encryption, its rounding to a word included, in units of a look-up's output: its weight norm.

    Raises:
        ParameterError: it would not decrypt to the same integer modulo q but for 2^-128.
    """
    variance = (public_key_variance(params) if public else fresh_variance(params)) + 1 / 12 / params.modulus**2
    if p_fail_log2(1 / (2 * modulus), variance) > _ENCRYPTION_P_FAIL_LOG2:
        bits = 1
        while p_fail_log2(2.0 ** -(bits + 2), variance) <= _ENCRYPTION_P_FAIL_LOG2:
            bits += 1
        raise ParameterError(
            f"modulus: expected at most 2^{bits}, the most that encryptions of parameter set '{params.name}' tell apart, got {modulus}; "
            "use a set of two limbs, or split the values"
        )
    return math.sqrt(variance / blind_rotation_variance(params))


def encode_integers(params: ParameterSet, residues: NDArray[np.uint64], modulus: int) -> Phases:
    """Encodes round(m Q / q) mod Q of residues in [0, q), exact: Q = a q + b gives m a + (m b + q / 2) / q."""
    quotient, remainder = divmod(params.modulus, modulus)
    below = (residues * np.uint64(remainder) + np.uint64(modulus // 2)) // np.uint64(modulus)  # below 2^64
    words: Phases = (residues * np.uint64(quotient) + below) % np.uint64(params.modulus)
    return words


def decode_integers(params: ParameterSet, phases: Phases, modulus: int) -> NDArray[np.int64]:
    """Decodes round(phase q / Q) mod q, exact: long division, eight bits of q at a time, of products below 2^63."""
    size = np.uint64(params.modulus)
    whole: NDArray[np.uint64] = np.zeros_like(phases)
    rest: NDArray[np.uint64] = np.zeros_like(phases)
    for shift in range((modulus.bit_length() - 1) // _DIGIT_BITS * _DIGIT_BITS, -1, -_DIGIT_BITS):
        digit = modulus >> shift & ((1 << _DIGIT_BITS) - 1)
        total: NDArray[np.uint64] = (rest << np.uint64(_DIGIT_BITS)) + phases * np.uint64(digit)
        whole, rest = (whole << np.uint64(_DIGIT_BITS)) + total // size, total % size
    rounded: NDArray[np.uint64] = whole + (rest > np.uint64(params.modulus // 2)).astype(np.uint64)
    values: NDArray[np.int64] = (rounded % np.uint64(modulus)).astype(np.int64)
    return values


def residues_to_encrypt(values: ArrayLike, modulus: int) -> NDArray[np.uint64]:
    """Returns integers in [-q/2, q) as residues; ParameterError names the first position outside, never the value."""
    array = _integers(values, "integers")
    outside = array >= modulus
    if array.dtype.kind == "i":
        outside |= array < -(modulus // 2)
    if outside.any():
        raise ParameterError(
            f"integers: expected values in [-{modulus // 2}, {modulus}) for modulus {modulus}; the one at position {first_position(outside)} is "
            "outside; reduce it, or choose a larger modulus"
        )
    return _residues(array, modulus, "integers")


def _integers(values: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "iub" or array.size == 0:
        raise ShapeError(
            f"{name}: expected integers below 2^64, at least one, got dtype {array.dtype} of shape {list(array.shape)}; round and convert them first"
        )
    return array.astype(np.int64) if array.dtype.kind == "b" else array


def _residues(values: ArrayLike, modulus: int, name: str) -> NDArray[np.uint64]:
    array = _integers(values, name)
    wide = array.astype(np.uint64 if array.dtype.kind == "u" else np.int64)
    residues: NDArray[np.uint64] = (wide % wide.dtype.type(modulus)).astype(np.uint64)
    return residues


def _negated(values: ArrayLike, modulus: int) -> NDArray[np.uint64]:
    negated: NDArray[np.uint64] = np.uint64(modulus) - _residues(values, modulus, "constants")
    return negated
