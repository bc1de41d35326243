"""Rows in cells of bounded size: none is lost, near rows lie together, and the same table has the same cells."""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.fhe_core.errors import CancelledError
from cloakwork.models.neighbours import clustering
from cloakwork.models.neighbours.clustering import clustered, means


def table(rows: int, features: int = 6, centres: int = 12, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    about = rng.integers(-100, 100, (centres, features))[rng.integers(0, centres, rows)]
    return (about + rng.integers(-5, 6, (rows, features))).astype(np.int16)


@pytest.mark.parametrize(
    ("rows", "cells", "capacity"),
    [(1, 1, 1), (5, 8, 1024), (700, 8, 100), (700, 7, 100), (700, 1, 700), (3000, 60, 64)],
)
def test_every_row_has_a_cell_with_room(rows: int, cells: int, capacity: int) -> None:
    found = clustered(table(rows), cells, capacity)
    assert found.shape == (rows,) and found.dtype == np.int64
    sizes = np.bincount(found, minlength=cells)
    assert len(sizes) == cells and sizes.max() <= capacity
    np.testing.assert_array_equal(found, clustered(table(rows), cells, capacity))


@pytest.mark.parametrize("distinct", [1, 3])
def test_equal_rows(distinct: int) -> None:
    """More of them than the nearest cells hold."""
    rows = np.repeat(np.arange(distinct), 1000)[:, None].astype(np.int16) * np.ones((1, 4), dtype=np.int16)
    sizes = np.bincount(clustered(rows, 3 * 24, 50), minlength=72)
    assert sizes.sum() == 1000 * distinct and sizes.max() <= 50


def test_clusters_are_found() -> None:
    """Far apart: two rows of one cell hardly ever lie in different clusters."""
    rng = np.random.default_rng(3)
    number = rng.integers(0, 16, 1600)
    rows = (rng.integers(-2000, 2000, (16, 8))[number] + rng.integers(-3, 4, (1600, 8))).astype(np.int16)
    found = clustered(rows, 24, 200)
    most = sum(np.bincount(number[found == cell]).max() for cell in np.unique(found))
    assert most / len(rows) > 0.97


def test_means_are_those_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, others = table(500), np.full((9, 6), 7, dtype=np.float32)
    cell_of = np.random.default_rng(2).integers(0, 8, 500)
    for at_once in (1 << 22, 60):
        monkeypatch.setattr(clustering, "_DISTANCES_AT_ONCE", at_once)
        found = means(rows, cell_of, others)
        for cell in range(8):
            np.testing.assert_allclose(found[cell], rows[cell_of == cell].mean(axis=0), rtol=1e-5)
        np.testing.assert_array_equal(found[8], 7)


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = clustered(table(900), 16, 80)
    monkeypatch.setattr(clustering, "_DISTANCES_AT_ONCE", 16 * 50)
    np.testing.assert_array_equal(clustered(table(900), 16, 80), whole)


def test_progress() -> None:
    told: list[tuple[int, int]] = []
    clustered(table(700), 8, 100, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] and [done for done, _ in told] == sorted(done for done, _ in told)
    with pytest.raises(CancelledError):
        clustered(table(700), 8, 100, lambda done, total: False)
