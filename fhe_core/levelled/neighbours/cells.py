"""A client's choice of cells: rows of a table in groups, of which a query asks for a few without saying which.

N / P rows are a cell, P cells a block of N rows, P a power of two: row i of cell number c is coefficient c mod P + P i of block c / P. An answer has
P places, a cell each: place p is coefficients p + P i. A cell can be put into two places, that of its own class c mod P and the one before, so that
the query needs two selectors for each cell and not P; for nearly all queries the P nearest cells fit so, or all but the last one or two.

Source: [ACLS18] selection by expanded bits. Ours: classes of coefficients as cells, two places for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.levelled.neighbours.inner_products import packed_query
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.rounded import MOST_BITS

EMPTY: Final = -1  # a place without a cell


@dataclass(frozen=True)
class CellLayout:
    """The layout of a table's cells in blocks.

    Args:
        features: numbers of a row.
        blocks: of N rows.
        probes: P, cells of a block and places of an answer.

    Raises:
        ParameterError: an even plaintext modulus, P no power of two below N, or a query of so many features and cells does not fit into N
            coefficients.
    """

    parameters: LevelledParameters
    features: int
    blocks: int
    probes: int

    def __post_init__(self) -> None:
        size, t = self.parameters.polynomial_size, self.parameters.plaintext_modulus
        if t % 2 == 0:
            raise ParameterError(f"plaintext_modulus: expected an odd one, got {t}")
        if self.probes < 1 or self.probes & (self.probes - 1) or self.probes > size // 2:
            raise ParameterError(f"probes: expected a power of two up to {size // 2}, got {self.probes}")
        if self.features < 1 or self.blocks < 1 or self.count > size:
            raise ParameterError(
                f"cells: expected at most {size} features and selectors in all, got {self.features} features and {self.blocks} blocks of "
                f"{self.probes} cells"
            )

    @property
    def choices(self) -> int:
        """Places that a cell can be put into."""
        return min(2, self.probes)

    @property
    def cells(self) -> int:
        return self.blocks * self.probes

    @property
    def cell_rows(self) -> int:
        """The most rows that a cell has."""
        return self.parameters.polynomial_size // self.probes

    @property
    def count(self) -> int:
        """Numbers of a query."""
        return self.features + self.choices * self.cells

    @property
    def key_shape(self) -> ExpansionKeyShape:
        """Describes the evaluation keys that the server needs; the tree that joins places has automorphisms of the expansion."""
        return ExpansionKeyShape.of(self.parameters, self.count, products=True)

    def rows_of(self, cell: int, count: int) -> NDArray[np.int64]:
        """Returns where the first rows of a cell are among the rows of all blocks, [count]."""
        first = cell // self.probes * self.parameters.polynomial_size + cell % self.probes
        return first + self.probes * np.arange(count)

    def place(self, cells: Iterable[int]) -> NDArray[np.int64]:
        """Puts cells into places, those that come first before others: as many of the first as fit, moving what is there.

        Args:
            cells: numbers of cells, each once.

        Returns:
            The cell of every place or `EMPTY`, [probes].
        """
        places = np.full(self.probes, EMPTY, dtype=np.int64)
        for cell in cells:
            if (places != EMPTY).all():
                break
            self._put(cell, places, set())
        return places

    def _put(self, cell: int, places: NDArray[np.int64], seen: set[int]) -> bool:
        for choice in range(self.choices):
            place = (cell - choice) % self.probes
            if place in seen:
                continue
            seen.add(place)
            if places[place] == EMPTY or self._put(int(places[place]), places, seen):
                places[place] = cell
                return True
        return False

    def query(self, vector: ArrayLike, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the polynomial of a query, for the client to encrypt: its numbers, then the selectors [choice, block, place].

        Args:
            vector: integers [features].
            places: of `place`.

        Raises:
            ShapeError: another number of features.
        """
        values = np.asarray(vector)
        if values.shape != (self.features,):
            raise ShapeError(f"vector: expected shape [{self.features}], got {list(values.shape)}")
        share = pow(self.probes, -1, self.parameters.plaintext_modulus)  # joining the places multiplies by their number
        selectors = np.zeros((self.choices, self.blocks, self.probes), dtype=np.int64)
        for place, cell in enumerate(places):
            if cell != EMPTY:
                selectors[(cell - place) % self.probes, cell // self.probes, place] = share
        return packed_query(self.parameters, np.concatenate([values, selectors.reshape(-1)]))

    def scores(self, answer: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Reads the scores of the cells in the places of a decrypted answer [N]: [probes, cell_rows]."""
        scores = answer.reshape(self.cell_rows, self.probes).T.copy()
        for place in np.flatnonzero((places != EMPTY) & (places % self.probes < np.arange(self.probes))):
            # From class 0 to place P - 1, by X^-1: a row on, and -X^(N - 1) of the first.
            scores[place] = np.roll(scores[place], 1)
            scores[place, 0] = -scores[place, 0]
        return scores


@dataclass(frozen=True)
class CellLevels:
    """Levels from query to answer, and bits of coefficients that are not sent.

    Attributes:
        product: of the products of scores and selectors; below `query`.
        joined: where the places are joined.
        query_bits, answer_bits: that are dropped.

    Raises:
        ParameterError: levels that rise, or that no ciphertext has.
    """

    query: int
    product: int
    joined: int
    answer: int
    query_bits: int = 0
    answer_bits: int = 0

    def __post_init__(self) -> None:
        levels = [self.answer, self.joined, self.product, self.query]
        bits = (self.query_bits, self.answer_bits)
        if (
            levels[0] < 1
            or levels != sorted(levels)
            or self.product == self.query
            or not all(0 <= each <= MOST_BITS for each in bits)
        ):
            raise ParameterError(
                f"levels: expected query above product, then joined and answer, and up to {MOST_BITS} bits that are dropped, got {self}"
            )

    def query_bytes(self, parameters: LevelledParameters) -> int:
        """Counts the bytes of a query's coefficients, without its header, seed and checksum."""
        return parameters.polynomial_size * (28 * self.query - self.query_bits) // 8

    def answer_bytes(self, parameters: LevelledParameters) -> int:
        """Counts the bytes of an answer's coefficients, likewise."""
        return 2 * parameters.polynomial_size * (28 * self.answer - self.answer_bits) // 8
