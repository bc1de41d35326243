"""The page's arithmetic in Node, against the slow way in NumPy: blocks of ink, means of pixels, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cloakwork.app.cli.shared.sample_digits import STROKES, _smooth
from cloakwork.models import zoo

pytestmark = pytest.mark.os_entropy
Evaluated = Callable[..., Any]
BITMAP, WIDEST, THICKNESS = 32, 24, 2.0  # pixels
BITMAPS = "(all) => all.map((strokes) => { const image = page.bitmapImage(strokes); return image && [...image]; })"


def counts(strokes: list[np.ndarray]) -> np.ndarray:
    """[64] of 0 .. 16: upright, scaled to the bitmap, black within the line's width, counted in blocks of 4 x 4."""
    points = np.concatenate(strokes)
    x, y = (points - points.mean(axis=0)).T
    slant = (x * y).sum() / max((y**2).sum(), 1e-9)
    lines = [np.stack([line[:, 0] - slant * line[:, 1], line[:, 1]], axis=1) for line in strokes]
    low, high = np.concatenate(lines).min(axis=0), np.concatenate(lines).max(axis=0)
    room = np.array([WIDEST, BITMAP]) - 1 - 2 * THICKNESS
    scale = (room / np.maximum(high - low, 1e-9)).min()
    black = np.zeros((BITMAP, BITMAP), bool)
    for line in lines:
        placed = (line - (low + high) / 2) * scale + (BITMAP - 1) / 2
        for i in range(len(placed)):
            black |= distances(placed[max(i - 1, 0)], placed[i]) <= THICKNESS + 0.5
    return black.reshape(8, 4, 8, 4).sum(axis=(1, 3)).ravel()


def distances(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[32, 32] from the middles of pixels to a segment."""
    pixels = np.stack(np.meshgrid(np.arange(BITMAP), np.arange(BITMAP)), axis=-1)
    step = end - start
    along = np.clip((pixels - start) @ step / max(step @ step, 1e-12), 0, 1)
    return np.hypot(*np.moveaxis(pixels - start - along[..., None] * step, -1, 0))


def unsteady(count: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(16)
    found = []
    for i in range(count):
        slant, width, size = rng.normal(0, 0.2), rng.uniform(0.7, 1.3), rng.uniform(1, 300)
        lines = [_smooth(np.array(stroke, np.float64)) + rng.normal(0, 0.05, (1, 2)) for stroke in STROKES[i % 10]]
        found.append([size * np.stack([width * p[:, 0] - slant * p[:, 1], p[:, 1]], axis=1) for p in lines])
    return found


def test_blocks_of_ink_are_counted(evaluated: Evaluated):
    drawn = unsteady(60)
    found = np.array(evaluated("bitmap_image", BITMAPS, [[line.tolist() for line in each] for each in drawn]))
    # A pixel on the edge of a line may fall either way.
    differences = np.abs(found - [counts(each) for each in drawn])
    assert differences.max() <= 1 and (differences > 0).mean() < 0.001
    assert found.min() == 0 and found.max() == 16
    labels = np.asarray(zoo.load_model("digits-logistic").predict(found))
    assert (labels == np.arange(60) % 10).mean() > 0.8  # of 450 held-out ones 0.967


def test_a_dot_and_a_line_are_drawings_too(evaluated: Evaluated):
    drawings = [
        [[[5, 5]]],
        [[[5, 5], [5, 5]]],
        [[[0, 0], [0, 280]]],
        [[[0, 9], [280, 9]]],
        [[[1e-9, 0], [0, 1e-9]]],
        [[[0, 0], [280, 280]], [[3, 3]]],
    ]
    *images, none, empty = evaluated("bitmap_image", BITMAPS, [*drawings, [], [[]]])
    assert none is None and empty is None, "nothing is no drawing"
    for strokes, image in zip(drawings, np.array(images), strict=True):
        assert np.isfinite(image).all() and 0 < image.sum() and image.max() <= 16, strokes
        grid = image.reshape(8, 8)
        middle = grid.sum(axis=1) @ np.arange(8) / grid.sum()
        np.testing.assert_allclose(middle, 3.5, atol=0.3, err_msg=str(strokes))


def test_pixels_are_averaged_by_their_share(evaluated: Evaluated):
    """Every part of the picture counts once: against averages of a picture whose pixels are repeated until parts have whole ones."""
    cases, expected = [], []
    for size, side in ((32, 32), (64, 32), (100, 32), (5, 32), (33, 8), (1, 4)):
        pixels = np.random.default_rng(size).integers(0, 256, (size, size, 4))
        fine = np.repeat(np.repeat(pixels[..., :3].astype(np.uint8), side, axis=0), side, axis=1)
        expected.append(fine.reshape(side, size, side, size, 3).mean(axis=(1, 3)).transpose(2, 0, 1) / 255)
        cases.append([pixels.ravel().tolist(), size, side])
    boxed = "(cases) => cases.map(([pixels, size, side]) => [...page.boxed(pixels, size, side)])"
    for image, each in zip(evaluated("photograph_image", boxed, cases), expected, strict=True):
        np.testing.assert_allclose(np.array(image).reshape(each.shape), each, atol=1e-12)


def test_softmax_has_no_overflow(evaluated: Evaluated):
    rows = [[0.0, 0.0], [1000.0, 0.0], [-1e308, 1e308], [3.5, -9.25, 0.125], [-800.0, -801.0]]
    for row, found in zip(
        rows, evaluated("softmax", "(rows) => rows.map((row) => page.softmax(row))", rows), strict=True
    ):
        with np.errstate(over="ignore"):  # -1e308 - 1e308
            powers = np.exp(np.array(row) - max(row))
        np.testing.assert_allclose(found, powers / powers.sum(), rtol=1e-14)
