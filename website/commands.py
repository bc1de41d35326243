"""The command line in Markdown, from the program itself: every command with its arguments, options and defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click


def commands_page(program: click.Command, name: str) -> str:
    """Args: program: `typer.main.get_command(app)`."""
    lines = [
        "# Every command",
        "",
        f"As `{name} COMMAND --help` of this version says it, made from the program.",
        "[Command line](../command-line.md) has examples, JSON keys and exit statuses.",
    ]
    for path, command in _walk(program, name):
        lines += ["", *_section(path, command)]
    return "\n".join(lines) + "\n"


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if command.hidden:
        return
    yield path, command
    for each in getattr(command, "commands", {}).values():
        yield from _walk(each, f"{path} {each.name}")


def _section(path: str, command: click.Command) -> list[str]:
    depth = min(path.count(" ") + 2, 4)
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"{'#' * depth} {path}", "", "```", f"{path} {usage}", "```", "", _paragraphs(command.help or "")]
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if isinstance(each, click.Argument)]
    options = [each for each in shown if isinstance(each, click.Option) and each.name != "help"]
    if arguments:
        lines += ["", "| argument | what it is |", "|---|---|"]
        lines += [
            f"| `{each.make_metavar(context)}` | {_cell(getattr(each, 'help', None) or '')} |" for each in arguments
        ]
    if options:
        lines += [
            "",
            "| option | what it does | default |",
            "|---|---|---|",
            *(_option(each, context) for each in options),
        ]
    subcommands = [each for each in getattr(command, "commands", {}).values() if not each.hidden]
    if subcommands:
        lines += ["", "| command | what it does |", "|---|---|"]
        for each in subcommands:
            anchor = f"{path} {each.name}".replace(" ", "-")
            lines.append(f"| [`{each.name}`](#{anchor}) | {_cell(_first_sentence(each.help or ''))} |")
    return lines


def _option(option: click.Option, context: click.Context) -> str:
    names = "`, `".join([*option.opts, *option.secondary_opts])
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    words = _cell(option.help or "")
    if option.multiple:
        words += " May be given several times."
    return f"| `{names}`{f' `{value.strip()}`' if value else ''} | {words} | {_default(option, context)} |".replace(
        "``", "` `"
    )


def _default(option: click.Option, context: click.Context) -> str:
    if option.required:
        return "required"
    shown = option.get_help_extra(context).get("default")
    return f"`{shown}`" if shown not in (None, "") else ""


def _paragraphs(text: str) -> str:
    return inspect.cleandoc(text.split("\f")[0]).replace("\b\n", "")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(_paragraphs(text).split()), maxsplit=1)[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
