"""Images as lines of a terminal: half blocks in colour, shades where there is none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

_SHADES = " ░▒▓█"
_PLAIN_SHADES = " .:*#"  # for terminals that know ASCII alone
_BACKGROUND = np.array([13, 17, 33])
_INK = np.array([245, 243, 230])


def has_blocks(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def image_lines(image: NDArray[np.float64], console: Console) -> list[Text]:
    """Draws an image as lines: [H, W] or in colour [H, W, 3], in [0, 1], H even -> H / 2 lines of W characters, two pixels each."""
    pairs = image.reshape(len(image) // 2, 2, *image.shape[1:])
    if console.color_system is not None and has_blocks(console):
        return [_half_blocks(*pair) for pair in pairs]
    shades = _SHADES if has_blocks(console) else _PLAIN_SHADES
    grey = np.rint(pairs.mean(axis=(1, *range(3, pairs.ndim))) * (len(shades) - 1)).astype(int)
    return [Text("".join(shades[level] for level in line)) for line in grey]


def _half_blocks(upper: NDArray[np.float64], lower: NDArray[np.float64]) -> Text:
    """The upper half block has the upper pixel as its ink and the lower one as its background."""
    line = Text()
    for above, below in zip(_colours(upper), _colours(lower), strict=True):
        line.append("▀", style=f"{above} on {below}")
    return line


def _colours(pixels: NDArray[np.float64]) -> list[str]:
    shares = np.clip(pixels, 0, 1)
    mixed = np.rint(255 * shares if pixels.ndim > 1 else _BACKGROUND + shares[:, None] * (_INK - _BACKGROUND)).astype(
        int
    )
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed]


def bar_line(name: str, share: float, width: int, style: str, console: Console) -> Text:
    """Returns a row of a bar chart; share in [0, 1]."""
    line = Text(f"{name} ", style=style)
    return line.append(("█" if has_blocks(console) else "#") * round(share * width), style=style)
