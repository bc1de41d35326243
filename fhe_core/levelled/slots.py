"""Polynomials as vectors of N numbers modulo t, which sums and products take element by element.

A slot is the value of the polynomial at a root of X^N + 1 modulo t, a prime that is 1 modulo 2N. Slots are two rows of N / 2: column j of row r at
psi^E, E = (-1)^r 3^j modulo 2N, so that X -> X^(3^k) rotates both rows by k to the left and X -> X^(2N - 1) exchanges them.

Source: [SV14] numbers in slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.levelled.parameters import LevelledParameters, residues

GENERATOR = 3  # of the rotations modulo 2N, with -1


class Slots:
    """Numbers modulo t as polynomials, and back: N slots in two rows of N / 2, which sums and products take one by one.

    Raises:
        ParameterError: a plaintext modulus t that is no prime, or not 1 modulo 2N.
    """

    def __init__(self, parameters: LevelledParameters) -> None:
        size, t = parameters.polynomial_size, parameters.plaintext_modulus
        if t % (2 * size) != 1 or not is_prime(t):
            raise ParameterError(
                f"plaintext_modulus: slots want a prime that is 1 modulo {2 * size}, got {t}; the least is {least_slot_modulus(size)}"
            )
        self._size, self._modulus = size, t
        self._psi = next(
            root for base in range(2, t) if pow(root := pow(base, (t - 1) // (2 * size), t), size, t) == t - 1
        )
        powers = np.ones(size // 2, dtype=np.int64)
        for j in range(1, size // 2):
            powers[j] = powers[j - 1] * GENERATOR % (2 * size)
        exponents = np.concatenate([powers, 2 * size - powers])
        self._place = (exponents - 1) // 2  # of a slot among the values at psi^(2i + 1)
        self._twist = _powers(self._psi, size, t)
        self._untwist = _powers(pow(self._psi, -1, t), size, t)

    @property
    def count(self) -> int:
        """N, in two rows."""
        return self._size

    def encode(self, values: ArrayLike) -> NDArray[np.uint32]:
        """Args: values: integers [.., N] modulo t, the first row before the second. Returns: coefficients [.., N]."""
        values = self._checked(values, "values")
        placed = np.empty(values.shape, dtype=np.int64)
        placed[..., self._place] = residues(values, self._modulus)
        inverse_root = pow(self._psi, -2, self._modulus)
        coefficients = (
            _transform(placed, inverse_root, self._modulus) * pow(self._size, -1, self._modulus) % self._modulus
        )
        return (coefficients * self._untwist % self._modulus).astype(np.uint32)

    def decode(self, coefficients: ArrayLike) -> NDArray[np.int64]:
        """Args: coefficients: integers [.., N], as `LevelledClientKey.decrypt` gives them. Returns: values [.., N] in [0, t), of both rows."""
        polynomials = self._checked(coefficients, "coefficients")
        twisted = residues(polynomials, self._modulus) * self._twist % self._modulus
        values = _transform(twisted, pow(self._psi, 2, self._modulus), self._modulus)
        return values[..., self._place]

    def _checked(self, values: ArrayLike, what: str) -> NDArray[Any]:
        array = np.asarray(values)
        if array.dtype.kind not in "iu" or array.shape[-1:] != (self._size,):
            raise ShapeError(
                f"{what}: expected integers of shape [.., {self._size}], got {array.dtype} of shape {list(array.shape)}"
            )
        return array

    def selectors(self, slots: ArrayLike) -> NDArray[np.int64]:
        """Makes polynomials [slots, N] whose products with a polynomial have its value in that slot as their constant coefficient: for `ToLookups`.

        A product with one has noise of t sqrt(N / 12) times as much: leave a level for it. ShapeError: no such slots.
        """
        indices = np.asarray(slots)
        if indices.dtype.kind not in "iu" or indices.ndim != 1 or ((indices < 0) | (indices >= self._size)).any():
            raise ShapeError(f"slots: expected integers in [0, {self._size}) of shape [slots]")
        powers = _powers(self._psi, 2 * self._size, self._modulus)
        exponents = 2 * self._place[indices][:, None] + 1
        # The constant coefficient of m q is m_0 q_0 - m_1 q_(N-1) - m_2 q_(N-2) - ..
        values = powers[exponents * np.arange(self._size) % (2 * self._size)]
        return np.concatenate([values[:, :1], -values[:, :0:-1]], axis=1)

    def rotation(self, steps: int) -> int:
        """Returns the automorphism that moves both rows by `steps` slots to the left, modulo N / 2; negative ones are to the right."""
        if not isinstance(steps, int | np.integer):
            raise ShapeError(f"steps: expected an integer, got {type(steps).__name__}")
        steps = int(steps)
        return pow(GENERATOR, steps % (self._size // 2), 2 * self._size)

    @property
    def exchange(self) -> int:
        """The automorphism that exchanges the rows."""
        return 2 * self._size - 1


def least_slot_modulus(size: int) -> int:
    """Returns the smallest prime t with `size` slots: t - 1 is a multiple of 2 size."""
    return next(t for t in range(2 * size + 1, 1 << 26, 2 * size) if is_prime(t))


def is_prime(number: int) -> bool:
    """Tests a number by trial division, for numbers of some 26 bits."""
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))


def _powers(base: int, count: int, modulus: int) -> NDArray[np.int64]:
    powers = np.ones(count, dtype=np.int64)
    for i in range(1, count):
        powers[i] = int(powers[i - 1]) * base % modulus
    return powers


def _transform(values: NDArray[np.int64], root: int, modulus: int) -> NDArray[np.int64]:
    """sum over k of values[k] root^(ik), for every i; root of order N."""
    size = values.shape[-1]
    powers = _powers(root, size, modulus)
    rows = values.reshape(-1, 1, size)  # [polynomials, i modulo 2^stages, what is left of k]
    while rows.shape[2] > 1:
        half = rows.shape[2] // 2
        low, high = rows[:, :, :half], rows[:, :, half:]
        odd = (low - high) % modulus * powers[:: size // (2 * half)][:half] % modulus
        rows = np.concatenate([(low + high) % modulus, odd], axis=1)
    return rows.reshape(values.shape)
