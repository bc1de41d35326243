"""`cloakwork bench methods`: the command, its options, and its table for people."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cloakwork.app.cli.bench.methods.catalogue import all_cases, chosen_cases
from cloakwork.app.cli.bench.methods.peer import openfhe_rows
from cloakwork.app.cli.bench.methods.plot import rate_text, write_plot
from cloakwork.app.cli.bench.methods.run import Effort, KeyHolder, Stage, measured
from cloakwork.app.cli.shared.console import (
    FailureError,
    JsonOption,
    WrongCallError,
    progress_of_stages,
    standard_output,
    write_json,
)
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.parameters import is_insecure, paper_sets

# Values in one call, timed calls of it, timed calls of one alone.
CPU_EFFORT: Final = (8, 2, 3)
CPU_QUICK: Final = (4, 1, 1)
CUDA_EFFORT: Final = (16384, 2, 9)
CUDA_QUICK: Final = (2048, 1, 3)

HEADINGS: Final = (
    "method", "set", "shape", "bits", "p_fail", "key MiB", "per second", "one, ms", "wrong", "of ceiling", "published", "ratio",
)  # fmt: skip


def methods(
    device: DeviceOption = "cpu",
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, help="Put N values into one call (default: 8 on a CPU, 16384 on a GPU)."),
    ] = None,
    threads: ThreadsOption = 1,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="Measure only rows with this text in their method, set or published name; may be repeated."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure small batches and, without --only, one or two rows of each method.")
    ] = False,
    openfhe: Annotated[
        str | None,
        typer.Option(
            "--openfhe", metavar="PYTHON", help="Measure the gates of OpenFHE too, with a Python that has its wheel."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the rows of 128 bits and more as bars, in this SVG file."),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure every bootstrapping method in one table.

    The founding papers' own parameters (papers/..) are in it too; most of them are insecure.
    """
    effort = effort_for(checked_device(device), batch, threads, quick)
    cases = chosen_cases(only or [], quick)
    if not cases:
        raise WrongCallError(
            f"--only: no row has {' or '.join(map(repr, only or []))} in its name; sets are: "
            + ", ".join(dict.fromkeys(case.parameters.name for case in all_cases()))
        )
    if plot is not None and not plot.parent.is_dir():
        raise WrongCallError(f"--plot: there is no folder '{plot.parent}'")
    rows = []
    require_device(device)
    with progress_of_stages("methods") as stage:
        holder = KeyHolder(effort)
        for number, case in enumerate(cases, 1):
            rows.append(measured(case, effort, holder, partial(numbered, stage, f"{number}/{len(cases)}")))
        holder.drop()
        if openfhe is not None:
            rows += openfhe_rows(openfhe, quick, stage)
    record = {
        "device": device,
        "threads": threads,
        "cpu_features": _engine.cpu_features(),
        "insecure_sets": [params.name for params in paper_sets() if is_insecure(params)],
        "rows": rows,
    }
    if plot is not None:
        write_plot(rows, device, plot)
    if json_path != "-":
        standard_output().print(table_of(rows), markup=False)
    if json_path is not None:
        write_json(record, json_path)
    if all(row["error"] for row in rows):
        raise FailureError(f"no row could be measured; the first says: {rows[0]['error']}")


def numbered(stage: Stage, place: str, text: str, done: int, total: int) -> bool:
    return stage(f"{place} {text}", done, total)


def require_device(device: str) -> None:
    """Requires the device, so that a machine without it fails once, not in every row."""
    if device == "cpu":
        return
    if not has_cuda():
        raise FailureError(
            f"--device {device}: this build has no CUDA back end; 'cloakwork devices' lists what there is"
        )
    if not _engine.cuda_devices():
        raise FailureError(f"--device {device}: there is no GPU; 'cloakwork devices' lists what there is")


def effort_for(device: str, batch: int | None, threads: int, quick: bool) -> Effort:
    on_cpu = device == "cpu"
    usual, repeats, singles = (CPU_QUICK if quick else CPU_EFFORT) if on_cpu else (CUDA_QUICK if quick else CUDA_EFFORT)
    return Effort(device, threads, batch or usual, repeats, singles)


def table_of(rows: list[dict[str, Any]]) -> str:
    """Formats the table in Markdown, a line for each row: wide, and ready for a page."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(cells(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)


def cells(row: Mapping[str, Any]) -> list[str]:
    """Returns one row of the table for people; n/a: unknown, or what this device has no count of."""
    published = row["published"] or {}
    name = f"{row['operation']}, {row['bits']} bits" if row["bits"] else row["operation"]
    figures = [
        _number(row["p_fail_log2"], "2^{:.0f}") if row["p_fail_log2"] else "n/a",
        _number(row["key_bytes"] and row["key_bytes"] / 2**20, "{:.1f}"),
        "n/a" if row["per_second"] is None else rate_text(row["per_second"]),
        _number(row["seconds_one"] and row["seconds_one"] * 1e3, "{:.3g}"),
        f"{row['wrong']} of {row['outputs']}" if row["outputs"] else "n/a",
        _number(row["share_of_ceiling"], "{:.0%}"),
    ]
    if row["error"]:
        figures = [row["error"], *[""] * 5]
    return [
        f"{row['method']}: {name}",
        row["set"],
        row["shape"],
        _number(row["security_bits"], "{:.0f}"),
        *figures,
        f"{published['row']} [{published['source']}]: {_number(published['per_second'], '{:,.0f}')}, {published['device']}"
        if published
        else "",
        _number(published.get("ratio"), "{:.2g}") if published else "",
    ]


def _number(value: float | None, form: str) -> str:
    return "n/a" if value is None else form.format(value)
