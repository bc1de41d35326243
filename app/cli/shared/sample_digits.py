"""Digits of our own, drawn as strokes, in the form of MNIST images: for demonstrations without a data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Stroke = Sequence[tuple[float, float]]

SIZE: Final = 28
_BOX = 20.0  # pixels that the longer side of a digit fills, as in MNIST
_THICKNESS = 1.15  # half the width of a stroke, in pixels
_SUBDIVISION = 8  # points that Catmull and Rom's spline puts between two of a stroke

# Strokes as points (x to the right, y down) that a smooth line goes through; a point given twice is a corner.
STROKES: Final[dict[int, tuple[Stroke, ...]]] = {
    0: (((5, 0), (2, 2), (0.5, 6), (1, 10), (4, 12), (7, 10.5), (8.5, 6), (7.5, 2), (5, 0)),),
    1: (((4.5, 0), (4.2, 4), (3.8, 8), (3.5, 12)),),
    2: (((0.5, 3), (2, 0.7), (5, 0), (7.5, 2), (6.5, 5.5), (3, 9), (0, 12), (0, 12), (4, 11.6), (8.5, 11.8)),),
    3: (((0.8, 1.5), (3.5, 0), (7, 1.2), (6.8, 4), (3.5, 5.6), (3.5, 5.6), (7.3, 7), (7.5, 10), (4, 12), (0.5, 11)),),
    4: (((1.5, 0), (0.6, 3.5), (0.5, 6), (0.5, 6), (3.5, 6.6), (7.5, 6)), ((7.5, 0), (7, 5), (6.4, 12))),
    5: (((7.5, 0), (2, 0.3), (2, 0.3), (1.2, 4.8), (1.2, 4.8), (5, 4.6), (7.5, 7), (6.8, 10.5), (3.5, 12), (0.3, 11)),),
    6: (((6, 0), (3, 2.5), (1, 6.5), (1.2, 10.5), (4, 12), (6.8, 10.8), (7, 8), (4.5, 6.4), (1.5, 8.2)),),
    7: (((0, 0.8), (4, 0.5), (8, 0.3), (8, 0.3), (6, 5), (3.8, 12)),),
    8: (((6.8, 1.2), (4, 0), (1.2, 1.6), (2, 4), (5.5, 6.8), (6.8, 9.6), (4, 12), (1, 10), (2.2, 6.8), (5.8, 4), (6.8, 1.2)),),
    9: (((6.6, 2), (4, 0.2), (1.2, 1.8), (1.4, 4.8), (4, 5.8), (6.4, 4), (6.8, 1.6), (6.6, 6), (5.6, 12)),),
}  # fmt: skip
# (slant, width) of the hands that wrote them.
HANDS: Final = ((0.0, 1.0), (-0.18, 0.95), (0.12, 1.1))


def sample_digits() -> tuple[Reals, NDArray[np.int64]]:
    """Returns images [count, 784] in [0, 1] and labels [count]: every digit by every hand."""
    images = [draw(STROKES[digit], *hand) for hand in HANDS for digit in STROKES]
    labels = [digit for _ in HANDS for digit in STROKES]
    return np.stack(images).reshape(len(images), -1), np.array(labels)


def draw(strokes: Sequence[Stroke], slant: float = 0.0, width: float = 1.0) -> Reals:
    """Returns an image [28, 28] in [0, 1]: scaled to a box of 20 pixels, its centre of mass in the middle, as MNIST has it."""
    lines = [_smooth(np.asarray(stroke, dtype=np.float64)) for stroke in strokes]
    points = np.concatenate(lines)
    low, high = points.min(axis=0), points.max(axis=0)
    centre = (low + high) / 2
    sheared = [np.stack([(p[:, 0] - centre[0]) * width - slant * (p[:, 1] - centre[1]), p[:, 1] - centre[1]], axis=1) for p in lines]  # fmt: skip
    return _image(sheared)


def image_of(lines: Sequence[Reals]) -> Reals:
    """Returns the same of lines [points, 2] as somebody drew them, wherever and however large."""
    points = np.concatenate(lines)
    centre = (points.min(axis=0) + points.max(axis=0)) / 2
    return _image([line - centre for line in lines])


def _image(lines: Sequence[Reals]) -> Reals:
    points = np.concatenate(lines)
    scale = (_BOX - 2 * _THICKNESS) / (points.max(axis=0) - points.min(axis=0)).max()
    middle = np.full(2, (SIZE - 1) / 2)
    ink = _rasterise([line * scale + middle for line in lines])
    mass = np.array([(ink.sum(axis=0) @ np.arange(SIZE)), (ink.sum(axis=1) @ np.arange(SIZE))]) / ink.sum()
    return _rasterise([line * scale + 2 * middle - mass for line in lines])


def _smooth(points: Reals) -> Reals:
    """Returns Catmull and Rom's spline through the points."""
    padded = np.concatenate([points[:1], points, points[-1:]])
    t = np.linspace(0, 1, _SUBDIVISION, endpoint=False)[:, None]
    parts = []
    for p0, p1, p2, p3 in zip(padded, padded[1:], padded[2:], padded[3:], strict=False):
        if (p1 == p2).all():
            continue
        # A corner ends the curve: no tangent across it.
        before = p1 if (p0 == p1).all() else p0
        after = p2 if (p3 == p2).all() else p3
        parts.append(
            0.5 * (2 * p1 + (p2 - before) * t + (2 * before - 5 * p1 + 4 * p2 - after) * t**2
            + (3 * p1 - before - 3 * p2 + after) * t**3)
        )  # fmt: skip
    return np.concatenate([*parts, points[-1:]])


def _rasterise(lines: Sequence[Reals]) -> Reals:
    """Returns ink by the distance of a pixel's centre to the nearest segment, soft over one pixel."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    pixels = np.stack([columns, rows], axis=-1)[:, :, None, :].astype(np.float64)
    nearest = np.full((SIZE, SIZE), np.inf)
    for line in lines:
        start, step = line[:-1], np.diff(line, axis=0)
        length = np.maximum((step**2).sum(axis=1), 1e-12)
        along = np.clip(((pixels - start) * step).sum(axis=-1) / length, 0, 1)
        foot = start + along[..., None] * step
        nearest = np.minimum(nearest, np.sqrt(((pixels - foot) ** 2).sum(axis=-1)).min(axis=-1))
    ink: Reals = np.clip(_THICKNESS + 0.5 - nearest, 0, 1)
    return ink
