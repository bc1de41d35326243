"""Horizontal bars as SVG, of one or two series, in light and dark colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH, _RIGHT, _BAR, _ROW, _CHARACTER = 860, 120, 15, 9, 7.2
_STYLE: Final = """
    .page { fill: #ffffff; } .first { fill: #1f5fa8; } .second { fill: #d4812a; } text { fill: #1f2328; } .note { fill: #57606a; }
    .title { font-size: 17px; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; } .first { fill: #6cb0f5; } .second { fill: #e8a85c; } text { fill: #e6edf3; } .note { fill: #9da7b1; }
    }
"""


@dataclass(frozen=True)
class Bars:
    title: str
    note: str  # unit, device, date: what a reader has to know
    labels: Sequence[str]
    series: dict[str, Sequence[float | None]]  # by name; None: not measured
    logarithmic: bool = False


def bars_svg(bars: Bars) -> str:
    """Draws bars, with a description that lists all values."""
    left = max(120, round(_CHARACTER * max(map(len, bars.labels)))) + 24
    values = [value for each in bars.series.values() for value in each if value is not None]
    least, most = (min(values), max(values)) if bars.logarithmic else (0.0, max(values))
    room, y = _WIDTH - left - _RIGHT, 78 if len(bars.series) > 1 else 62
    lines = [f'<text class="title" x="16" y="30">{escape(bars.title)}</text>']
    lines.append(f'<text class="note" x="16" y="50">{escape(bars.note)}</text>')
    if len(bars.series) > 1:
        lines += _legend(list(bars.series))
        y += 10
    descriptions = []
    for row, label in enumerate(bars.labels):
        shown = [
            (kind, name, each[row])
            for kind, (name, each) in zip(("first", "second"), bars.series.items(), strict=False)
        ]
        middle = y + _BAR * len(shown) / 2
        lines.append(f'<text x="{left - 10}" y="{middle + 5:g}" text-anchor="end">{escape(label)}</text>')
        for kind, _, value in shown:
            if value is not None:
                lines += _bar(kind, value, left, y, room * _part(value, least, most, bars.logarithmic))
            y += _BAR
        descriptions.append(
            f"{label}: " + ", ".join(f"{name} {figure(value)}" for _, name, value in shown if value is not None)
        )
        y += _ROW
    height = y + 12
    body = "\n  ".join(lines)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title description"
  font-family="system-ui, sans-serif" font-size="13">
  <title id="title">{escape(bars.title)}</title>
  <desc id="description">{escape(bars.note)}. {escape("; ".join(descriptions))}.</desc>
  <style>{_STYLE}  </style>
  <rect class="page" width="{_WIDTH}" height="{height}" rx="8"/>
  {body}
</svg>
"""


def _legend(names: Sequence[str]) -> list[str]:
    lines, x = [], 16.0
    for kind, name in zip(("first", "second"), names, strict=True):
        lines.append(
            f'<rect class="{kind}" x="{x:g}" y="62" width="13" height="13"/><text x="{x + 19:g}" y="73">{escape(name)}</text>'
        )
        x += 44 + _CHARACTER * len(name)
    return lines


def _part(value: float, least: float, most: float, logarithmic: bool) -> float:
    """Of the longest bar; on a logarithmic scale the shortest has a twentieth."""
    if not logarithmic:
        return value / most
    return 0.05 + 0.95 * math.log(value / least) / math.log(most / least) if most > least else 1.0


def _bar(kind: str, value: float, x: float, y: float, length: float) -> list[str]:
    return [
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{max(length, 1):.1f}" height="{_BAR - 2}"/>',
        f'<text x="{x + max(length, 1) + 6:.1f}" y="{y + 11:g}">{figure(value)}</text>',
    ]


def figure(value: float) -> str:
    """Three digits; whole numbers from a thousand on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
