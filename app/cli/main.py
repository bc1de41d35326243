"""Entry point of the `cloakwork` command: sub-commands, and errors as one line with an exit status.

Nothing but the standard library is imported before a command is known, and then only that command.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as type checkers read it, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Collection

    import typer

FAILURE, WRONG_CALL, INTERRUPTED = 1, 2, 130

# By the sections of the help: where each command is (a function, or a group of commands), and its line, which begins its own help too.
SECTIONS = {
    "Start": {
        "demo": ("demo.group:app", "Run a demonstration of encrypted inference."),
        "samples": ("commands.samples:samples", "Write samples to try the other commands with."),
        "zoo": ("commands.compile_model:list_zoo", "List the trained models that come with cloakwork."),
    },
    "Model": {
        "compile": (
            "commands.compile_model:compile_model",
            "Compile a model for encrypted inputs, and report its cost.",
        ),
        "inspect": ("commands.compile_model:inspect", "Report what a compiled model costs and what it tells."),
        "simulate": ("commands.simulate:simulate", "Measure a model's accuracy under encryption, without keys."),
        "train": ("commands.train:train", "Train a model of the zoo with PyTorch."),
    },
    "Keys and data": {
        "keygen": ("commands.keys:keygen", "Make a secret key, and the evaluation keys for the server."),
        "encrypt": ("commands.keys:encrypt", "Encrypt values, or samples for a model."),
        "run": ("commands.run_model:run_model", "Compute a model on ciphertexts, without the secret key."),
        "decrypt": ("commands.keys:decrypt", "Decrypt a file of ciphertexts."),
        "batch": ("commands.batch:app", "Compute a model on folders of ciphertexts."),
        "index": ("commands.index:app", "Find nearest neighbours of encrypted queries in a table."),
        "params": ("commands.params:params", "List the parameter sets, or show one."),
    },
    "Service": {
        "serve": ("commands.serve:serve", "Start the scoring service."),
        "page": ("commands.page:page", "Open the page from this machine, for a service anywhere."),
        "score": ("commands.score:score", "Have a server compute on samples that it never sees."),
        "models": ("commands.remote:models", "Manage the models of a server."),
        "keys": ("commands.remote:keys", "Manage your evaluation keys on a server."),
        "jobs": ("commands.remote:jobs", "Manage your jobs on a server."),
        "tenants": ("commands.tenants:app", "Manage who may use the service, and their API keys."),
        "replay": ("commands.replay:replay", "Check an answer of a service by computing it again."),
    },
    "Machine": {
        "devices": ("commands.devices:devices", "List what this machine can compute on."),
        "calibrate-machine": ("commands.calibrate_machine:calibrate_machine", "Measure this machine, for forecasts."),
        "bench": ("bench.group:app", "Measure operations, and check every output."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def application(names: Collection[str] | None = None) -> typer.Typer:
    """Returns the program. Args: names: the commands to import, while the others are only listed; None imports all."""
    import typer

    from cloakwork.app.cli.shared.program import Program, listed_only, load, root

    app = Program(help="Run machine-learning models on encrypted data.", add_completion=True)
    app.callback(invoke_without_command=True)(root)
    for section, commands in SECTIONS.items():
        for name, (place, line) in commands.items():
            command = load(place) if names is None or name in names else listed_only(line)
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, help=line, rich_help_panel=section)
            else:
                app.command(name, short_help=line, rich_help_panel=section)(command)
    return app


def print_version() -> None:
    from importlib.metadata import version

    sys.stdout.write(f"{version('cloakwork')}\n")


def run(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0, 1 for a failure, 2 for a wrong call."""
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        print_version()
        return 0
    return _run(words)


def _run(words: list[str]) -> int:
    import typer

    from cloakwork.app.cli.shared.console import FailureError, WrongCallError, report_error
    from cloakwork.app.cli.shared.failures import explained, explained_usage, warnings_in_words
    from cloakwork.app.cli.shared.program import words_to_complete
    from cloakwork.fhe_core.errors import CancelledError, FheError, ParameterError

    # The class of every error in the arguments, public in Typer through its subclass alone.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        named = next((word for word in words_to_complete() or words if not word.startswith("-")), "")
        app = application((named,))
        with warnings_in_words():
            status = app(args=words, prog_name="cloakwork", standalone_mode=False)
    except (KeyboardInterrupt, CancelledError, typer.Abort):
        report_error("interrupted")
        return INTERRUPTED
    except (WrongCallError, ParameterError) as error:
        report_error(str(error))
        return WRONG_CALL
    except (FheError, FailureError, OSError, MemoryError) as error:
        report_error(explained(error))
        return FAILURE
    except usage_error as error:
        report_error(explained_usage(error))
        return WRONG_CALL
    if status == INTERRUPTED:  # Typer's own answer to Ctrl-C
        report_error("interrupted")
    return status if isinstance(status, int) else 0


def main() -> None:
    try:
        status = run()
    except Exception as error:
        from cloakwork.app.cli.shared.failures import report_defect

        report_defect(error)
        status = FAILURE
    sys.exit(status)
