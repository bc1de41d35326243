"""The demonstration's PNG: digits, what the server saw of them, and its decrypted answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.files import atomic_writer

_SIDE, _ZOOM, _GAP, _COLUMNS, _ROWS = 28, 3, 16, 8, 4
_TILE = _SIDE * _ZOOM
_CAPTION = 26
_PAPER, _INK, _RIGHT, _WRONG = (250, 249, 245), (30, 32, 38), (20, 120, 60), (190, 40, 40)


def has_pillow() -> bool:
    try:
        import PIL.Image
    except ImportError:
        return False
    return hasattr(PIL.Image, "Image")


def save_picture(
    path: Path,
    images: NDArray[np.float64],
    words: NDArray[np.float64],
    answers: NDArray[np.int64],
    labels: NDArray[np.int64],
) -> None:
    """A tile for each of the first 32 images: the digit above, its ciphertext's words below, the answer as caption."""
    from PIL import Image, ImageDraw, ImageFont  # the extra `demo`

    count = min(len(images), _COLUMNS * _ROWS)
    columns, rows = min(count, _COLUMNS), -(-count // _COLUMNS)
    width, height = _TILE + _GAP, 2 * _TILE + 2 * _CAPTION
    sheet = Image.new("RGB", (columns * width + _GAP, rows * height + _GAP + _CAPTION), _PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    pen.text((_GAP, _GAP // 2), "digit, what the server saw, its answer decrypted", fill=_INK, font=font)
    for i in range(count):
        left, top = _GAP + i % _COLUMNS * width, _GAP + _CAPTION + i // _COLUMNS * height
        for offset, pixels in ((0, images[i]), (_TILE + 4, words[i])):
            grey = np.rint(255 * np.clip(pixels.reshape(_SIDE, _SIDE), 0, 1)).astype(np.uint8)
            tile = Image.fromarray(grey).resize((_TILE, _TILE), Image.Resampling.NEAREST)
            sheet.paste(tile, (left, top + offset))
        right = answers[i] == labels[i]
        caption = f"{answers[i]}" if right else f"{answers[i]}, is {labels[i]}"
        pen.text((left, top + 2 * _TILE + 8), caption, fill=_RIGHT if right else _WRONG, font=font)
    with atomic_writer(path) as stream:
        sheet.save(stream, format="PNG")
