"""Groups of commands and commands as this program has them: help that fits the terminal, `-h`, `--help-all`, and what was meant instead of a typo."""

from __future__ import annotations

import difflib
import enum
import inspect
import os
import shutil
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_MOST_COLUMNS: Final = 100  # of a line that is read with ease
_NAMES_COLUMNS: Final = 28  # of the column of names: a longer name has its own line
_VALUES: Final = {int: "N", float: "NUMBER", Path: "FILE", str: "TEXT"}

# The class of every error in the arguments, public in Typer only through its subclass.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

Function = TypeVar("Function", bound=Callable[..., Any])


def shows_first(*options: str) -> Callable[[Function], Function]:
    """Marks the function of a command with many options: `--help` shows these, `--help-all` shows all."""

    def mark(function: Function) -> Function:
        function.shown_first = frozenset(options)  # type: ignore[attr-defined]
        return function

    return mark


def _show_all(context: typer.Context, given: bool) -> None:
    if given and not context.resilient_parsing:
        typer.echo(help_text(context.command, context, everything=True), nl=False)
        raise typer.Exit


def _with_help_all(
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all",
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options; these are the usual ones.",
        ),
    ] = False,
) -> None:
    """Has the option that `Command` gives to others."""


def _help_all_option() -> Any:
    probe = typer.Typer(add_completion=False)
    probe.command()(_with_help_all)
    return next(each for each in typer.main.get_command(probe).params if each.name == "help_all")


