"""`cloakwork index`: nearest neighbours of encrypted queries in a table (docs/howto/levelled.md)."""

from __future__ import annotations

import statistics
import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError, progress
from cloakwork.app.cli.shared.data_sets import load_rows
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.failures import of_file
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.program import Program
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.neighbours.cells import UNSEEN
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import load_index
from cloakwork.models.neighbours.scorer import queries_at_once

app = Program("Find nearest neighbours of encrypted queries in a table.")


class MetricName(StrEnum):
    EUCLIDEAN = "euclidean"
    COSINE = "cosine"


class WeightsName(StrEnum):
    UNIFORM = "uniform"
    DISTANCE = "distance"


@app.command("build")
def build(
    table: Annotated[Path, typer.Argument(help="Read the table from this .npy file [rows, features].")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the index to this file.")],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Read a label for each row from this .npy file.")
    ] = None,
    values: Annotated[
        Path | None, typer.Option("--values", help="Read a number for each row from this .npy file.")
    ] = None,
    neighbors: Annotated[int, typer.Option("--neighbors", min=1, help="Let the N nearest rows decide.")] = 5,
    metric: Annotated[
        MetricName, typer.Option("--metric", help="Choose how distances are measured.")
    ] = MetricName.EUCLIDEAN,
    weights: Annotated[
        WeightsName, typer.Option("--weights", help="Count each row the same, or by its distance.")
    ] = WeightsName.UNIFORM,
    input_bits: Annotated[
        int | None,
        typer.Option(
            "--input-bits", min=2, max=12, help="Quantise features to N bits (default: as the accuracy needs)."
        ),
    ] = None,
    cells: Annotated[
        int | None,
        typer.Option(
            "--cells",
            min=0,
            help="Put the rows into at least N cells; 0 scores all rows (default: cells if an answer would exceed 100,000 bytes).",
        ),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option("--probes", min=1, help="Ask for N cells with each query, a power of two (default: 8 or 4)."),
    ] = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Make an index of a table.

    An answer is a label or a value; without --labels and --values it is the numbers of the nearest rows.
    """
    if labels is not None and values is not None:
        raise WrongCallError("--labels and --values: expected one of them, got both")
    refuse_overwriting(force, out)
    rows = load_rows(table)
    given = labels or values
    target = np.arange(len(rows)) if given is None else load_rows(given)
    both = table if given is None else f"{table} and {given}"
    with (
        warnings.catch_warnings(record=True) as caught,
        progress("rows") as update,
        of_file(table, "table"),
        of_file(both, "table, target"),
    ):
        warnings.simplefilter("always")
        index = NeighbourIndex.build(
            rows,
            target,
            n_neighbors=1 if given is None else neighbors,
            weights=weights.value,
            metric=metric.value,
            classify=values is None,
            input_bits=input_bits,
            cells="auto" if cells is None else cells or None,
            probes=probes,
            progress=update,
        )
    for each in caught:
        typer.echo(f"warning: {each.message}", err=True)
    index.save(out)
    emit(index.report() | {"file": str(out)}, json_path, f"Index of {table}")


@app.command("query")
def query(
    queries: Annotated[Path, typer.Argument(help="Read the queries from this .npy file [queries, features].")],
    index_path: Annotated[Path, typer.Option("--index", help="Use this index of 'cloakwork index build'.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the answers to this .npy file.")] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Answer encrypted queries with an index, on this machine.

    Client and server run in this process, with a key of its own.
    """
    if out is not None:
        refuse_overwriting(force, out)
    if not index_path.exists():
        raise FailureError(f"{index_path}: there is no such file; make one with 'cloakwork index build'")
    where = checked_device(device)
    with progress("reading the index"):
        index = load_index(index_path)
    samples = load_rows(queries)
    with of_file(queries, "samples"):
        integers = index.client.integers(samples)
    key = LevelledClientKey.generate(index.client.parameters)
    with progress("table") as update:
        scorer = index.scorer(index.client.evaluation_keys(key), threads, where, update)
    decided, seconds, wrong, outputs, sent, received = [index.client.target[:0]], [], 0, 0, 0, 0
    at_once = queries_at_once(where)
    with progress("queries") as update:
        for first in range(0, len(samples), at_once):
            part = integers[first : first + at_once]
            encrypted = [index.client.encrypt_integers(key, each) for each in part]
            start = time.perf_counter()
            answered = scorer.score_all(encrypted)
            seconds.append((time.perf_counter() - start) / len(encrypted))
            scores = np.stack([index.client.scores(key, *each) for each in zip(answered, part, strict=True)])
            wrong += int(np.count_nonzero(scores != index.scores(part)))
            outputs += int(np.count_nonzero(scores != UNSEEN))
            decided.append(index.client.decide(scores, part))
            sent, received = len(encrypted[0].to_bytes()), len(answered[0].to_bytes())
            update(first + len(encrypted), len(samples))
    answers = np.concatenate(decided)
    if out is not None:
        np.save(out, answers, allow_pickle=False)
    record: dict[str, Any] = {
        "queries": len(samples),
        "answers": answers.tolist(),
        "wrong": wrong,
        "outputs": outputs,
        "median_seconds": statistics.median(seconds),
        "device": where,
        "queries_at_once": at_once,
        "threads": threads,
        "query_bytes": sent,
        "answer_bytes": received,
    }
    emit(record, json_path, f"Queries of {queries}")
