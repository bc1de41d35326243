"""Inner products of an encrypted vector with many plaintext rows: N of them in a ciphertext.

The client packs its vector into one polynomial, x_j at X^j. The server expands it into a ciphertext of each x_j alone (`expand`), a binary tree of
X -> X^(N / 2^i + 1), which turns the signs of odd powers of X^(2^i): the sum with the image has the even ones twice, the difference the odd ones.
Then block b of N rows is sum over j of W_bj(X) x_j, W_bj = sum over r of w[b N + r, j] X^r: coefficient r is row b N + r's product.

Source: [ACLS18] the expansion. Ours: dense answers, a coefficient a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.levelled import noise
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator, PlainSummands, PlainTable
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import expansion_automorphisms, expansion_rounds
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.levelled.parameters import LevelledParameters, residues
from cloakwork.fhe_core.words import Progress


def packed_query(parameters: LevelledParameters, vector: ArrayLike) -> NDArray[np.int64]:
    """Returns the polynomial of a query, for the client to encrypt.

    Args:
        vector: integers [d], d up to N.

    Raises:
        ShapeError: another shape, or numbers that are no integers.
        ParameterError: an even plaintext modulus: the expansion doubles what it expands, and the client halves it before.
    """
    values = np.asarray(vector)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ShapeError(f"vector: expected integers of shape [d], got {values.dtype} of shape {list(values.shape)}")
    t, rounds = parameters.plaintext_modulus, expansion_rounds(parameters, len(values))
    if t % 2 == 0:
        raise ParameterError(f"plaintext_modulus: expected an odd one, got {t}")
    polynomial = np.zeros(parameters.polynomial_size, dtype=np.int64)
    polynomial[: len(values)] = residues(values, t) * pow(1 << rounds, -1, t) % t
    return polynomial


def expansion_shifts(evaluator: LevelledEvaluator, count: int, level: int) -> list[PlainTable]:
    """Prepares what `expand` multiplies by, X^(-2^i) in round i, for ciphertexts of a level."""
    size = evaluator.parameters.polynomial_size
    shifts = np.zeros((expansion_rounds(evaluator.parameters, count), 1, 1, size), dtype=np.int64)
    for i, shift in enumerate(shifts):
        shift[..., size - (1 << i)] = -1
    return [evaluator.table(shift, level) for shift in shifts]


def expand(
    evaluator: LevelledEvaluator, packed: LevelledCiphertexts, count: int, shifts: Sequence[PlainTable] | None = None
) -> LevelledCiphertexts:
    """Makes ciphertexts of the first `count` coefficients of polynomials whose others are zero, each times 2^rounds.

    Args:
        shifts: of `expansion_shifts`, where there are several queries.

    Returns:
        Those of the first coefficient of every polynomial, those of the second, ..

    Raises:
        KeyMismatchError: a key of `expansion_automorphisms` is missing.
    """
    expanded = packed
    chosen = expansion_shifts(evaluator, count, packed.level) if shifts is None else shifts
    for g, shift in zip(expansion_automorphisms(evaluator.parameters, count), chosen, strict=True):
        # In the last round the odd ones of some are beyond `count`: there is nothing to take away from their even ones.
        split = min(len(expanded), count * len(packed) - len(expanded))
        both = evaluator.take(expanded, slice(0, split))
        image = evaluator.automorphism(both, g)
        odd = evaluator.multiply_each(evaluator.subtract(both, image), shift)
        parts = [evaluator.add(both, image), odd]
        if split < len(expanded):
            rest = evaluator.take(expanded, slice(split, len(expanded)))
            parts.insert(1, evaluator.add(rest, rest))
        expanded = evaluator.concatenate(parts)
    return expanded


class InnerProductTable:
    """Plaintext rows of the server.

    Args:
        rows: integers [rows, d]; inner products count modulo the plaintext modulus.
        offsets: integers [rows] that are added to the products.
        level: of the queries; more levels, more room for noise, more memory.
        answer_level: of the answers; more levels, larger answers and room for a larger plaintext modulus.
        progress: called while the table is prepared.

    Raises:
        ShapeError: another shape, or numbers that are no integers.
    """

    def __init__(
        self,
        evaluator: LevelledEvaluator,
        rows: ArrayLike,
        offsets: ArrayLike | None = None,
        *,
        level: int = 2,
        answer_level: int = 1,
        progress: Progress = None,
    ) -> None:
        values = np.asarray(rows)
        if values.ndim != 2 or values.dtype.kind not in "iu" or 0 in values.shape:
            raise ShapeError(
                f"rows: expected integers of shape [rows, d], got {values.dtype} of shape {list(values.shape)}"
            )
        parameters = evaluator.parameters
        size = parameters.polynomial_size
        self._evaluator, self._shape, self._answer_level = evaluator, values.shape, answer_level
        blocks = -(-len(values) // size)
        expansion_rounds(parameters, values.shape[1])
        padded = values
        if len(values) < blocks * size:
            padded = np.zeros((blocks * size, values.shape[1]), dtype=values.dtype)
            padded[: len(values)] = values
        self._shifts = expansion_shifts(evaluator, values.shape[1], level)
        self._table: PlainTable = evaluator.table(padded.reshape(blocks, size, -1).transpose(0, 2, 1), level, progress)
        self._offsets: PlainSummands | None = None
        if offsets is not None:
            added = np.asarray(offsets)
            if added.shape != (len(values),) or added.dtype.kind not in "iu":
                raise ShapeError(
                    f"offsets: expected integers of shape [{len(values)}], got {added.dtype} of shape {list(added.shape)}"
                )
            padded_offsets = np.zeros((blocks, size), dtype=np.int64)
            padded_offsets.reshape(-1)[: len(values)] = added
            self._offsets = evaluator.summands(padded_offsets, level)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and numbers of each."""
        return self._shape

    @property
    def nbytes(self) -> int:
        return self._table.nbytes

    def used_by(self, evaluator: LevelledEvaluator) -> InnerProductTable:
        """Returns the same prepared rows, for queries of another client's key, or computed by another number of threads.

        Args:
            evaluator: of the same parameters and device.
        """
        other = copy(self)
        other._evaluator = evaluator
        return other

    def products(self, query: LevelledCiphertexts, progress: Progress = None) -> LevelledCiphertexts:
        """Inner products and offsets, a ciphertext for each N rows.

        Args:
            query: one ciphertext of `packed_query`, at this table's level.
        """
        return self.products_of_all([query], progress)[0]

    def products_of_all(
        self, queries: Sequence[LevelledCiphertexts], progress: Progress = None
    ) -> list[LevelledCiphertexts]:
        """Computes products of several queries of one key: the table is read once for some of them."""
        check_queries(queries, self._table.level)
        if not queries:
            return []
        terms = expand(self._evaluator, self._evaluator.concatenate(queries), self._shape[1], self._shifts)
        return self.of_expanded(terms, len(queries), progress)

    def of_expanded(
        self, terms: LevelledCiphertexts, queries: int, progress: Progress = None
    ) -> list[LevelledCiphertexts]:
        """Computes the same of what `expand` made of several queries."""
        evaluator = self._evaluator
        products = evaluator.deal(evaluator.multiply_table(terms, self._table, progress=progress), queries)
        if self._offsets is not None:
            products = [evaluator.add_summands(each, self._offsets) for each in products]
        return [evaluator.modulus_switch(each, self._answer_level) for each in products]