class Command(TyperCommand):
    """One command."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if shown_first(self):
            self.params.append(_help_all_option())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _better_errors(self, ctx):
            return list(super().parse_args(ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(self, ctx))


class Group(TyperGroup):
    """Several commands under one word, which shows its help when it stands for itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(self.get_help(ctx))
            raise typer.Exit
        with _better_errors(self, ctx):
            return list(super().parse_args(ctx, args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            ctx.fail(f"there is no command '{args[0]}'{did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Lists commands in the order in which they were added: groups are not last."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(self, ctx))


class Program(typer.Typer):
    """A group of commands: `Group` and `Command` for all of them."""

    def __init__(self, help: str, *, add_completion: bool = False) -> None:
        super().__init__(
            cls=Group,
            help=help,
            add_completion=add_completion,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        return super().command(name, **{"cls": Command, **settings})


def load(place: str) -> Any:
    """Returns the function or group at `module:name` under `cloakwork.app.cli`."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"cloakwork.app.cli.{module}"), attribute)


def listed_only(line: str) -> Callable[[], None]:
    """Returns a command that a call names nowhere: it is in the help with its line, and nothing is imported for it."""

    def command() -> None:
        raise AssertionError(f"a command that was only listed is called: {line}")

    command.__doc__ = line
    return command


def root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(version("cloakwork"))
        raise typer.Exit


def words_to_complete() -> list[str]:
    """Returns the words of a command line that a shell wants completed; none in every other call."""
    if "_CLOAKWORK_COMPLETE" not in os.environ:
        return []
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()[1:]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(each) for each in near)}?" if near else ""


@contextmanager
def _better_errors(command: Any, context: Any) -> Iterator[None]:
    """Says which option was meant instead of one that there is not, and of which command an error is."""
    try:
        yield
    except _UsageError as error:
        if getattr(error, "ctx", None) is None:
            error.ctx = context  # type: ignore[attr-defined]
        if hasattr(error, "possibilities"):  # only errors of unknown options have them
            name = str(getattr(error, "option_name", ""))
            known = [each for option in command.get_params(context) for each in _names(option)]
            context.fail(f"there is no option '{name}'{did_you_mean(name, known)}")
        raise


# --- Help ------------------------------------------------------------------------------------------------------------------------


def shown_first(command: Any) -> frozenset[str]:
    return getattr(command.callback, "shown_first", frozenset())


def help_text(command: Any, context: Any, everything: bool = False) -> str:
    """Returns the text that `--help` prints. args: everything: every option of a command that shows a few first."""
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    blocks = [[f"Usage: {context.command_path} {_usage(command, context)}"]]
    blocks += [textwrap.wrap(paragraph, width, break_on_hyphens=False) for paragraph in _paragraphs(command.help or "")]
    if isinstance(command, TyperGroup):
        blocks += _command_blocks(command, context, width)
    params = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    kinds = _value_types(command)
    arguments = [each for each in params if each.param_type_name == "argument"]
    options = [each for each in params if each.param_type_name == "option"]
    first = shown_first(command)
    if everything:
        options = [each for each in options if each.name != "help_all"]
    elif first:
        options = [each for each in options if first.intersection(_names(each)) or each.name in ("help", "help_all")]
    blocks += _table("Arguments", [(_argument_name(each), _words(each)) for each in arguments], width)
    for panel in dict.fromkeys(_panel(each) for each in options):
        rows = [(_option_name(each, kinds), _words(each)) for each in options if _panel(each) == panel]
        blocks += _table(panel, rows, width)
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _paragraphs(text: str) -> list[str]:
    whole = inspect.cleandoc(text.split("\f")[0])
    return [" ".join(each.split()) for each in whole.split("\n\n")] if whole else []


def _usage(command: Any, context: Any) -> str:
    pieces = ["[OPTIONS]"]
    pieces += [_argument_name(each) for each in command.get_params(context) if each.param_type_name == "argument"]
    return " ".join([*pieces, "COMMAND ..."] if isinstance(command, TyperGroup) else pieces)


def _command_blocks(command: TyperGroup, context: Any, width: int) -> list[list[str]]:
    sections: dict[str, list[tuple[str, str]]] = {}
    for name in command.list_commands(context):
        each: Any = command.get_command(context, name)
        if each is not None and not each.hidden:
            section = getattr(each, "rich_help_panel", None)
            line = each.short_help or next(iter(_paragraphs(each.help or "")), "")
            sections.setdefault(section if isinstance(section, str) else "Commands", []).append((name, line))
    names = [name for rows in sections.values() for name, _ in rows]
    column = max(map(len, names), default=0)
    return [lines for section, rows in sections.items() for lines in _table(section, rows, width, column)]


def _table(heading: str, rows: Sequence[tuple[str, str]], width: int, column: int | None = None) -> list[list[str]]:
    """Returns a heading with two columns below; nothing without rows."""
    if not rows:
        return []
    fitting = [len(name) for name, _ in rows if len(name) <= _NAMES_COLUMNS]
    column = max(fitting, default=0) if column is None else column
    indent = " " * (column + 4)
    lines = [_bold(f"{heading}:")]
    for name, words in rows:
        wrapped = textwrap.wrap(
            words,
            max(width, len(indent) + 24),
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        if not wrapped or len(name) > column:
            lines += [f"  {name}", *wrapped]
        else:
            lines += [f"  {name:<{column}}  {wrapped[0][len(indent) :]}", *wrapped[1:]]
    return [lines]


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def _panel(param: Any) -> str:
    panel = getattr(param, "rich_help_panel", None)
    return panel if isinstance(panel, str) else "Options"


def _names(param: Any) -> list[str]:
    return [*param.opts, *param.secondary_opts]


def _argument_name(param: Any) -> str:
    name = str(param.metavar or param.name.upper())
    if name.startswith("["):
        return name
    name += "..." if param.nargs != 1 else ""
    return name if param.required else f"[{name}]"


def _option_name(param: Any, kinds: dict[str, Any]) -> str:
    """Short names first: `-o, --out FILE`."""
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        return f"{names}, {', '.join(param.secondary_opts)}"
    value = "" if _is_flag(param) else str(param.metavar or _value(kinds.get(param.name, str)))
    return f"{names} {value}".rstrip()


def _is_flag(param: Any) -> bool:
    return bool(param.is_flag) or param.name == "help"


def _value(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(each.value) for each in kind)
    return _VALUES.get(kind, "TEXT")


def _value_types(command: Any) -> dict[str, Any]:
    """Returns the value types by the parameters of its function: the type of one value."""
    if command.callback is None:
        return {}
    hints = typing.get_type_hints(command.callback)
    return {name: next(_plain_types(hint), str) for name, hint in hints.items()}


def _plain_types(hint: Any) -> Iterator[Any]:
    """`Path` of `list[Path] | None`."""
    inner = typing.get_args(hint)
    if not inner and hint is not type(None):
        yield hint
    for each in inner:
        yield from _plain_types(each)


def _words(param: Any) -> str:
    """Returns what it does; then whether it is required, its default, and its environment variable."""
    notes = ["required"] if param.required and param.param_type_name == "option" else []
    default = _default(param)
    notes += [f"default: {default}"] if default else []
    variable = param.envvar
    notes += [f"or set {variable}"] if variable else []
    text = str(getattr(param, "help", None) or "")
    if param.name == "help":
        text = "Show this message and exit."
    if not notes:
        return text
    end = "." if text.endswith(".") else ""
    return f"{text.removesuffix('.')} ({'; '.join(notes)}){end}".strip()


def _default(param: Any) -> str:
    value = param.default
    if (
        param.required
        or value is None
        or callable(value)
        or value in ((), [])
        or not getattr(param, "show_default", True)
    ):
        return ""
    if isinstance(value, bool):
        if not param.secondary_opts:
            return ""
        return str(param.opts[0] if value else param.secondary_opts[0])
    if isinstance(value, enum.Enum):
        return str(value.value)
    return "this folder" if value == Path() else str(value)
