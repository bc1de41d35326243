"""`cloakwork bench`: pbs, gate, linear and keygen; other kinds are in files beside. Seconds are those of one call on the whole batch.

docs/reference/command-line.md lists the keys.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cloakwork.app.cli.bench import keyswitch, large, measure, ntt, serve
from cloakwork.app.cli.bench.methods import command as methods
from cloakwork.app.cli.shared.console import JsonOption, WrongCallError, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.parameter_sets import SetOption, find_set
from cloakwork.app.cli.shared.program import Program
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core.gates import INPUT_COUNTS

app = Program("Measure operations, and check every output.")
app.command("serve")(serve.serve)
app.command("func")(large.func)
app.command("floor")(large.floor)
app.command("sign")(large.sign)
app.command("decomp")(large.decomp)
app.command("methods")(methods.methods)
app.command("ntt")(ntt.ntt)
app.command("keyswitch")(keyswitch.keyswitch)

BatchOption = Annotated[int, typer.Option("--batch", min=1, help="Put N ciphertexts into one call.")]
RepeatsOption = Annotated[
    int | None,
    typer.Option("--repeats", min=1, help="Take the median of N calls (default: as many as fit into two seconds)."),
]


@app.command("pbs")
def pbs(
    set_name: SetOption,
    device: DeviceOption = "cpu",
    batch: BatchOption = 64,
    threads: ThreadsOption = 1,
    repeats: RepeatsOption = None,
    json_path: JsonOption = None,
) -> None:
    """Measure a look-up.

    It is a random table for exact sets, ReLU for approximate ones, and the sign for gate sets.
    """
    parameters = find_set(set_name)
    setting = checked_setting(device, batch, threads, repeats)
    with progress(f"bootstraps of {set_name}") as update:
        record = measure.bench_bootstrap(parameters, None, setting, update)
    emit(record, json_path, f"Look-up on {set_name}")


@app.command("gate")
def gate(
    set_name: SetOption,
    gate: Annotated[
        str, typer.Option("--gate", metavar="GATE", help=f"Measure this gate: {', '.join(INPUT_COUNTS)}.")
    ] = "NAND",
    device: DeviceOption = "cpu",
    batch: BatchOption = 64,
    threads: ThreadsOption = 1,
    repeats: RepeatsOption = None,
    json_path: JsonOption = None,
) -> None:
    """Measure a Boolean gate."""
    parameters = find_set(set_name)
    name = gate.upper()
    if name not in INPUT_COUNTS:
        raise WrongCallError(f"--gate: expected one of {', '.join(INPUT_COUNTS)}; got '{gate}'")
    setting = checked_setting(device, batch, threads, repeats)
    with progress(f"{name} of {set_name}") as update:
        record = measure.bench_bootstrap(parameters, name, setting, update)
    emit(record, json_path, f"{name} on {set_name}")


@app.command("linear")
def linear(
    set_name: SetOption,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Give the matrix N outputs.")] = 128,
    columns: Annotated[int, typer.Option("--cols", min=1, help="Give the matrix N inputs.")] = 128,
    arrays: Annotated[
        measure.Arrays,
        typer.Option("--arrays", help="Keep the ciphertexts on the device, or in the memory of the host."),
    ] = measure.Arrays.DEVICE,
    device: DeviceOption = "cpu",
    batch: BatchOption = 16,
    threads: ThreadsOption = 1,
    repeats: RepeatsOption = None,
    json_path: JsonOption = None,
) -> None:
    """Measure an integer matrix times a batch of encrypted vectors."""
    parameters = find_set(set_name)
    setting = checked_setting(device, batch, threads, repeats)
    with progress(f"linear layer on {set_name}") as update:
        record = measure.bench_linear(parameters, (rows, columns), arrays, setting, update)
    emit(record, json_path, f"Linear layer on {set_name}")


@app.command("keygen")
def keygen(set_name: SetOption, repeats: RepeatsOption = None, json_path: JsonOption = None) -> None:
    """Measure how long keys take to make, and their size."""
    parameters = find_set(set_name)
    with progress(f"keys of {set_name}") as update:
        record = measure.bench_keygen(parameters, repeats, update)
    emit(record, json_path, f"Keys of {set_name}")


def checked_setting(device: str, batch: int, threads: int, repeats: int | None) -> measure.Setting:
    return measure.Setting(checked_device(device), batch, threads, repeats)
