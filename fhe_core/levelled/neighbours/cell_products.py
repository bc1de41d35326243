"""The server's side of chosen cells (`cells.py`): inner products of all rows, then those of the cells that encrypted selectors name.

The query expands into its numbers x_j and selectors E(b, p, j), 1 / P where place p shall have cell (p + j) mod P of block b and 0 elsewhere. With
s_b the inner products of block b,

  r_p = sum over b of s_b (E(b, p, 0) + X^-1 E(b, p, 1))

has the wanted cell in its coefficients p + P i; one keyswitch for each place. A tree of automorphisms joins these classes of all r_p into one
ciphertext: (u + X^s v) + (u - X^s v)(X^(N/s + 1)) has twice the coefficients of u at multiples of 2s, and of v in between, where u and v hold
something at multiples of s that is to stay and all else goes.

Source: [ACLS18] the expansion and selection, [CDKS21] the tree. Ours: of classes of coefficients, where noise of what goes is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.levelled import noise
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator, PlainTable
from cloakwork.fhe_core.levelled.neighbours.cells import CellLayout, CellLevels
from cloakwork.fhe_core.levelled.neighbours.inner_products import (
    InnerProductTable,
    check_queries,
    expand,
    expanded_noise,
    expansion_shifts,
)
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.words import Progress

_SILENT = Noise(0.0, (0.0,))
_TERM_BYTES = 1 << 31  # of expanded queries at once; while they are made they take three times as much


class CellTable:
    """Plaintext rows of the server, in cells.

    Args:
        rows: integers [blocks * N, features], each where `CellLayout.rows_of` says; zeros where a cell has fewer.
        offsets: integers [blocks * N] that are added to the products.
        progress: called while the table is prepared.

    Raises:
        ShapeError: another shape, or numbers that are no integers.
    """

    def __init__(
        self,
        evaluator: LevelledEvaluator,
        layout: CellLayout,
        levels: CellLevels,
        rows: ArrayLike,
        offsets: ArrayLike,
        progress: Progress = None,
    ) -> None:
        self._evaluator, self._layout, self._levels = evaluator, layout, levels
        self._table = InnerProductTable(
            evaluator, rows, offsets, level=levels.query, answer_level=levels.product, progress=progress
        )
        self._expansion = expansion_shifts(evaluator, layout.count, levels.query)
        choices = np.stack([_monomial(layout, -choice) for choice in range(layout.choices)])
        self._choices = evaluator.table(choices[None], levels.query)
        self._down = [_prepared(evaluator, layout, -place, levels.joined) for place in range(layout.probes)]
        self._up = [_prepared(evaluator, layout, 1 << i, levels.joined) for i in range(_rounds(layout))]

    @property
    def nbytes(self) -> int:
        return self._table.nbytes

    def used_by(self, evaluator: LevelledEvaluator) -> CellTable:
        """Returns the same rows, in the same memory, for an evaluator of the same parameters and device with other keys."""
        table = copy(self)
        table._evaluator, table._table = evaluator, self._table.used_by(evaluator)
        return table

    def products_of_all(
        self, queries: Sequence[LevelledCiphertexts], progress: Progress = None
    ) -> list[LevelledCiphertexts]:
        """Multiplies every query [1] of one key: one ciphertext, of which `CellLayout.scores` takes the places apart."""
        layout, levels = self._layout, self._levels
        check_queries(queries, levels.query)
        bytes_of_one = layout.count * layout.parameters.ciphertext_bytes(levels.query)
        together = max(1, _TERM_BYTES // bytes_of_one)
        return [
            answer
            for first in range(0, len(queries), together)
            for answer in self._of_some(queries[first : first + together], progress)
        ]

    def _of_some(self, queries: Sequence[LevelledCiphertexts], progress: Progress) -> list[LevelledCiphertexts]:
        evaluator, layout, levels = self._evaluator, self._layout, self._levels
        terms = expand(evaluator, evaluator.concatenate(queries), layout.count, self._expansion)
        split = layout.features * len(queries)
        scores = self._table.of_expanded(evaluator.take(terms, slice(0, split)), len(queries), progress)
        chosen = evaluator.multiply_table(evaluator.take(terms, slice(split, len(terms))), self._choices)
        chosen = evaluator.modulus_switch(chosen, levels.product)
        places = [
            evaluator.modulus_switch(
                evaluator.multiply_sum(*each, rounded=levels.query - levels.product), levels.joined
            )
            for each in zip(evaluator.deal(chosen, len(queries)), scores, strict=True)
        ]
        joined = self._joined(evaluator.deal(evaluator.concatenate(places), layout.probes))
        answers = evaluator.modulus_switch(joined, levels.answer).rounded(levels.answer_bits)
        return [replace(answers, words=np.ascontiguousarray(answers.words[i : i + 1])) for i in range(len(queries))]

    def _joined(self, places: Sequence[LevelledCiphertexts]) -> LevelledCiphertexts:
        """Puts class p of ciphertext i of place p, for each p, into ciphertext i."""
        evaluator, size = self._evaluator, self._layout.parameters.polynomial_size
        # A coefficient of the result is P times one of a place: of its noise so much counts, and of keyswitches what is summed.
        joined = evaluator.concatenate(
            [
                evaluator.multiply_each(replace(place, noise=_SILENT), shift)
                for place, shift in zip(places, self._down, strict=True)
            ]
        )
        for i in reversed(range(_rounds(self._layout))):
            half = len(joined) // 2
            odd = evaluator.multiply_each(evaluator.take(joined, slice(half, 2 * half)), self._up[i])
            even = evaluator.take(joined, slice(0, half))
            image = evaluator.automorphism(evaluator.subtract(even, odd), size // (1 << i) + 1)
            joined = evaluator.add(evaluator.add(even, odd), image)
        return replace(joined, noise=joined.noise.plus(places[0].noise.scaled(self._layout.probes)))


def cell_products_noise(layout: CellLayout, levels: CellLevels, norm1: float, norm2: float) -> tuple[Noise, Noise]:
    """Returns the noise of products, before they are divided, and of answers of a `CellTable`, without a table.

    Args:
        norm1, norm2: the largest of a block: the sum of all absolute entries, and the root of the sum of their squares.
    """
    parameters, blocks = layout.parameters, layout.blocks
    query = noise.fresh(parameters).plus(noise.dropped(parameters, levels.query_bits, 1), independent=True)
    term = expanded_noise(query, parameters, levels.query, layout.count)
    scores = term.times_plain(norm1, math.sqrt(layout.features) * norm2).plus(noise.message(parameters))
    selector = term.times_plain(layout.choices, layout.choices)
    scores, selector = (_divided(each, parameters, levels.query, levels.product) for each in (scores, selector))
    summed = noise.sum_of_products(selector, scores, parameters, blocks, levels.query - levels.product)
    products = noise.after_keyswitch(summed, parameters, levels.product)
    joined, switched = _divided(products, parameters, levels.product, levels.joined), _SILENT
    for _ in range(_rounds(layout)):
        switched = noise.after_keyswitch(switched.scaled(2), parameters, levels.joined).plus(switched.scaled(2))
    joined = switched.plus(joined.scaled(layout.probes))
    answer = _divided(joined, parameters, levels.joined, levels.answer)
    return products, answer.plus(noise.dropped(parameters, levels.answer_bits), independent=True)


def _divided(estimate: Noise, parameters: LevelledParameters, level: int, to: int) -> Noise:
    if level == to:
        return estimate
    return noise.after_division(estimate, parameters, math.prod(parameters.set.primes[to:level]), level - to)


def _rounds(layout: CellLayout) -> int:
    return (layout.probes - 1).bit_length()


def _monomial(layout: CellLayout, power: int) -> NDArray[np.int64]:
    """Returns X^power [N]; the power may be negative."""
    size = layout.parameters.polynomial_size
    polynomial = np.zeros(size, dtype=np.int64)
    polynomial[power % size] = -1 if power < 0 else 1
    return polynomial


def _prepared(evaluator: LevelledEvaluator, layout: CellLayout, power: int, level: int) -> PlainTable:
    return evaluator.table(_monomial(layout, power)[None, None], level)
