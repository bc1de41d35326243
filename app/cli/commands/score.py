"""`cloakwork score`: a file of samples, scored by a server that never sees them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cloakwork.app.cli.shared.answers import by_output, check_answers_path, save_answers
from cloakwork.app.cli.shared.console import JsonOption, in_one_line, progress_of_stages, standard_output
from cloakwork.app.cli.shared.failures import of_file
from cloakwork.app.cli.shared.interrupts import ended_like_ctrl_c
from cloakwork.app.cli.shared.output_files import refuse_overwriting
from cloakwork.app.cli.shared.parameter_sets import StructuredOption
from cloakwork.app.cli.shared.passphrase import (
    ENVIRONMENT_VARIABLE,
    PassphraseFileOption,
    WeakPassphraseOption,
    has_passphrase,
    read_passphrase,
)
from cloakwork.app.cli.shared.program import shows_first
from cloakwork.app.cli.shared.service_options import (
    ApiKeyFileOption,
    CaOption,
    ChangeOption,
    HeaderOption,
    LargeKeysOption,
    ShareKeysOption,
    UrlOption,
    connect,
)
from cloakwork.app.cli.shared.tables import emit
from cloakwork.app.client.audit import Recorder
from cloakwork.app.client.keyring import Keyring, TemporaryKeyring
from cloakwork.app.client.scores import Scores
from cloakwork.app.client.table import read_samples, read_tensors

_SHOWN_ROWS, _SHOWN_CELLS = 20, 8


@shows_first("--url", "--model", "--out", "--audit", "--api-key-file", "--passphrase-file", "--force", "--json")
def score(
    samples: Annotated[
        Path,
        typer.Argument(
            help="Samples: a .csv (with or without names of columns), a .npy, or a .npz of several inputs by name."
        ),
    ],
    url: UrlOption,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="Use this model of the server; 'cloakwork models list' shows them."
        ),
    ],
    version: Annotated[
        str | None, typer.Option("--version", metavar="N", help="Use this version of the model (default: the newest).")
    ] = None,
    header: HeaderOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the predictions to a .csv or .npy file (.npz for several outputs)."),
    ] = None,
    key_folder: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FOLDER",
            help="Keep your keys here; the folder is made if needed (default: your data folder).",
        ),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="Write a file to audit the answers with; see 'cloakwork replay'.")
    ] = None,
    audit_keys: Annotated[
        bool,
        typer.Option(
            "--audit-keys/--no-audit-keys", help="Put the evaluation keys into the audit file; the server has them too."
        ),
    ] = True,
    structured: StructuredOption = False,
    share_keys: ShareKeysOption = False,
    accept_large_keys: LargeKeysOption = False,
    accept_change: ChangeOption = False,
    api_key_file: ApiKeyFileOption = None,
    certificates: CaOption = None,
    passphrase_file: PassphraseFileOption = None,
    weak_passphrase: WeakPassphraseOption = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    json_path: JsonOption = None,
) -> None:
    """Have a server compute on samples that it never sees.

    The samples are encrypted here, and the answers decrypted here.
    """
    refuse_overwriting(force, *(path for path in (output, audit) if path is not None))
    table = read_tensors(samples) if samples.suffix == ".npz" else read_samples(samples, header)
    start = time.perf_counter()
    with (
        ended_like_ctrl_c(),
        _keyring(key_folder, passphrase_file, weak_passphrase) as keyring,
        connect(
            url,
            api_key_file,
            certificates,
            keyring,
            structured,
            share_keys=share_keys,
            accept_large_keys=accept_large_keys,
            accept_changes=accept_change,
        ) as client,
        _bars() as report,
    ):
        if output is not None:
            check_answers_path(output, client.model(model, version).has_named_outputs)
        recorder = None if audit is None else Recorder(audit, audit_keys)
        with of_file(samples, "input"):
            scores = client.score(model, table, version=version, progress=report, recorder=recorder)
    record = _record(model, scores, time.perf_counter() - start)
    if output is not None:
        _write(output, scores.predictions)
    elif json_path != "-":
        _show(table, scores.predictions)
    emit(
        record if json_path is not None else {k: v for k, v in record.items() if k != "predictions"},
        json_path,
        "Scores",
    )


@contextmanager
def _keyring(folder: Path | None, passphrase_file: Path | None, weak: bool) -> Iterator[Keyring]:
    """Yields the user's keys; where no passphrase is given and nobody can be asked for one, a key of this run that is never written and that the
    server loses at its end."""
    if has_passphrase(passphrase_file):
        yield Keyring(
            folder,
            passphrase=lambda: read_passphrase(passphrase_file, confirm=False),
            new_passphrase=lambda: read_passphrase(passphrase_file, confirm=True, weak=weak),
            weak_passphrase=weak,
        )
        return
    typer.echo(
        f"there is no passphrase: this run makes a key of its own and forgets it; set {ENVIRONMENT_VARIABLE} to keep one",
        err=True,
    )
    with tempfile.TemporaryDirectory(prefix="cloakwork-") as temporary:
        yield TemporaryKeyring(Path(temporary))


def _record(model: str, scores: Scores, seconds: float) -> dict[str, Any]:
    return {
        "model": model,
        "samples": scores.samples,
        "predictions": by_output(scores.predictions, lambda array: array.tolist()),
        "seconds_per_sample": scores.seconds / scores.samples,
        "compute_seconds_per_sample": None
        if np.isnan(scores.compute_seconds)
        else scores.compute_seconds / scores.samples,
        "upload_bytes": scores.upload_bytes,
        "ciphertext_bytes": scores.ciphertext_bytes,
        "result_bytes": scores.result_bytes,
        "key_uploaded": scores.key_uploaded,
        "seconds": seconds,
    }


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a progress bar that names what takes its time: making keys, the upload, the server."""
    labels = {"keys": "making keys", "upload": "uploading evaluation keys", "server": "the server computes"}
    with progress_of_stages("connecting") as update:

        def report(what: str, done: int, total: int) -> None:
            update(labels.get(what, what), done, total)

        yield report


def _show(table: Any, predictions: Any) -> None:
    console = standard_output()
    named = predictions if isinstance(predictions, dict) else {"": predictions}
    answers = [
        "; ".join(f"{name}: {each}" if name else str(each) for name, each in zip(named, row, strict=True))
        for row in zip(*(array[:_SHOWN_ROWS].tolist() for array in named.values()), strict=True)
    ]
    for shown, answer in zip(_shown_samples(table), answers, strict=False):
        console.print(f"{in_one_line(shown)}  ->  {in_one_line(answer)}")
    count = len(next(iter(named.values())))
    if count > _SHOWN_ROWS:
        console.print(f".. and {count - _SHOWN_ROWS} more; --out writes all")


def _shown_samples(table: Any) -> list[str]:
    """Returns the first samples by their first numbers; those of several inputs by their number in the file."""
    if isinstance(table, dict):
        return [f"sample {i}" for i in range(_SHOWN_ROWS)]
    rows = list(np.asarray(table))[:_SHOWN_ROWS]
    cells = [", ".join(str(cell) for cell in row.reshape(-1)[:_SHOWN_CELLS]) for row in rows]
    return [f"{text}{', ..' if row.size > _SHOWN_CELLS else ''}" for row, text in zip(rows, cells, strict=True)]


def _write(path: Path, predictions: Any) -> None:
    if path.suffix in (".npy", ".npz"):
        save_answers(path, predictions)
        return
    rows = predictions.reshape(len(predictions), -1)
    lines = (",".join(str(value) for value in row) for row in rows.tolist())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
