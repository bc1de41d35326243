"""The command line in Markdown, from the program itself: every command with its arguments, options and defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

Command: TypeAlias = Any  # of click, which newer versions of Typer carry under a name of their own


def commands_page(program: Command, name: str) -> str:
    """Args: program: `typer.main.get_command(app)`."""
    lines = [
        "# Every command",
        "",
        f"As `{name} COMMAND --help` of this version says it, made from the program.",
        "[Command line](command-line.md) has examples, JSON keys and exit statuses.",
    ]
    for path, command in _walk(program, name):
        lines += ["", *_section(path, command)]
    return "\n".join(lines) + "\n"


def _walk(command: Command, path: str) -> Iterator[tuple[str, Command]]:
    if command.hidden:
        return
    yield path, command
    for each in getattr(command, "commands", {}).values():
        yield from _walk(each, f"{path} {each.name}")


def _section(path: str, command: Command) -> list[str]:
    depth = min(path.count(" ") + 2, 4)
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"{'#' * depth} {path}", "", "```", f"{path} {usage}", "```", "", _paragraphs(command.help or "")]
    shown = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    for kind in ("argument", "option"):
        rows = [each.get_help_record(context) for each in shown if each.param_type_name == kind]
        if any(rows):
            lines += ["", f"| {kind} | |", "|---|---|", *(_row(*row) for row in rows if row)]
    subcommands = [each for each in getattr(command, "commands", {}).values() if not each.hidden]
    if subcommands:
        lines += ["", "| command | what it does |", "|---|---|"]
        for each in subcommands:
            anchor = f"{path} {each.name}".replace(" ", "-")
            lines.append(f"| [`{each.name}`](#{anchor}) | {_cell(_first_sentence(each.help or ''))} |")
    return lines


def _row(names: str, words: str) -> str:
    """As in the help, whose last brackets are set apart: `[default: 3]`."""
    text, bracket, extra = _cell(words).rpartition("[")
    if bracket and extra.endswith("]"):
        return f"| `{_cell(names)}` | {text}*({extra[:-1]})* |"
    return f"| `{_cell(names)}` | {_cell(words)} |"


def _paragraphs(text: str) -> str:
    return inspect.cleandoc(text.split("\f")[0]).replace("\b\n", "")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(_paragraphs(text).split()), maxsplit=1)[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
