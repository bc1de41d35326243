"""`cloakwork run`: the server's step on files. No secret key takes part."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cloakwork.app.cli.shared.console import JsonOption, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.key_files import EVALUATION_KEYS
from cloakwork.app.cli.shared.levelled_models import answers, read_messages
from cloakwork.app.cli.shared.model_files import ModelArgument, find_any_model, program_of
from cloakwork.app.cli.shared.model_memory import check_memory
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.messages import MessageKind
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.program import Program
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.runtime import Runtime
from cloakwork.models.server import Server

_OF_THESE_KEYS: Final = "ciphertexts of the secret key whose evaluation keys --keys has"
_KEYS: Final = "evaluation keys of 'cloakwork keygen' for this model"


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
    model = find_any_model(model_name)
    program = program_of(model)
    if program is not None:
        record = _run_program(program, model_name, source, keys_path, output, device, threads, deterministic)
    else:
        assert not isinstance(model, CompiledModel)
        record = _run_levelled(model, source, keys_path, output, device, threads)
    emit({"model": model_name, **record}, json_path, "Results")


def _run_program(
    program: Program, name: str, source: Path, keys_path: Path, output: Path, device: str, threads: int, deterministic: bool
) -> dict[str, Any]:  # fmt: skip
    with reading(source, "ciphertexts of 'cloakwork encrypt' for this model"):
        inputs = SeededPackedCiphertexts.from_bytes(source.read_bytes(), parameters=program.parameters)
    remedy = (
        f"encrypt with --model {name}, or with the client specification that 'cloakwork inspect --client' writes of it"
    )
    check_purpose(inputs.purpose, program.digest, str(source), remedy)
    if device == "cpu":  # on a GPU as many samples after each other as its memory asks for
        check_memory(program, inputs.shape, source)
    start = time.perf_counter()
    with progress("expanding the keys") as update:
        with reading(keys_path, _KEYS):
            keys = EvaluationKeys.load(keys_path, parameters=program.parameters)
        session = Session(keys, device=device, threads=threads, progress=update)
    runtime, expanded = Runtime(program, session), time.perf_counter()
    with progress("encrypted inference") as update, reading(source, _OF_THESE_KEYS):
        results = (runtime.run if deterministic else runtime.answer)(inputs, update)
    seconds = time.perf_counter() - expanded
    results.save(output)
    return _record(output, results.shape[0], device, not deterministic, seconds, expanded - start)


def _run_levelled(
    model: BatchModel | NeighbourIndex, source: Path, keys_path: Path, output: Path, device: str, threads: int
) -> dict[str, Any]:
    """Answers of models for batches and of indices are not re-randomised (docs/explanation/model-privacy.md)."""
    requests = read_messages(
        source, MessageKind.REQUESTS, model.client, "ciphertexts of 'cloakwork encrypt' for this model"
    )
    start = time.perf_counter()
    with progress("preparing") as update, reading(keys_path, _KEYS):
        server = Server(model, keys_path.read_bytes(), device, threads, update)
    prepared = time.perf_counter()
    with (
        progress("encrypted inference") as update,
        reading(source, _OF_THESE_KEYS),
    ):
        answered = answers(model.client, server, requests, update)
    seconds = time.perf_counter() - prepared
    answered.save(output)
    return _record(output, answered.samples, device, False, seconds, prepared - start)


def _record(
    output: Path, samples: int, device: str, rerandomised: bool, seconds: float, expansion: float
) -> dict[str, Any]:
    return {
        "results": str(output),
        "samples": samples,
        "device": device,
        "rerandomised": rerandomised,
        "seconds": seconds,
        "seconds_expand": expansion,
        "bytes": output.stat().st_size,
        "sha256": hashlib.sha256(output.read_bytes()).hexdigest(),
    }
