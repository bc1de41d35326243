"""Computes the answers of a model for batches in an audit file again; nothing of them is random."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from cloakwork.fhe_core.levelled.ciphertexts import SeededLevelledCiphertexts, require_same_key
from cloakwork.fhe_core.levelled.several import joined_bytes, split_bytes
from cloakwork.fhe_core.levelled.wire import Kind
from cloakwork.fhe_core.words import Progress
from cloakwork.models.audit.audit_file import AuditFile
from cloakwork.models.audit.replay import Replayed
from cloakwork.models.batches.scorer import BatchScorer


def replay_batch(
    file: AuditFile, scorer: BatchScorer, key_ids: Sequence[bytes], progress: Progress = None
) -> Iterator[Replayed]:
    """Yields each answer once more.

    Args:
        key_ids: of the file's evaluation keys, for each plaintext modulus.

    Raises:
        KeyMismatchError, SerializationError, ShapeError: a request of another key or set, or none.
    """
    for number in range(len(file.manifest.exchanges)):
        parts = split_bytes(file.request(number), Kind.SEEDED_CIPHERTEXTS)
        queries = [SeededLevelledCiphertexts.from_bytes(each) for each in parts]
        for query, key_id in zip(queries, key_ids, strict=False):
            require_same_key(key_id, query.key_id)
        answer, recorded = (
            joined_bytes([each.to_bytes() for each in scorer.score(queries, progress)]),
            file.answer(number),
        )
        different = None if answer == recorded else "its ciphertexts are other ones, or their header"
        yield Replayed(1, hashlib.sha256(answer).hexdigest(), answer == recorded, different)
