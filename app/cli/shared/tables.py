"""Tables that fit: on a terminal folded or written as records, never cut; in a pipe a line for each row, whatever its length."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cloakwork.app.cli.shared.console import in_one_line, standard_output, write_json
from cloakwork.models.errors import printable

_GAP: Final = 2  # between columns
_LEAST_WORDS: Final = 10  # characters of a line of words


@dataclass(frozen=True)
class Column:
    """`whole`: what another command needs as it is, or numbers: never folded. `least`: characters of a column that is."""

    heading: str
    whole: bool = True
    right: bool = False
    least: int = 16


@dataclass(frozen=True)
class Group:
    """Rows under a heading of their own, which is their last column in a pipe."""

    heading: str
    rows: Sequence[Sequence[object]]


def folded(heading: str) -> Column:
    """Returns a column of words, which may go on in the next line."""
    return Column(heading, whole=False)


def number(heading: str) -> Column:
    return Column(heading, right=True)


def print_rows(
    title: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]] | Sequence[Group],
    notes: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Prints a row for each, in groups where there are any. `notes` explain it below, on a terminal."""
    out = standard_output() if console is None else console
    entries = list(rows)
    groups = [each for each in entries if isinstance(each, Group)] or [Group("", entries)]  # type: ignore[arg-type]
    texts = [[[_text(cell) for cell in row] for row in group.rows] for group in groups]
    if not any(texts):
        out.print(Text(f"{title}: none" if title else "none"))
        return
    if not out.is_terminal:
        if any(group.heading for group in groups):
            columns = (*columns, Column("group"))
            texts = [[[*row, group.heading] for row in part] for group, part in zip(groups, texts, strict=True)]
        _print_lines(out, columns, [row for part in texts for row in part])
        return
    if title:
        out.print(Text(title, style="bold"))
    split = [replace(each, heading="\n".join(re.split("[ _]", each.heading))) for each in columns]
    fitting = next((each for each in (columns, split) if _least_width(each, texts) <= out.width), None)
    if fitting is None:
        _print_records(out, columns, groups, texts)
    else:
        _print_table(out, fitting, groups, texts)
    for note in notes:
        out.print(Text(note, style="dim"), soft_wrap=False)


def print_record(title: str, record: Mapping[str, Any], console: Console | None = None) -> None:
    """Names and values, one below the other."""
    out = standard_output() if console is None else console
    texts = [[key, _text(readable(key, value))] for key, value in record.items()]
    if out.is_terminal:
        out.print(Text(title, style="bold"))
        _print_fields(out, texts)
    else:
        width = max((cell_len(key) for key, _ in texts), default=0)
        for key, value in texts:
            _print_line(out, f"{_padded(key, width)}{' ' * _GAP}{value}")


def print_text(text: str, console: Console | None = None) -> None:
    """Prints lines of words: on a terminal broken between words, what goes on indented; in a pipe as they are."""
    out = standard_output() if console is None else console
    for line in map(printable, text.splitlines()):
        indent = " " * (len(line) - len(line.lstrip()) + 2 * _GAP)
        for part in _broken(line, out.width, indent) if out.is_terminal else [line]:
            _print_line(out, part)


def _broken(line: str, width: int, indent: str = "") -> list[str]:
    """Breaks a text into lines of at most `width` characters, but for words that are longer."""
    lines = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def emit(record: Mapping[str, Any], destination: str | None, title: str) -> None:
    """Prints a result as a table for people, and as one JSON object where --json asks for it."""
    if destination != "-":
        print_record(title, record)
    if destination is not None:
        write_json(record, destination)


def readable(name: str, value: object) -> object:
    """Returns a moment (`.._at`, seconds since 1970) as local time, and everything else as it is."""
    if name.endswith("_at") and isinstance(value, float | int) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError, OSError):
            return datetime.fromtimestamp(value).isoformat(" ", "seconds")
    return value


def _text(cell: object) -> str:
    """Returns one line, whatever came from outside."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return in_one_line(f"{cell:.6g}" if isinstance(cell, float) else str(cell))


def _print_lines(out: Console, columns: Sequence[Column], rows: list[list[str]]) -> None:
    lines = [[column.heading for column in columns], *rows]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = [_padded(cell, width, column.right) for cell, width, column in zip(line, widths, columns, strict=True)]
        _print_line(out, (" " * _GAP).join(cells))


def _print_line(out: Console, line: str) -> None:
    out.file.write(line.rstrip() + "\n")


def _padded(text: str, width: int, right: bool = False) -> str:
    room = " " * (width - cell_len(text))
    return room + text if right else text + room


def _least_width(columns: Sequence[Column], texts: list[list[list[str]]]) -> int:
    widths = (_least(column, width) for column, width in zip(columns, _widths(columns, texts), strict=True))
    return sum(width + _GAP for width in widths) - _GAP


def _widths(columns: Sequence[Column], texts: list[list[list[str]]]) -> list[int]:
    cells = [[row[i] for part in texts for row in part] for i in range(len(columns))]
    return [
        max(map(cell_len, [*column.heading.split("\n"), *column_cells]))
        for column, column_cells in zip(columns, cells, strict=True)
    ]


def _least(column: Column, width: int) -> int:
    return width if column.whole else min(width, column.least)


def _print_table(
    out: Console, columns: Sequence[Column], groups: Sequence[Group], texts: list[list[list[str]]]
) -> None:
    """The groups' columns stand one below the other's."""
    widths = _widths(columns, texts)
    shown = False
    for group, rows in zip(groups, texts, strict=True):
        if not rows:
            continue
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        table.show_header = not shown
        for column, width in zip(columns, widths, strict=True):
            table.add_column(
                Text(column.heading),
                justify="right" if column.right else "left",
                no_wrap=column.whole,
                overflow="fold",
                min_width=_least(column, width),
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        if group.heading:
            out.print(Text(f"{chr(10) if shown else ''}{group.heading}", style="italic"))
        out.print(table)
        shown = True


def _print_records(
    out: Console, columns: Sequence[Column], groups: Sequence[Group], texts: list[list[list[str]]]
) -> None:
    """Too wide for the terminal: one below the other."""
    for group, rows in zip(groups, texts, strict=True):
        for number_of_row, row in enumerate(rows):
            out.print(Rule(Text(group.heading) if number_of_row == 0 else "", align="left", style="dim"))
            _print_fields(
                out, [[column.heading, cell] for column, cell in zip(columns, row, strict=True) if cell != ""]
            )


def _print_fields(out: Console, fields: Iterable[Sequence[str]]) -> None:
    """Prints names, which have no spaces, in one piece; words as lines below each other."""
    pairs = list(fields)
    width = max((cell_len(name) for name, _ in pairs), default=0) + _GAP
    for name, value in pairs:
        for line_number, line in enumerate(_broken(value, max(_LEAST_WORDS, out.width - width))):
            start = Text(_padded(name if line_number == 0 else "", width), style="dim")
            out.print(start + Text(line), soft_wrap=True)
