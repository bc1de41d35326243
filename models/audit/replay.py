"""Computes the answers of an audit file again, from evaluation keys and ciphertexts, and compares them byte for byte."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cloakwork.fhe_core import wire
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.errors import FheError, KeyMismatchError
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.fhe_core.words import Progress
from cloakwork.models.audit.audit_file import AuditFile
from cloakwork.models.audit.audit_key import AuditKey, Transcript
from cloakwork.models.program import Program
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.runtime import Runtime

_NORM_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Replayed:
    """One exchange, computed again."""

    samples: int
    sha256: str
    is_exact: bool  # the same, byte for byte
    difference: str | None  # in words; None: the same ciphertexts


def check_headers(file: AuditFile, keys: wire.Header, program: Program) -> list[wire.Header]:
    """Checks that keys, requests and answers say what the manifest says: program, parameter set, key. Their requests' headers.

    Raises:
        KeyMismatchError: which of them is of another program, set or key.
    """
    digest = bytes.fromhex(file.manifest.program)
    if program.digest != digest:
        raise KeyMismatchError(
            f"audit: another program: the file is about {digest.hex()[:16]}, this model is {program.digest.hex()[:16]}, another version or "
            "another model"
        )
    if keys.kind is not wire.Kind.EVALUATION_KEYS or keys.parameters != program.parameters:
        raise KeyMismatchError(
            f"audit: expected evaluation keys of parameter set '{program.parameters.name}', got {keys.kind.label} of "
            f"'{keys.parameters.name}'"
        )
    requests = []
    for number in range(len(file.manifest.exchanges)):
        for article, what, data in (("a", "request", file.request(number)), ("an", "answer", file.answer(number))):
            header = wire.peek(data)
            name = f"audit: {what} {number + 1}"
            check_purpose(header.purpose, digest, name, "the file was put together from several")
            if header.parameters != program.parameters or header.key_id != keys.key_id:
                raise KeyMismatchError(f"{name}: it belongs to another key than the evaluation keys")
            if (header.kind is wire.Kind.PACKED_CIPHERTEXTS) != (what == "request"):
                raise KeyMismatchError(f"{name}: expected {article} {what}, got {header.kind.label}")
            if what == "request":
                requests.append(header)
    return requests


def replay(file: AuditFile, runtime: Runtime, audit_key: AuditKey, progress: Progress = None) -> Iterator[Replayed]:
    """Yields each answer once more; `check_headers` comes first.

    Raises:
        KeyMismatchError: the answers were made with another audit key.
    """
    manifest = file.manifest
    if audit_key.id != manifest.audit_key:
        raise KeyMismatchError(
            f"audit: another audit key: the answers were made with {manifest.audit_key}, this is {audit_key.id}; take that of the service "
            "that gave them"
        )
    for number, (request, _) in enumerate(manifest.exchanges):
        x = SeededPackedCiphertexts.from_bytes(file.request(number), parameters=runtime.program.parameters)
        transcript = Transcript(
            runtime.program.digest, bytes.fromhex(manifest.keys.sha256), bytes.fromhex(request.sha256)
        )
        answer = runtime.answer(x, progress, seed=partial(audit_key.seed, transcript)).to_bytes()
        recorded = file.answer(number)
        yield Replayed(
            x.shape[0], hashlib.sha256(answer).hexdigest(), answer == recorded, _difference(answer, recorded)
        )


def _difference(computed: bytes, recorded: bytes) -> str | None:
    if computed == recorded:
        return None
    try:
        ours, theirs = load_results(computed), load_results(recorded)
    except FheError as error:
        return f"it is no sound object: {error}"
    if ours.shape != theirs.shape:
        return f"expected ciphertexts of shape {list(ours.shape)}, it has {list(theirs.shape)}"
    different = int(np.any(ours.words != theirs.words, axis=-1).sum())
    if not different:
        same = _is_same_header(wire.peek(computed), wire.peek(recorded))
        return None if same else "its ciphertexts are the same, its header is another one"
    return f"{different} of its {ours.size} ciphertexts are other ones"


def _is_same_header(ours: wire.Header, theirs: wire.Header) -> bool:
    """But for the last digits of the noise, a square root of sums that machines may round each in its way."""
    is_close = math.isclose(ours.weight_norm, theirs.weight_norm, rel_tol=_NORM_TOLERANCE)
    return is_close and replace(theirs, weight_norm=ours.weight_norm) == ours
