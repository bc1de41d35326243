"""`cloakwork replay`: the owner of a model shows that a service's answer is what its program gives. No secret key takes part."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.model_memory import check_memory
from cloakwork.app.cli.shared.service_extra import require_data_folder
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core import wire
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.levelled import wire as levelled
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.several import split_bytes
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.words import Progress
from cloakwork.models.audit.audit_file import AuditFile, AuditObject, Manifest
from cloakwork.models.audit.audit_key import AUDIT_KEY_FILE, AuditKey, load_audit_key
from cloakwork.models.audit.replay import Replayed, check_headers
from cloakwork.models.audit.replay import replay as replay_answers
from cloakwork.models.batches.batch_file import is_batch_file, read_batch
from cloakwork.models.batches.batch_format import BatchContents
from cloakwork.models.batches.scorer import BatchScorer, replay_batch
from cloakwork.models.neighbours.index_file import is_index_file, load_index
from cloakwork.models.neighbours.scorer import replay_index, require_index
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import load_program
from cloakwork.models.repository_files import KINDS
from cloakwork.models.runtime import Runtime

_SHOWN = 3  # differences
EXACT = "the same, byte for byte"


def replay(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="Audit file that 'cloakwork score --audit' or the page wrote.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FOLDER",
            help="Take models, audit key and evaluation keys from the service's data folder.",
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Use this compiled model instead of the folder's.")
    ] = None,
    audit_key: Annotated[
        Path | None, typer.Option("--audit-key", help="Use this audit key instead of the folder's.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="Use these evaluation keys, if neither FILE nor the folder has them.")
    ] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    json_path: JsonOption = None,
) -> None:
    """Check an answer of a service by computing it again.

    The answers are compared byte for byte. If one differs, the exit status is 1 and a line says what differs.
    """
    checked_device(device)
    with reading(source, "an audit file of 'cloakwork score --audit'"):
        file = AuditFile.open(source)
    manifest = file.manifest
    if data is not None:
        require_data_folder(data)
    path = _model_path(manifest, model, data)
    start = time.perf_counter()
    run = _prepared(
        file, path, lambda: _keys_object(file, keys, data), lambda: _audit_key(audit_key, data), device, threads
    )
    expanded = time.perf_counter()
    with progress("encrypted inference") as update:
        replayed = list(run.answers(update))
    seconds = {"seconds": time.perf_counter() - expanded, "seconds_expand": expanded - start}
    wrong = _differences(replayed)
    record = _record(file, run.parameter_set, replayed)
    emit({**record, "device": device, "threads": threads, **seconds}, json_path, "Replay")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise FailureError(
            f"{'; '.join(wrong[:_SHOWN])}{more}. Program, evaluation keys, requests and audit key are those that the file names: its answer was "
            "altered, or something else computed it"
        )


@dataclass(frozen=True)
class _Run:
    """The programs and keys that compute the answers once more."""

    parameter_set: str
    answers: Callable[[Progress], Iterator[Replayed]]


def _prepared(
    file: AuditFile, path: Path, object_: Callable[[], bytes], secret: Callable[[], AuditKey], device: str, threads: int
) -> _Run:
    """By the kind of the model. Args: object_: reads the evaluation keys. secret: reads the audit key, which programs of look-ups need."""
    if is_index_file(path):
        return _index_run(file, path, object_(), device, threads)
    contents = _batch(path) if is_batch_file(path) else None
    if contents is not None and contents.program is None:
        return _batch_run(file, path, contents, object_(), device, threads)
    program = _program(path) if contents is None or contents.program is None else contents.program
    return _program_run(file, program, secret(), object_(), device, threads)


def _program(path: Path) -> Program:
    with reading(path, "a compiled model"):
        return load_program(path)


def _batch(path: Path) -> BatchContents:
    with reading(path, "a model for batches"):
        return read_batch(path)


def _program_run(
    file: AuditFile, program: Program, secret: AuditKey, object_: bytes, device: str, threads: int
) -> _Run:
    requests = check_headers(file, wire.peek(object_), program)
    if device == "cpu":
        for header in requests:
            check_memory(program, header.shape, file.path)
    with progress("expanding the keys") as update:
        loaded = EvaluationKeys.from_bytes(object_, parameters=program.parameters)
        runtime = Runtime(program, Session(loaded, device=device, threads=threads, progress=update))
    return _Run(program.parameters.name, lambda update: replay_answers(file, runtime, secret, update))


def _index_run(file: AuditFile, path: Path, object_: bytes, device: str, threads: int) -> _Run:
    """Answers of an index are not re-randomised: no audit key takes part."""
    with path.open("rb") as stream:
        require_index(file, hashlib.file_digest(stream, "sha256").hexdigest())
    with reading(path, "an index"):
        index = load_index(path)
    keys = LevelledEvaluationKeys.from_bytes(object_, index.client.parameters)
    with progress("table") as update:
        scorer = index.scorer(keys, threads, device, update)
    return _Run(keys.parameters.set.name, lambda update: replay_index(file, scorer, keys.key_id, update))


def _batch_run(file: AuditFile, path: Path, contents: BatchContents, object_: bytes, device: str, threads: int) -> _Run:
    """As of an index: no audit key takes part."""
    with path.open("rb") as stream:
        require_index(file, hashlib.file_digest(stream, "sha256").hexdigest())
    client = contents.client
    parts = split_bytes(object_, levelled.Kind.EVALUATION_KEYS)
    if len(parts) != len(client.parameters):
        raise FailureError(
            f"{file.path}: expected evaluation keys for {len(client.parameters)} plaintext moduli, got {len(parts)}"
        )
    keys = [LevelledEvaluationKeys.from_bytes(*each) for each in zip(parts, client.parameters, strict=True)]
    used = keys if client.key_shapes.shapes[0].numbers else ()
    scorer = BatchScorer(client, contents.formula, used, threads, device)
    key_ids = [each.key_id for each in keys]
    return _Run(client.parameters[0].set.name, lambda update: replay_batch(file, scorer, key_ids, update))


def _model_path(manifest: Manifest, model: Path | None, data: Path | None) -> Path:
    if model is not None and model.is_file():
        return model
    if model is not None:
        raise WrongCallError(
            f"replay: there is no file '{model}'; --model is the compiled model that the service has, DATA/models/NAME/VERSION.clkm (one that is "
            "compiled again is another program)"
        )
    if data is None:
        raise WrongCallError(
            "replay: no model; name the service's data folder with --data, or a compiled model with --model"
        )
    for suffix in KINDS.values():
        path = data / "models" / manifest.model / f"{manifest.version}{suffix}"
        if path.is_file():
            return path
    raise FailureError(
        f"{data} has no version {manifest.version} of model '{manifest.model}', which the file is about; name the compiled model with --model"
    )


def _audit_key(path: Path | None, data: Path | None) -> AuditKey:
    if path is None and data is None:
        raise WrongCallError(
            "replay: no audit key; name the service's data folder with --data, or the key with --audit-key. Answers are re-randomised, and "
            "without that key nothing can be compared: a digest of the words before would let a client check guesses at the model's weights"
        )
    return load_audit_key(path if path is not None else Path(str(data)) / AUDIT_KEY_FILE)


def _keys_object(file: AuditFile, path: Path | None, data: Path | None) -> bytes:
    """Returns the evaluation keys by their digest: those of the file, those named, or those that the service keeps."""
    expected = file.manifest.keys
    if path is not None:
        keys = path.read_bytes()
        if AuditObject.of(keys) != expected:
            raise FailureError(
                f"{path}: other evaluation keys than those that the answer was computed with; SHA-256 {expected.sha256} is wanted"
            )
        return keys
    if file.manifest.has_keys:
        return file.keys()
    stored = None if data is None else _stored_keys(data / "objects" / "keys", file)
    if stored is None:
        where = (
            "name them with --keys" if data is None else f"{data} does not have them (any more); name them with --keys"
        )
        raise FailureError(f"{file.path} has no evaluation keys, only their SHA-256 {expected.sha256}; {where}")
    return stored


def _stored_keys(folder: Path, file: AuditFile) -> bytes | None:
    """Finds keys by digest among a service's files with the request's key id, which their first bytes tell."""
    expected = file.manifest.keys
    request = file.request(0)
    key_id = _key_id(request, len(request), levelled.Kind.SEEDED_CIPHERTEXTS)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            if path.stat().st_size != expected.size:
                continue
            with path.open("rb") as stream:
                start = stream.read(wire.PREFIX_BYTES)
                if _key_id(start, expected.size, levelled.Kind.EVALUATION_KEYS) != key_id:
                    continue
                stream.seek(0)
                data = stream.read()
        except (FheError, FileNotFoundError):  # something else; deleted meanwhile
            continue
        if hashlib.sha256(data).hexdigest() == expected.sha256:
            return data
    return None


def _key_id(start: bytes, size: int, kind: levelled.Kind) -> bytes | None:
    """Returns the key id of an object that begins so. Args: kind: of an object of levelled arithmetic."""
    if start.startswith(levelled.MAGIC):
        return levelled.header_of(start, kind).key_id
    return wire.peek(start, size).key_id


def _differences(replayed: list[Replayed]) -> list[str]:
    return [
        f"answer {i + 1} differs: {each.difference}" for i, each in enumerate(replayed) if each.difference is not None
    ]


def _record(file: AuditFile, parameter_set: str, replayed: list[Replayed]) -> dict[str, Any]:
    manifest = file.manifest
    same = not _differences(replayed)
    exact = all(each.is_exact for each in replayed)
    return {
        "result": EXACT
        if exact
        else "the same ciphertexts; headers differ in the last digits of the noise"
        if same
        else "different",
        "equal": same,
        "model": manifest.model,
        "version": manifest.version,
        "service": manifest.service,
        "time": manifest.time,
        "program": manifest.program,
        "parameter_set": parameter_set,
        "keys_sha256": manifest.keys.sha256,
        "request_sha256": _one_or_all([request.sha256 for request, _ in manifest.exchanges]),
        "answer_sha256": _one_or_all([answer.sha256 for _, answer in manifest.exchanges]),
        "sha256": _one_or_all([each.sha256 for each in replayed]),
        "audit_key": manifest.audit_key,
        "samples": sum(each.samples for each in replayed),
    }


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values
