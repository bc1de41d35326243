"""The demonstrations' PNG: images, what the server saw of them, and its decrypted answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.files import atomic_writer

_TILE: Final = 84  # pixels either way
_GAP, _COLUMNS, _ROWS, _CAPTION = 16, 8, 4, 26
_PAPER, _INK, _RIGHT, _WRONG = (250, 249, 245), (30, 32, 38), (20, 120, 60), (190, 40, 40)
_LONGEST: Final = 12  # letters of a caption in the usual size

Image = NDArray[np.float64]  # [height, width] or [height, width, 3] in [0, 1]


def has_pillow() -> bool:
    try:
        import PIL.Image
    except ImportError:
        return False
    return hasattr(PIL.Image, "Image")


def save_picture(path: Path, pairs: Sequence[tuple[Image, Image]], captions: Sequence[tuple[str, bool | None]]) -> None:
    """A tile for each of the first 32 images: the image above, its ciphertext's words below, then the caption, coloured by whether it is right."""
    from PIL import Image, ImageDraw, ImageFont  # the extra `demo`

    count = min(len(pairs), _COLUMNS * _ROWS)
    columns, rows = min(count, _COLUMNS), -(-count // _COLUMNS)
    width, height = _TILE + _GAP, 2 * _TILE + 2 * _CAPTION
    widest = max(columns * width + _GAP, _GAP + 4 * width)  # for the line above
    sheet = Image.new("RGB", (widest, rows * height + _GAP + _CAPTION), _PAPER)
    pen, font, small = ImageDraw.Draw(sheet), ImageFont.load_default(14), ImageFont.load_default(9)
    pen.text((_GAP, _GAP // 2), "image, what the server saw, its answer decrypted", fill=_INK, font=font)
    for i in range(count):
        left, top = _GAP + i % _COLUMNS * width, _GAP + _CAPTION + i // _COLUMNS * height
        for offset, pixels in zip((0, _TILE + 4), pairs[i], strict=True):
            levels = np.rint(255 * np.clip(pixels, 0, 1)).astype(np.uint8)
            tile = Image.fromarray(levels).resize((_TILE, _TILE), Image.Resampling.NEAREST)
            sheet.paste(tile, (left, top + offset))
        text, right = captions[i]
        colour = _INK if right is None else _RIGHT if right else _WRONG
        pen.text((left, top + 2 * _TILE + 8), text, fill=colour, font=font if len(text) <= _LONGEST else small)
    with atomic_writer(path) as stream:
        sheet.save(stream, format="PNG")
