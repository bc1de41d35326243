"""Computes the answers of an index in an audit file again; `cloakwork.models.audit.replay` does those of programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cloakwork.fhe_core.errors import FheError, KeyMismatchError
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    SeededLevelledCiphertexts,
    require_same_key,
)
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.words import Progress
from cloakwork.models.audit.audit_file import AuditFile
from cloakwork.models.audit.replay import Replayed
from cloakwork.models.neighbours.scorer import NeighbourScorer

_NOISE_TOLERANCE = 1e-9


def require_index(file: AuditFile, digest: str) -> None:
    """Requires the index of an audit. Args: digest: SHA-256 of the index's file. Raises: KeyMismatchError: the audit is about another one."""
    if file.manifest.program != digest:
        raise KeyMismatchError(
            f"audit: another index or model: the file is about {file.manifest.program[:16]}, this is {digest[:16]}, another version or another model"
        )


def replay_index(
    file: AuditFile, scorer: NeighbourScorer, key_id: bytes, progress: Progress = None
) -> Iterator[Replayed]:
    """Yields each answer once more; nothing of them is random.

    Args:
        scorer: with the file's evaluation keys, which are `key_id`'s.

    Raises:
        KeyMismatchError, SerializationError: a request of another key or set, or none.
    """
    for number in range(len(file.manifest.exchanges)):
        query = SeededLevelledCiphertexts.from_bytes(file.request(number))
        require_same_key(key_id, query.key_id)
        answer, recorded = scorer.score(query, progress).to_bytes(), file.answer(number)
        yield Replayed(1, hashlib.sha256(answer).hexdigest(), answer == recorded, _difference(answer, recorded))


def _difference(computed: bytes, recorded: bytes) -> str | None:
    if computed == recorded:
        return None
    ours = LevelledCiphertexts.from_bytes(computed)
    try:
        theirs = LevelledCiphertexts.from_bytes(recorded)
    except FheError as error:
        return f"it is no sound object: {error}"
    if ours.words.shape != theirs.words.shape:
        return f"expected {len(ours)} ciphertexts of level {ours.level}, it has {len(theirs)} of level {theirs.level}"
    different = int((ours.words != theirs.words).any(axis=(1, 2, 3)).sum())
    if different:
        return f"{different} of its {len(ours)} ciphertexts are other ones"
    same = replace(theirs, noise=ours.noise).to_bytes() == computed and _is_close(ours.noise, theirs.noise)
    return None if same else "its ciphertexts are the same, its header is another one"


def _is_close(ours: Noise, theirs: Noise) -> bool:
    """But for the last digits, which machines may round each in its way."""
    numbers = [(each.bound, *each.variances) for each in (ours, theirs)]
    return len(numbers[0]) == len(numbers[1]) and bool(
        np.allclose(numbers[0], numbers[1], rtol=_NOISE_TOLERANCE, atol=0.0)
    )
