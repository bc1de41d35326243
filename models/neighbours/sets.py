"""The choice of a set with room for a table's scores: of all rows, or of cells that a query chooses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.fhe_core.levelled.neighbours.cell_products import cell_products_noise
from cloakwork.fhe_core.levelled.neighbours.cells import CellLayout, CellLevels
from cloakwork.fhe_core.levelled.neighbours.inner_products import products_noise
from cloakwork.fhe_core.levelled.noise import failure_log2
from cloakwork.fhe_core.levelled.parameters import PLAINTEXT_LIMIT, SETS, LevelledParameters
from cloakwork.models.neighbours.client import Integers
from cloakwork.models.neighbours.quantise import Quantised

# Sets with levels of queries and of answers, in order of preference; for as many bits as the second numbers say.
SMALL: Final = (("bgv12", 2, 1), ("bgv13", 2, 1), ("bgv13", 3, 1))
LARGE: Final = (("bgv13", 3, 2), ("bgv13", 4, 2))
TRIED: Final = (
    (8, SMALL),
    (7, SMALL),
    (6, SMALL),
    (5, SMALL),
    (10, LARGE),
    (12, LARGE),
    (4, SMALL),
    (3, SMALL),
    (2, SMALL),
)
MOST_BYTES: Final = (
    100_000  # of an answer, and of a query: beyond it a table is put into cells where that is left to us
)
# Of cells: queries of 99,472 bytes, answers of 57,472 to 98,400, the smallest first.
CELL_SET: Final = "bgv13"
CELL_LEVELS: Final = (
    CellLevels(4, 3, 2, 1, 15),
    CellLevels(4, 3, 2, 2, 15, 24),
    CellLevels(4, 3, 2, 2, 15, 20),
    CellLevels(4, 3, 2, 2, 15, 16),
    CellLevels(4, 3, 2, 2, 15, 12),
    CellLevels(4, 3, 2, 2, 15, 8),
)
PROBES: Final = (8, 4)  # that are tried
_ROOM: Final = 1.1  # of cells for their rows: full ones take rows that belong elsewhere


def set_for(
    quantised_rows: Quantised, sets: Sequence[tuple[str, int, int]]
) -> tuple[LevelledParameters, int, int] | None:
    """Returns the first with room for the scores of all rows, and its levels of queries and of answers."""
    modulus, features = _modulus(quantised_rows), quantised_rows.integers.shape[1]
    if modulus is None:
        return None
    for name, level, answer_level in sets:
        parameters = LevelledParameters.of(name, modulus)
        size = parameters.polynomial_size
        if features > size:
            continue
        starts = np.arange(0, len(quantised_rows.integers), size)
        norm1 = quantised_rows.factor * np.add.reduceat(quantised_rows.absolute, starts).max()
        norm2 = quantised_rows.factor * math.sqrt(float(np.add.reduceat(quantised_rows.squares, starts).max()))
        noise = products_noise(parameters, (level, answer_level), features, float(norm1), norm2)
        if failure_log2(noise, parameters, answer_level) <= FAILURE_LOG2:
            return parameters, level, answer_level
    return None


def cell_set_for(
    quantised_rows: Quantised, cells: int | None, probes: Sequence[int]
) -> tuple[CellLayout, CellLevels] | None:
    """Returns the first number of probes with room for the scores of cells, in whichever of them a row is, and the smallest answers.

    Args:
        cells: at least so many; None: a tenth more than rows fill.
        probes: in order of preference, powers of two.
    """
    modulus, (rows, features) = _modulus(quantised_rows), quantised_rows.integers.shape
    if modulus is None:
        return None
    parameters = LevelledParameters.of(CELL_SET, modulus)
    size = parameters.polynomial_size
    norm1 = quantised_rows.factor * float(_largest(quantised_rows.absolute, size))
    norm2 = quantised_rows.factor * math.sqrt(float(_largest(quantised_rows.squares, size)))
    for count in probes:
        blocks = cell_blocks(rows, cells, count, size)
        if features + min(2, count) * blocks * count > size:
            continue
        layout = CellLayout(parameters, features, blocks, count)
        for levels in CELL_LEVELS:
            products, answer = cell_products_noise(layout, levels, norm1, norm2)
            chances = (
                failure_log2(products, parameters, levels.product),
                failure_log2(answer, parameters, levels.answer),
            )
            if max(chances) <= FAILURE_LOG2:
                return layout, levels
    return None


def cell_blocks(rows: int, cells: int | None, probes: int, size: int) -> int:
    """Returns blocks of `probes` cells each."""
    return -(-cells // probes) if cells is not None else math.ceil(_ROOM * rows / size)


def _modulus(quantised_rows: Quantised) -> int | None:
    modulus = max(2 * quantised_rows.span + 1, 3)
    return modulus if modulus < PLAINTEXT_LIMIT else None


def _largest(sums: Integers, count: int) -> int:
    """Returns the sum of the `count` largest."""
    return int(np.partition(sums, -count)[-count:].sum() if len(sums) > count else sums.sum())


def full_answer_bytes(name: str, rows: int, answer_level: int) -> int:
    """Counts the bytes of the scores of all rows, without headers and checksum."""
    size = SETS[name].polynomial_size
    return 7 * size * -(-rows // size) * answer_level
