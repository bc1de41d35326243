"""The server's formula for each sample, in exact integers. The same lines run on integers, on ciphertexts and on a forecast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices
from cloakwork.models.errors import CompileError

_ROWS_AT_ONCE: Final = 32  # powers that are held together
_INT64: Final = 1 << 62

Held = TypeVar("Held")


class Arithmetic(Protocol[Held]):
    """The protocol of `LevelledEvaluator` and `LevelledForecast`."""

    def add(self, a: Held, b: Held) -> Held: ...
    def add_plain(self, a: Held, messages: Indices) -> Held: ...
    def combine(self, a: Held, weights: Indices, *, independent: bool = False) -> Held: ...
    def multiply(self, a: Held, b: Held) -> Held: ...
    def rescale(self, a: Held) -> Held: ...


@dataclass(frozen=True, eq=False)
class Formula:
    """Scores of q: y = inner q + constant; without `outer` these, else outer y^degree + added.

    Attributes:
        inner: [rows, features].
        constant: [rows].
        degree: of the powers; 1 without `outer`.
        outer: [outputs, rows].
        added: [outputs], to the sums of powers; Python's integers where 64 bits are too few.
    """

    inner: Indices
    constant: Indices
    degree: int = 1
    outer: Indices | None = None
    added: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        rows, outer, added = len(self.inner), self.outer, self.added
        sound = (
            self.inner.ndim == 2
            and min(self.inner.shape) > 0
            and self.constant.shape == (rows,)
            and (outer is None) == (added is None)
            and (self.degree == 1 if outer is None or added is None else self.degree >= 1)
            and (outer is None or added is None or outer.shape == (len(added), rows))
        )
        if not sound:
            raise CompileError("batch: expected weights, constants and powers of shapes that fit; the model is damaged")

    @property
    def features(self) -> int:
        return int(self.inner.shape[1])

    @property
    def outputs(self) -> int:
        return len(self.inner) if self.outer is None else len(self.outer)

    def largest(self, limit: int) -> int:
        """Returns the largest absolute value of a score, whatever integers within [-limit, limit] come; sums of a row's weights fit 64 bits."""
        inner = np.abs(self.inner).sum(axis=1).astype(object) * limit + np.abs(self.constant.astype(object))
        if self.outer is None or self.added is None:
            return int(inner.max())
        powers, added = inner**self.degree, np.abs(self.added.astype(object))
        return max(int(np.abs(row.astype(object)) @ powers + each) for row, each in zip(self.outer, added, strict=True))

    def scores(self, samples: Indices, limit: int) -> NDArray[Any]:
        """Returns [samples, outputs] of integers [samples, features] within the limit: int64, or Python's integers where these are too small."""
        y = samples @ self.inner.T + self.constant
        if self.outer is None or self.added is None:
            return y
        if self.largest(limit) < _INT64:  # what overflows on the way comes back
            scores: NDArray[Any] = y**self.degree @ self.outer.T + self.added.astype(np.int64)
            return scores
        large: NDArray[Any] = y.astype(object) ** self.degree @ self.outer.T.astype(object) + self.added
        return large

    def run(self, arithmetic: Arithmetic[Held], x: Held, constants: Callable[[NDArray[Any]], Indices]) -> Held:
        """Runs the formula on a ciphertext for every feature.

        Args:
            x: fresh ones.
            constants: polynomials [batch, N] that add numbers [batch] to every sample of a ciphertext.
        """
        if self.outer is None or self.added is None:
            return arithmetic.add_plain(arithmetic.combine(x, self.inner, independent=True), constants(self.constant))
        total: Held | None = None
        for first in range(0, len(self.inner), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            y = arithmetic.combine(x, self.inner[rows], independent=True)
            y = arithmetic.add_plain(y, constants(self.constant[rows]))
            part = arithmetic.combine(power(arithmetic, y, self.degree), self.outer[:, rows])
            total = part if total is None else arithmetic.add(total, part)
        assert total is not None
        return arithmetic.add_plain(total, constants(self.added))

    def without_zeros(self) -> Self:
        """Returns the formula without rows that nothing reads."""
        if self.outer is None:
            return self
        used = np.flatnonzero((self.outer != 0).any(axis=0))
        used = used if len(used) else np.arange(1)
        return type(self)(self.inner[used], self.constant[used], self.degree, self.outer[:, used], self.added)


def power(arithmetic: Arithmetic[Held], a: Held, degree: int) -> Held:
    """Returns a^degree by squares, the noise taken down before each product."""
    product: Held | None = None
    square = a
    while True:
        square = arithmetic.rescale(square) if degree > 1 or product is not None else square
        if degree & 1:
            product = square if product is None else arithmetic.multiply(arithmetic.rescale(product), square)
        degree >>= 1
        if not degree:
            assert product is not None
            return product
        square = arithmetic.multiply(square, square)
