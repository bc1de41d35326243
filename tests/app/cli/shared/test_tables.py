"""Tables at 80 and 120 columns and in a pipe: nothing is cut, nothing from outside is markup."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cloakwork.app.cli.shared.tables import Column, Group, folded, number, print_record, print_rows, print_text

ID = "0123456789abcdef0123456789abcdef"
COLUMNS = (Column("id"), Column("model"), number("samples"), folded("what it is"))
ROWS = [
    (ID, "mnist-mlp-1x30", 12, "a network of one hidden layer that was trained on the digits of the post"),
    (ID[::-1], "mnist-mlp-3x1024", 1234567, "[bold]wide[/bold] [demo] \x1b[31m and\nin two lines"),
]


def shown(width: int | None, columns: tuple[Column, ...] = COLUMNS, rows: list = ROWS, **options: object) -> list[str]:
    """The lines of a terminal so wide; None: of a pipe."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=width is not None, width=width or 80, no_color=True, color_system=None)
    print_rows("Jobs", columns, rows, console=console, **options)  # type: ignore[arg-type]
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
def test_what_the_next_command_needs_is_never_cut(width: int):
    lines = shown(width)
    assert max(map(len, lines)) <= max(width, len("what it is  ") + len(ID))
    text = "\n".join(lines)
    for needed in (ID, ID[::-1], "mnist-mlp-3x1024", "1234567"):
        assert needed in text
    words = " ".join(text.split())
    assert "…" not in text and "[demo] ?[31m and" in words and "\x1b" not in words
    assert "[bold]wide[/bold]" in words.replace(" ", "")


def test_what_does_not_fit_is_written_as_records():
    wide, narrow = shown(120), shown(60)
    assert sum(ID in line and "mnist-mlp-1x30" in line for line in wide) == 1
    assert sum(ID in line and "mnist-mlp-1x30" in line for line in narrow) == 0
    assert any(line.split() == ["model", "mnist-mlp-1x30"] for line in narrow)


def test_a_pipe_gets_a_line_for_each_row_and_nothing_else():
    lines = shown(None, notes=["for people"])
    assert len(lines) == 3 and lines[0].split() == ["id", "model", "samples", "what", "it", "is"]
    assert lines[1].split()[:3] == [ID, "mnist-mlp-1x30", "12"] and lines[1].endswith("of the post")
    assert lines[2].endswith("and in two lines") and lines[2].index("1234567") + 7 == lines[1].index("12 ") + 2
    assert not any(line != line.rstrip() for line in lines)


def test_groups_share_their_columns():
    groups = [Group("first", ROWS[:1]), Group("none", []), Group("second", ROWS[1:])]
    lines = shown(200, rows=groups)
    assert [line for line in lines if line in ("first", "none", "second")] == ["first", "second"]
    assert lines.index("first") < next(i for i, line in enumerate(lines) if ID in line) < lines.index("second")
    assert sum("samples" in line for line in lines) == 1
    piped = shown(None, rows=groups)
    assert [line.split()[-1] for line in piped] == ["group", "first", "second"]
    assert [line.rsplit(None, 1)[0].rstrip() for line in piped] == shown(None)
    starts = {line.index("mnist") for line in lines if "mnist" in line}
    assert len(starts) == 1


def test_an_empty_table_says_so():
    assert shown(80, rows=[]) == shown(None, rows=[]) == ["Jobs: none"]
    assert shown(80, rows=[Group("first", [])]) == ["Jobs: none"]


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("terminal", [True, False])
def test_a_record_is_whole(width: int, terminal: bool):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, color_system=None)
    print_record("Job", {"id": ID * 2, "share": 1 / 3, "[red]": True, "none": None, "text": "[link]"}, console)
    text = "".join(file.getvalue().split())
    assert f"id{ID * 2}" in text
    assert "share0.333333" in text and "[red]yes" in text and "[link]" in text


def test_headings_are_split_before_a_table_becomes_records():
    columns = (Column("name"), number("evaluation_key_bytes"), number("security bits"))
    lines = shown(36, columns, [("mnist-mlp-1x30", 25416912, 132)])
    assert [line.split() for line in lines[1:4]] == [["evaluation"], ["key", "security"], ["name", "bytes", "bits"]]
    assert lines[-1].split() == ["mnist-mlp-1x30", "25416912", "132"]
    assert shown(None, columns, [("a", 1, 2)])[0].split() == ["name", "evaluation_key_bytes", "security", "bits"]


@pytest.mark.parametrize("width", [20, 80])
def test_lines_of_words_are_broken_between_them(width: int):
    text = "one line of words that is longer than a terminal of eighty characters is wide,   and goes on\n  " + "x" * 90
    for terminal in (True, False):
        file = io.StringIO()
        print_text(text, Console(file=file, force_terminal=terminal, width=width, color_system=None))
        lines = file.getvalue().splitlines()
        assert " ".join(file.getvalue().split()) == " ".join(text.split())
        if terminal:
            assert all(len(line) <= width or "x" in line for line in lines) and lines[1].startswith("    ")
        else:
            assert file.getvalue() == text + "\n"
