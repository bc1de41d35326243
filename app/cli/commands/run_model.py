"""`cloakwork run`: the server's step on files. No secret key takes part."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import JsonOption, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.key_files import EVALUATION_KEYS
from cloakwork.app.cli.shared.model_files import ModelArgument, find_model
from cloakwork.app.cli.shared.model_memory import check_memory
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.server import Session
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.runtime import Runtime


def run_model(
    model_name: ModelArgument,
    source: Annotated[
        Path, typer.Argument(metavar="CIPHERTEXTS", help="Ciphertexts that 'cloakwork encrypt' wrote for this model.")
    ],
    keys_path: Annotated[Path, typer.Option("--keys", help="Read the evaluation keys that keygen wrote.")] = Path(
        EVALUATION_KEYS
    ),
    output: Annotated[Path, typer.Option("--out", "-o", help="Write the encrypted results to this file.")] = Path(
        "results.bin"
    ),
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Do not re-randomise: audits get the same file everywhere, but it tells the client about the model's weights.",
        ),
    ] = False,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Compute a model on ciphertexts, without the secret key."""
    checked_device(device)
    refuse_overwriting(force, output)
    model = find_model(model_name)
    with reading(source, "ciphertexts of 'cloakwork encrypt' for this model"):
        inputs = SeededPackedCiphertexts.from_bytes(source.read_bytes(), parameters=model.program.parameters)
    remedy = f"encrypt with --model {model_name}, or with the client specification that 'cloakwork inspect --client' writes of it"
    check_purpose(inputs.purpose, model.program.digest, str(source), remedy)
    if device == "cpu":  # on a GPU as many samples after each other as its memory asks for
        check_memory(model.program, inputs.shape, source)
    start = time.perf_counter()
    with progress("expanding the keys") as update:
        with reading(keys_path, "evaluation keys of 'cloakwork keygen' for this model"):
            keys = EvaluationKeys.load(keys_path, parameters=model.program.parameters)
        session = Session(keys, device=device, threads=threads, progress=update)
    runtime, expanded = Runtime(model.program, session), time.perf_counter()
    with progress("encrypted inference") as update:
        results = (runtime.run if deterministic else runtime.answer)(inputs, update)
    seconds = time.perf_counter() - expanded
    results.save(output)
    record = {
        "model": model_name,
        "results": str(output),
        "samples": results.shape[0],
        "device": device,
        "rerandomised": not deterministic,
        "seconds": seconds,
        "seconds_expand": expanded - start,
        "bytes": output.stat().st_size,
        "sha256": hashlib.sha256(output.read_bytes()).hexdigest(),
    }
    emit(record, json_path, "Results")
