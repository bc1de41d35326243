"""Grey images as lines of a terminal: half blocks in colour, shades where there is none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

_SHADES = " ░▒▓█"
_BACKGROUND = np.array([13, 17, 33])
_INK = np.array([245, 243, 230])


def image_lines(image: NDArray[np.float64], colour: bool) -> list[Text]:
    """[H, W] in [0, 1], H even -> H / 2 lines of W characters, two pixels each."""
    pairs = image.reshape(len(image) // 2, 2, -1)
    if not colour:
        grey = np.rint(pairs.mean(axis=1) * (len(_SHADES) - 1)).astype(int)
        return [Text("".join(_SHADES[level] for level in line)) for line in grey]
    return [_half_blocks(*pair) for pair in pairs]


def _half_blocks(upper: NDArray[np.float64], lower: NDArray[np.float64]) -> Text:
    """The upper half block has the upper pixel as its ink and the lower one as its background."""
    line = Text()
    for above, below in zip(_colours(upper), _colours(lower), strict=True):
        line.append("▀", style=f"{above} on {below}")
    return line


def _colours(pixels: NDArray[np.float64]) -> list[str]:
    mixed = np.rint(_BACKGROUND + np.clip(pixels, 0, 1)[:, None] * (_INK - _BACKGROUND)).astype(int)
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed]


def bar_line(name: str, share: float, width: int, style: str) -> Text:
    """A row of a bar chart; share in [0, 1]."""
    line = Text(f"{name} ", style=style)
    return line.append("█" * round(share * width), style=style)