def check_queries(queries: Sequence[LevelledCiphertexts], level: int) -> None:
    """Raises: ShapeError: not one ciphertext each, of another level, or not fresh."""
    for query in queries:
        if len(query) != 1:
            raise ShapeError(f"query: expected one ciphertext, got {len(query)}")
        if query.level != level:
            raise ShapeError(f"query: expected level {level}, as the table, got {query.level}")
        if query.scale != 1:
            raise ShapeError(f"query: expected a fresh ciphertext, got one of scale {query.scale}")


def rows_of(decrypted: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Returns the inner products of `rows` rows in decrypted polynomials [blocks, N]."""
    return decrypted.reshape(-1)[:rows]


def expanded_noise(estimate: Noise, parameters: LevelledParameters, level: int, count: int) -> Noise:
    """Returns the noise of what `expand` makes of a query with this noise."""
    for _ in range(expansion_rounds(parameters, count)):
        estimate = estimate.plus(noise.after_keyswitch(estimate, parameters, level))
    return estimate


def products_noise(
    parameters: LevelledParameters, levels: tuple[int, int], count: int, norm1: float, norm2: float
) -> Noise:
    """Returns the noise of `InnerProductTable.products`, without a table.

    Args:
        levels: of queries and of answers.
        count: numbers of a row.
        norm1, norm2: the largest of a block: the sum of all absolute entries, and the root of the sum of their squares.
    """
    level, answer_level = levels
    estimate = expanded_noise(noise.fresh(parameters), parameters, level, count)
    estimate = estimate.times_plain(norm1, math.sqrt(count) * norm2).plus(noise.message(parameters))
    if level == answer_level:
        return estimate
    divisor = math.prod(parameters.set.primes[answer_level:level])
    return noise.after_division(estimate, parameters, divisor, level - answer_level)
