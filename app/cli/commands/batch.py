"""`cloakwork batch score`: folders and buckets of ciphertexts on a Ray cluster, or on all of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from cloakwork.app.batch import BatchOptions, score_batch
from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError, progress_of_stages
from cloakwork.app.cli.shared.device_options import ThreadsOption
from cloakwork.app.cli.shared.interrupts import ended_like_ctrl_c
from cloakwork.app.cli.shared.key_files import EVALUATION_KEYS
from cloakwork.app.cli.shared.model_files import ModelOption, find_model
from cloakwork.app.cli.shared.program import Program
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError

app = Program("Compute a model on folders of ciphertexts.")

_SHOWN_FAILURES = 20


@app.callback()
def group() -> None:
    """Groups the commands, also if there is only one."""


@app.command("score")
def score(
    model_name: ModelOption,
    source: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="FOLDER|URL",
            help="Read files of ciphertexts, or Parquet files, from a folder or an s3:// address.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option("--out", "-o", metavar="FOLDER|URL", help="Write the results to a folder or an s3:// address."),
    ],
    keys_path: Annotated[Path, typer.Option("--keys", help="Read the evaluation keys that keygen wrote.")] = Path(
        EVALUATION_KEYS
    ),
    address: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="HOST:PORT|auto", help="Use this Ray cluster (default: Ray is started here for the run)."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|cuda", help="Compute on the CPU, or on a GPU for each worker.")
    ] = "cpu",
    threads: ThreadsOption = 1,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Start N workers (default: as many as fit).")
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="Read the ciphertexts from this column of Parquet files.")
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Do not re-randomise: audits get the same results everywhere, but the results tell the client about the model's weights.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the results of another run.")] = False,
    json_path: JsonOption = None,
) -> None:
    """Compute a model on many files of ciphertexts, without the secret key.

    After an interruption the same command goes on where it ended.
    """
    options = BatchOptions(
        address=address,
        device=device,
        threads=threads,
        workers=workers,
        column=column,
        deterministic=deterministic,
        force=force,
    )
    if not keys_path.is_file():
        raise WrongCallError(f"--keys: there is no file '{keys_path}'; 'cloakwork keygen' writes one")
    program = find_model(model_name).program
    if "://" not in source and not Path(source).is_dir():
        raise WrongCallError(f"--input: expected a folder of ciphertexts or an s3:// address, got '{source}'")
    # Ray tells of lost workers on standard output, which is for the report alone.
    try:
        with ended_like_ctrl_c(), _bar() as update, redirect_stdout(StringIO()):
            record = {"model": model_name, **score_batch(program, keys_path, source, target, options, update)}
    except (SerializationError, KeyMismatchError) as error:  # of the keys: inputs that are damaged are in the report
        raise FailureError(f"{keys_path}: {error}") from error
    failures = record["failures"]
    emit(record if json_path is not None else _without_failures(record), json_path, "Batch")
    if failures:
        for failure in failures[:_SHOWN_FAILURES]:
            row = f" row {failure['row']}" if "row" in failure else ""
            typer.echo(f"{failure['input']}{row}: {failure['reason']}", err=True)
        raise FailureError(
            f"{record['failed']} of the inputs failed, the others are done; {record['output']} has the report"
        )


def _without_failures(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "failures"}


@contextmanager
def _bar() -> Iterator[Callable[[int, int], bool]]:
    """Yields samples done, and how many a second since the first that this run scored."""
    began: list[tuple[float, int]] = []
    with progress_of_stages("starting") as update:

        def report(done: int, total: int) -> bool:
            if not began:
                began.append((time.perf_counter(), done))
            seconds, scored = time.perf_counter() - began[0][0], done - began[0][1]
            rate = f", {scored / seconds:.4g} a second" if scored and seconds else ""
            return update(f"{done} of {total} samples{rate}", done, total)

        yield report
