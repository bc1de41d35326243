"""`cloakwork calibrate-machine`: measures this machine, so that reports forecast the time of programs on it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cloakwork.app.cli.shared.console import JsonOption, WrongCallError, progress_of_stages, write_json
from cloakwork.app.cli.shared.device_options import ThreadsOption, checked_device
from cloakwork.app.cli.shared.parameter_sets import find_set
from cloakwork.app.cli.shared.tables import Column, number, print_rows
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import ParameterSet, parameter_set, word_bytes
from cloakwork.fhe_core.server import Session
from cloakwork.models.forecast.measure import REPRESENTATIVES, Report, measure_set
from cloakwork.models.forecast.profile import Machine, MachineProfile, gpus, measured_profiles, save_profile
from cloakwork.models.forecast.rates import SetRates

GIB = 2**30


def calibrate_machine(
    devices: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="Measure cpu, cuda or cuda:N; may be repeated (default: the CPU and every usable GPU).",
        ),
    ] = None,
    threads: ThreadsOption = 1,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SET",
            help="Measure this parameter set too; may be repeated (default: one set for each ring; others are scaled from it).",
        ),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure this machine, for forecasts.

    The reports of models then forecast their time on this machine. The CPU takes about 15 seconds. The measurement is kept in your cache folder,
    for this release, CPU, number of threads and device.
    """
    machines = [Machine.here(device, threads) for device in _devices(devices)]
    chosen = [find_set(name) for name in sets or REPRESENTATIVES]
    start = time.perf_counter()
    with progress_of_stages("measuring") as update:
        profiles = [measure_machine(machine, chosen, update) for machine in machines]
    if sets:
        profiles = [_beside_earlier(profile) for profile in profiles]
    paths = [save_profile(profile) for profile in profiles]
    if json_path != "-":
        for profile, path in zip(profiles, paths, strict=True):
            print_profile(profile)
            typer.echo(f"kept in {path}")
    if json_path is not None:
        record = {
            "seconds": time.perf_counter() - start,
            "files": [str(path) for path in paths],
            "profiles": [profile.to_fields() for profile in profiles],
        }
        write_json(record, json_path)


def measure_machine(machine: Machine, sets: list[ParameterSet], update: Any = None) -> MachineProfile:
    """Measures this machine. Args: update: update(stage, done, total) of the probes of each set."""
    rates: dict[str, SetRates] = {}
    for params in sets:
        stage = f"{machine.label}, {params.name}"
        keys = ClientKey.generate(params).evaluation_keys()
        session = Session(keys, device=machine.device, threads=machine.threads if machine.device == "cpu" else 1)
        report: Report | None = None if update is None else lambda done, total: update(stage, done, total)  # noqa: B023
        rates[params.name] = measure_set(session, report)
    return MachineProfile(machine, datetime.now(UTC).isoformat(timespec="seconds"), rates)


def _beside_earlier(profile: MachineProfile) -> MachineProfile:
    """Adds the other sets that were measured on the machine before."""
    earlier = [stored.sets for stored in measured_profiles()[0] if stored.machine == profile.machine]
    return replace(profile, sets={**(earlier[0] if earlier else {}), **profile.sets})


def _devices(requested: list[str] | None) -> list[str]:
    chosen = requested or ["cpu", *(gpu["device"] for gpu in gpus())]
    for device in chosen:
        if "," in checked_device(device):
            raise WrongCallError(
                f"--device: expected one device at a time, got '{device}'; repeat the option for others"
            )
    return list(dict.fromkeys("cuda:0" if device == "cuda" else device for device in chosen))


def print_profile(profile: MachineProfile) -> None:
    """Prints rates rates as people speak of them: look-ups, multiplications and gibibytes in a second."""
    machine = profile.machine
    threads = f", {machine.threads} thread{'s' if machine.threads > 1 else ''}" if machine.device == "cpu" else ""
    headings = ("one, ms", "per s", "10^9 mul/s", "GiB/s in", "GiB/s out", "answers/s")
    rows = [
        (name, *_row(rates, word_bytes(parameter_set(name)), machine.device != "cpu"))
        for name, rates in profile.sets.items()
    ]
    note = (
        "One look-up alone, and look-ups in the largest batch; multiplications of integer weights with words of ciphertexts; ciphertexts that "
        "linear layers read, and that come out of a GPU; outputs re-randomised."
    )
    typer.echo(f"{machine.device}: {machine.name}{threads}")
    print_rows("", [Column("set"), *(number(each) for each in headings)], rows, [note])


def _row(rates: SetRates, bytes_each: int, on_gpu: bool) -> list[str]:
    def rate(seconds: float, unit: float = 1.0) -> str:
        value = unit / seconds if seconds > 0 else 0.0
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value else "-"

    largest, most = max(rates.lookups), max(rates.answers)
    return [
        f"{1e3 * rates.lookups[min(rates.lookups)]:.3g}",
        rate(rates.lookups[largest] / largest),
        rate(rates.seconds["multiplications"], 1e-9),
        rate(rates.seconds["gathered"], bytes_each / GIB),
        rate(rates.seconds["returned"], bytes_each / GIB) if on_gpu else "-",
        rate(rates.answers[most] / most),
    ]
