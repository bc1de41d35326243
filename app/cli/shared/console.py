"""Output of commands: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloakwork.models.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

MIB = 2**20

# (done, total) -> go on? The engine stops a long call when it returns False.
ProgressCallback = Callable[[int, int], bool]

JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="PATH|-",
        callback=lambda value: _checked_destination(value),
        help="Write the result as one JSON object to PATH; - prints only that.",
    ),
]


class WrongCallError(Exception):
    """The command was called wrongly: exit status 2."""


class FailureError(Exception):
    """The command was right and could not be carried out: exit status 1."""


def _checked_destination(path: str | None) -> str | None:
    """Of --json: said before the work, whose result would be lost."""
    if path not in (None, "-"):
        if Path(str(path)).is_dir():
            raise WrongCallError(f"--json: expected the name of a file to write, got the folder '{path}'")
        if not Path(str(path)).parent.is_dir():
            raise WrongCallError(f"--json: there is no folder '{Path(str(path)).parent}' for '{path}'; make it first")
    return path


def standard_output() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)  # names from outside are no markup


def standard_error() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def in_one_line(text: str) -> str:
    """Returns a text in one line without commands for the terminal: servers and files choose names and messages too."""
    return printable(" ".join(text.split()))


def report_error(message: str) -> None:
    """Prints one line on standard error, whatever the message contains."""
    print(f"cloakwork: {in_one_line(message)}", file=sys.stderr)  # noqa: T201


@contextmanager
def progress(label: str) -> Iterator[ProgressCallback]:
    """Shows a progress bar on standard error that leaves nothing behind; silent where standard error is not a terminal."""
    with progress_of_stages(label) as report:
        yield lambda done, total: report(label, done, total)


@contextmanager
def progress_of_stages(label: str) -> Iterator[Callable[[str, int, int], bool]]:
    """Yields the same for work in several stages, each with its name."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = standard_error()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=None)

        def report(stage: str, done: int, total: int) -> bool:
            bar.update(task, completed=done, total=total, description=stage)
            return True

        yield report


def write_json(record: Any, destination: str) -> None:
    text = json.dumps(record, allow_nan=False) + "\n"
    if destination == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        Path(destination).write_text(text, encoding="utf-8")
