"""Entry point of the `cloakwork` command: sub-commands, and errors as one line with an exit status."""

from __future__ import annotations

import sys
from importlib.metadata import version as distribution_version
from typing import Annotated

import typer

from cloakwork.app.cli.bench import group as bench
from cloakwork.app.cli.commands import (
    batch,
    calibrate_machine,
    compile_model,
    devices,
    index,
    keys,
    page,
    params,
    remote,
    replay,
    run_model,
    samples,
    score,
    serve,
    simulate,
    tenants,
    train,
)
from cloakwork.app.cli.demo import group as demo
from cloakwork.app.cli.shared.console import FailureError, WrongCallError, report_error
from cloakwork.fhe_core.errors import CancelledError, FheError, ParameterError

FAILURE, WRONG_CALL, INTERRUPTED = 1, 2, 130

# The class of every error in the arguments, public in Typer through its subclass alone.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="cloakwork",
    help="Machine-learning inference on encrypted data.",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("samples")(samples.samples)
app.command("train")(train.train)
app.command("zoo")(compile_model.list_zoo)
app.command("compile")(compile_model.compile_model)
app.command("inspect")(compile_model.inspect)
app.command("simulate")(simulate.simulate)
app.command("params")(params.params)
app.command("devices")(devices.devices)
app.command("calibrate-machine")(calibrate_machine.calibrate_machine)
app.command("keygen")(keys.keygen)
app.command("encrypt")(keys.encrypt)
app.command("run")(run_model.run_model)
app.add_typer(batch.app, name="batch")
app.command("replay")(replay.replay)
app.command("decrypt")(keys.decrypt)
app.command("serve")(serve.serve)
app.command("page")(page.page)
app.add_typer(bench.app, name="bench")
app.add_typer(tenants.app, name="tenants")
app.add_typer(demo.app, name="demo")
app.command("score")(score.score)
app.add_typer(remote.models, name="models")
app.add_typer(remote.keys, name="keys")
app.add_typer(remote.jobs, name="jobs")
app.add_typer(index.app, name="index")


@app.callback(invoke_without_command=True)
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
    try:
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
