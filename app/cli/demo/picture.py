"""The demonstrations' picture, PNG or SVG: images, what the server saw of them, and its decrypted answers."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import WrongCallError
from cloakwork.fhe_core.wire.files import atomic_writer

_TITLE: Final = "image, what the server saw, its answer decrypted"
_TILE: Final = 84  # pixels either way
_GAP, _COLUMNS, _ROWS, _CAPTION = 16, 8, 4, 26
_PAPER, _INK, _RIGHT, _WRONG = (250, 249, 245), (30, 32, 38), (20, 120, 60), (190, 40, 40)
_MOST: Final = _COLUMNS * _ROWS
_OFFSETS: Final = (0, _TILE + 4)  # of an image and of its ciphertext below its tile's top
_LONGEST: Final = 12  # letters of a caption in the usual size

Pixels = NDArray[np.float64]  # [height, width] or [height, width, 3] in [0, 1]


def has_pillow() -> bool:
    try:
        import PIL.Image
    except ImportError:
        return False
    return hasattr(PIL.Image, "Image")


def check_picture(path: Path | None) -> None:
    """Raises WrongCallError, before the work, for a file of another kind than `save_picture` writes."""
    if path is not None and path.suffix.lower() not in _WRITERS:
        raise WrongCallError(f"--picture: expected a name that ends in {' or '.join(_WRITERS)}, got '{path}'")


def save_picture(
    path: Path, pairs: Sequence[tuple[Pixels, Pixels]], captions: Sequence[tuple[str, bool | None]]
) -> None:
    """Saves a tile for each of the first 32 images: the image above, its ciphertext's words below, then the caption, coloured by whether it is right.

    PNG or SVG, as the name ends.
    """
    content = _WRITERS[path.suffix.lower()](pairs[:_MOST], captions[:_MOST])
    with atomic_writer(path) as stream:
        stream.write(content)


def _places(count: int) -> tuple[int, int, list[tuple[int, int]]]:
    """Returns width and height of the sheet, and where each tile begins."""
    columns, rows = min(count, _COLUMNS), -(-count // _COLUMNS)
    width, height = _TILE + _GAP, 2 * _TILE + 2 * _CAPTION
    widest = max(columns * width + _GAP, _GAP + 4 * width)  # for the line above
    places = [(_GAP + i % _COLUMNS * width, _GAP + _CAPTION + i // _COLUMNS * height) for i in range(count)]
    return widest, rows * height + _GAP + _CAPTION, places


def _levels(pixels: Pixels) -> NDArray[np.uint8]:
    return np.rint(255 * np.clip(pixels, 0, 1)).astype(np.uint8)


def _colour(right: bool | None) -> tuple[int, int, int]:
    return _INK if right is None else _RIGHT if right else _WRONG


def _png(pairs: Sequence[tuple[Pixels, Pixels]], captions: Sequence[tuple[str, bool | None]]) -> bytes:
    from PIL import Image, ImageDraw, ImageFont  # the extra `demo`

    width, height, places = _places(len(pairs))
    sheet = Image.new("RGB", (width, height), _PAPER)
    pen, font, small = ImageDraw.Draw(sheet), ImageFont.load_default(14), ImageFont.load_default(9)
    pen.text((_GAP, _GAP // 2), _TITLE, fill=_INK, font=font)
    for (left, top), pair, (text, right) in zip(places, pairs, captions, strict=True):
        for offset, pixels in zip(_OFFSETS, pair, strict=True):
            tile = Image.fromarray(_levels(pixels)).resize((_TILE, _TILE), Image.Resampling.NEAREST)
            sheet.paste(tile, (left, top + offset))
        chosen = font if len(text) <= _LONGEST else small
        pen.text((left, top + 2 * _TILE + 8), text, fill=_colour(right), font=chosen)
    stream = io.BytesIO()
    sheet.save(stream, format="PNG")
    return stream.getvalue()


def _svg(pairs: Sequence[tuple[Pixels, Pixels]], captions: Sequence[tuple[str, bool | None]]) -> bytes:
    """The images in it are PNG; a browser enlarges them without smoothing."""
    from PIL import Image

    def encoded(pixels: Pixels) -> str:
        stream = io.BytesIO()
        Image.fromarray(_levels(pixels)).save(stream, format="PNG")
        return base64.b64encode(stream.getvalue()).decode()

    width, height, places = _places(len(pairs))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{_TITLE}</title><desc>{len(pairs)} images with the answers {escape(', '.join(text for text, _ in captions))}</desc>",
        f'<rect width="100%" height="100%" fill="rgb{_PAPER}"/>',
        f'<g font-family="sans-serif" font-size="13"><text x="{_GAP}" y="{_GAP + 6}" fill="rgb{_INK}">{_TITLE}</text>',
    ]
    for (left, top), pair, (text, right) in zip(places, pairs, captions, strict=True):
        for offset, pixels in zip(_OFFSETS, pair, strict=True):
            parts.append(
                f'<image x="{left}" y="{top + offset}" width="{_TILE}" height="{_TILE}" image-rendering="pixelated" '
                f'href="data:image/png;base64,{encoded(pixels)}"/>'
            )
        size = "" if len(text) <= _LONGEST else ' font-size="9"'
        parts.append(
            f'<text x="{left}" y="{top + 2 * _TILE + 20}" fill="rgb{_colour(right)}"{size}>{escape(text)}</text>'
        )
    return "\n".join([*parts, "</g></svg>\n"]).encode()


_WRITERS: Final = {".png": _png, ".svg": _svg}
