"""Entry point of the `cloakwork` command: sub-commands, and errors as one line with an exit status."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version as distribution_version
from typing import Annotated, Final

import typer

from cloakwork.app.cli.shared.console import FailureError, WrongCallError, report_error
from cloakwork.fhe_core.errors import CancelledError, FheError, ParameterError

FAILURE, WRONG_CALL, INTERRUPTED = 1, 2, 130

# The class of every error in the arguments, public in Typer through its subclass alone.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

# Where each command is, in the order of the help: a function, or a group of commands. A call imports only its own: all of them take two seconds.
COMMANDS: Final = {
    "samples": "commands.samples:samples",
    "train": "commands.train:train",
    "zoo": "commands.compile_model:list_zoo",
    "compile": "commands.compile_model:compile_model",
    "inspect": "commands.compile_model:inspect",
    "simulate": "commands.simulate:simulate",
    "params": "commands.params:params",
    "devices": "commands.devices:devices",
    "calibrate-machine": "commands.calibrate_machine:calibrate_machine",
    "keygen": "commands.keys:keygen",
    "encrypt": "commands.keys:encrypt",
    "run": "commands.run_model:run_model",
    "batch": "commands.batch:app",
    "replay": "commands.replay:replay",
    "decrypt": "commands.keys:decrypt",
    "serve": "commands.serve:serve",
    "page": "commands.page:page",
    "bench": "bench.group:app",
    "tenants": "commands.tenants:app",
    "demo": "demo.group:app",
    "score": "commands.score:score",
    "models": "commands.remote:models",
    "keys": "commands.remote:keys",
    "jobs": "commands.remote:jobs",
    "index": "commands.index:app",
}


def application(*names: str) -> typer.Typer:
    """The program with these commands; with all of them if none is named."""
    app = typer.Typer(
        name="cloakwork",
        help="Machine-learning inference on encrypted data.",
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback(invoke_without_command=True)(root)
    for name in names or COMMANDS:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(f"cloakwork.app.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if show_version:
        typer.echo(distribution_version("cloakwork"))
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0, 1 for a failure, 2 for a wrong call."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        app = application(*(word for word in words[:1] if word in COMMANDS))
        status = app(args=arguments, prog_name="cloakwork", standalone_mode=False)
    except (KeyboardInterrupt, CancelledError, typer.Abort):
        report_error("interrupted")
        return INTERRUPTED
    except (WrongCallError, ParameterError) as error:
        report_error(str(error))
        return WRONG_CALL
    except (FheError, FailureError, OSError, MemoryError) as error:
        report_error(str(error) or type(error).__name__)
        return FAILURE
    except _UsageError as error:
        report_error(f"{error.format_message()} See 'cloakwork --help'.")  # type: ignore[attr-defined]
        return WRONG_CALL
    if status == INTERRUPTED:  # Typer's own answer to Ctrl-C
        report_error("interrupted")
    return status if isinstance(status, int) else 0


def main() -> None:
    sys.exit(run())
