"""What the page computes of what is drawn, photographed or typed, by slow NumPy or by the Python client: the cases of page.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.special

from cloakwork.app.cli.shared.sample_digits import STROKES, _smooth, image_of
from cloakwork.app.client.passphrases import weakness

BITMAP, WIDEST, THICKNESS = 32, 24, 2.0  # pixels
WORDS = (
    "", "short", "elevencount", "aaaaaaaaaaaaaaaa", "abcabcabcabcabc", "password1234", "P@ssw0rdP@ssw0rd", "qwertyuiop1234567890", "iloveyouforever!",
    "correcthorsebatterystaple", "violet tram counts nine owls", "Zürich liegt am See, sagt man", "1q2w3e4r5t6y7u8i", "cloakwork secret key",
    "tram owls tram owls ", "violet " * 30, "q" * 11 + "wertz" * 40,
)  # fmt: skip
DOTS_AND_LINES = [
    [[[5, 5]]], [[[5, 5], [5, 5]]], [[[0, 0], [0, 280]]], [[[0, 9], [280, 9]]], [[[1e-9, 0], [0, 1e-9]]], [[[0, 0], [280, 280]], [[3, 3]]],
]  # fmt: skip


def cases() -> Iterator[dict[str, Any]]:
    drawn = [unsteady(digit) for digit in STROKES]
    for strokes in (*drawn, *DOTS_AND_LINES):
        yield case("bitmap_image", "bitmapImage", strokes, counts([np.array(line, np.float64) for line in strokes]))
    for call in (("bitmap_image", "bitmapImage"), ("digit_image", "digitImage")):
        yield {"module": call[0], "call": call[1], "given": [[]], "answer": None}
    for strokes in drawn[::4]:
        image = image_of([np.array(line) for line in strokes])
        yield case("digit_image", "digitImage", strokes, np.ravel(image), within=1e-9)
    for size, side in ((4, 4), (6, 4), (5, 3), (3, 8), (9, 2), (1, 4)):
        pixels = np.random.default_rng(size).integers(0, 256, (size, size, 4))
        fine = np.repeat(np.repeat(pixels[..., :3], side, axis=0), side, axis=1)  # parts have whole pixels
        means = fine.reshape(side, size, side, size, 3).mean(axis=(1, 3)).transpose(2, 0, 1) / 255
        yield case("photograph_image", "boxed", pixels.ravel().tolist(), size, side, means.ravel(), within=1e-12)
    for row in ([0.0, 0.0], [1000.0, 0.0], [-1e308, 1e308], [3.5, -9.25, 0.125], [-800.0, -801.0]):
        with np.errstate(all="ignore"):
            yield case("softmax", "softmax", row, scipy.special.softmax(row), within=1e-14)
    for word in WORDS:
        yield {"module": "passphrases", "call": "weakness", "given": [word], "answer": weakness(word)}


def case(module: str, call: str, *given: Any, within: float = 0.0) -> dict[str, Any]:
    *arguments, answer = given
    return {"module": module, "call": call, "given": arguments, "answer": answer.tolist(), "within": within}


def unsteady(digit: int) -> list[list[list[float]]]:
    rng = np.random.default_rng([16, digit])
    slant, width, size = rng.normal(0, 0.2), rng.uniform(0.7, 1.3), rng.uniform(1, 300)
    lines = [_smooth(np.array(stroke, np.float64))[::3] + rng.normal(0, 0.05, (1, 2)) for stroke in STROKES[digit]]
    return [(size * np.stack([width * p[:, 0] - slant * p[:, 1], p[:, 1]], axis=1)).round(2).tolist() for p in lines]


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
