"""Tables of Markdown pages, and the numbers in their cells."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")

Row = dict[str, str]


def table(page: Path, section: str, *columns: str) -> list[Row]:
    """Reads rows by their headings: of the first table of a section whose headings begin as `columns` say.

    Raises:
        LookupError: the page has no such table.
    """
    text = "\n" + page.read_text(encoding="utf-8")
    body = text.split(f"\n{section}\n", 1)
    if len(body) == 2:
        level = len(section) - len(section.lstrip("#"))
        section_text = re.split(rf"^#{{1,{level}}} ", body[1], maxsplit=1, flags=re.MULTILINE)[0]
        for block in re.findall(r"((?:^\|.*\|\n)+)", section_text, flags=re.MULTILINE):
            heads, _, *rows = [_cells(line) for line in block.splitlines()]
            if all(any(head.startswith(column) for head in heads) for column in columns):
                return [dict(zip(heads, row, strict=True)) for row in rows]
    raise LookupError(f"{page.name}: no table under '{section}' with the headings {', '.join(columns)}")


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def cell(row: Row, column: str) -> str:
    """Of the heading that begins so."""
    return next(value for head, value in row.items() if head.startswith(column))


def number(text: str) -> float | None:
    """Reads the first in a cell: "4,103 (batch 8192)" is 4103; None without one."""
    match = _NUMBER.search(text)
    return None if match is None else float(match[0].replace(",", ""))


def plain(text: str) -> str:
    """A cell without Markdown."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("*", "")
