"""Bars of `cloakwork bench methods` as an SVG: values a second, rows of 128 bits and more, one scale for each kind of operation."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

LEAST_BITS: Final = 128
WIDTH, LEAST_LABELS, CHARACTER, RIGHT, LINE, BAR = 920, 330, 6.6, 110, 26, 16
_STYLE: Final = """
    .bar { fill: #1f5fa8; } .page { fill: #ffffff; } .line { stroke: #57606a; }
    text { fill: #1f2328; } .title { font-size: 17px; font-weight: 600; } .group { font-weight: 600; }
    @media (prefers-color-scheme: dark) { .bar { fill: #6cb0f5; } .page { fill: #0d1117; } .line { stroke: #9da7b1; } text { fill: #e6edf3; } }
"""


def write_plot(rows: list[dict[str, Any]], device: str, path: Path) -> None:
    path.write_text(plot_of(rows, device), encoding="utf-8")


def plot_of(rows: list[dict[str, Any]], device: str) -> str:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["per_second"] is not None and (row["security_bits"] or 0) >= LEAST_BITS:
            groups.setdefault(_kind(row), []).append(row)
    labels = max(
        [LEAST_LABELS, *(round(CHARACTER * len(_label(row))) + 16 for members in groups.values() for row in members)]
    )
    title = f"Values a second on {device} at {LEAST_BITS} bits of security and more"
    lines, y = [f'<text class="title" x="16" y="30">{escape(title)}</text>'], 48
    for kind, members in groups.items():
        y += LINE
        lines.append(f'<text class="group" x="16" y="{y}">{escape(kind)}</text>')
        most = max(row["per_second"] for row in members)
        for member in members:
            y += LINE
            lines += _bar(member, y, most, labels)
        y += LINE // 2
    height = y + 20
    body = "\n  ".join(lines)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title"
  font-family="system-ui, sans-serif" font-size="13">
  <title id="title">{escape(title)}</title>
  <style>{_STYLE}  </style>
  <rect class="page" width="{WIDTH}" height="{height}"/>
  {body}
</svg>
"""


def _kind(row: Mapping[str, Any]) -> str:
    if row["bits"]:
        return f"{row['operation']} of {row['bits']} bits"
    if row["operation"] == "gate":
        return "NAND gates"
    return f"Look-ups of {row['message_bits']} bits"


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['set']}: {row['method']}"


def _bar(row: Mapping[str, Any], y: int, most: float, labels: int) -> list[str]:
    length = max(1.0, row["per_second"] / most * (WIDTH - labels - RIGHT))
    return [
        f'<text x="{labels - 8}" y="{y}" text-anchor="end">{escape(_label(row))}</text>',
        f'<rect class="bar" x="{labels}" y="{y - BAR + 3}" width="{length:.1f}" height="{BAR}"/>',
        f'<text x="{labels + length + 6:.1f}" y="{y}">{rate_text(row["per_second"])}</text>',
    ]


def rate_text(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 1000 else f"{per_second:.4g}"
