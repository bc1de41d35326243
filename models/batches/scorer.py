"""The server's half of batches: scores of encrypted samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import ShapeError
from cloakwork.fhe_core.levelled.ciphertexts import (
    ExpandedLevelledKeys,
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
    require_same_key,
)
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.neighbours.inner_products import InnerProductTable
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.several import joined_bytes, split_bytes
from cloakwork.fhe_core.levelled.wire import Kind
from cloakwork.fhe_core.words import Progress, report
from cloakwork.models.arrays import Indices
from cloakwork.models.audit.audit_file import AuditFile
from cloakwork.models.audit.replay import Replayed
from cloakwork.models.batches.client import BatchClient, Packing, Queries
from cloakwork.models.batches.formula import Formula
from cloakwork.models.errors import CompileError


class BatchScorer:
    """Scores encrypted batches; with keys those of one client.

    Args:
        keys: of `BatchClient.evaluation_keys`, or expanded on the device; none where the model is sums alone.
        threads: of the CPU, for products and divisions; sums are NumPy's, which has threads of its own.
        tables: of `prepared_tables` there; None: they are made.

    Raises:
        CompileError: another number of keys than the model wants.
        KeyMismatchError: keys of another set or plaintext modulus.
    """

    def __init__(
        self,
        client: BatchClient,
        formula: Formula,
        keys: Sequence[LevelledEvaluationKeys | ExpandedLevelledKeys] = (),
        threads: int = 1,
        device: str = "cpu",
        tables: Sequence[InnerProductTable] | None = None,
    ) -> None:
        self._client, self._formula = client, formula
        key_count = len(client.parameters) if client.products or client.packing == "query" else 0
        if len(keys) != key_count:
            raise CompileError(
                f"keys: expected evaluation keys for each of {key_count} plaintext moduli, got {len(keys)}"
            )
        self._evaluators = [
            LevelledEvaluator(each, keys[i] if key_count else None, threads=threads, device=device)
            for i, each in enumerate(client.parameters)
        ]
        prepared = prepared_tables(client, formula, threads, device) if tables is None else tables
        self._tables = [table.used_by(each) for table, each in zip(prepared, self._evaluators, strict=bool(prepared))]

    def score(self, queries: Queries, progress: Progress = None) -> list[LevelledCiphertexts]:
        """Returns the scores of one query's samples, a ciphertext for every output.

        Args:
            queries: of every plaintext modulus.
            progress: called with plaintext moduli done and in all.

        Raises:
            ShapeError: another number of moduli or features, another level, ciphertexts that are not fresh.
            KeyMismatchError: of another set, plaintext modulus or key.
        """
        if len(queries) != len(self._evaluators):
            raise ShapeError(
                f"queries: expected one for each of {len(self._evaluators)} plaintext moduli, got {len(queries)}"
            )
        answers = []
        for i, query in enumerate(queries):
            answers.append(self._score(i, query))
            report(progress, i + 1, len(queries))
        return answers

    def _score(self, number: int, query: SeededLevelledCiphertexts | LevelledCiphertexts) -> LevelledCiphertexts:
        client, evaluator = self._client, self._evaluators[number]
        x = query.expand() if isinstance(query, SeededLevelledCiphertexts) else query
        count = 1 if client.packing == "query" else client.features
        if (len(x), x.level, x.scale) != (count, client.level, 1):
            raise ShapeError(
                f"query: expected {count} fresh ciphertexts of level {client.level}, got {len(x)} of level {x.level} and scale {x.scale}"
            )
        if self._tables:
            return self._tables[number].products(x).to_host()
        outputs = self._formula.run(evaluator, x, constants_of(evaluator.parameters, client.packing))
        return evaluator.modulus_switch(outputs, client.answer_level).to_host()


def prepared_tables(
    client: BatchClient, formula: Formula, threads: int = 1, device: str = "cpu"
) -> list[InnerProductTable]:
    """Prepares where queries are scored, for keys of any client: a table for each plaintext modulus, none if samples are packed otherwise."""
    if client.packing != "query":
        return []
    evaluators = (LevelledEvaluator(each, threads=threads, device=device) for each in client.parameters)
    return [
        InnerProductTable(each, formula.inner, formula.constant, level=client.level, answer_level=client.answer_level)
        for each in evaluators
    ]


def constants_of(parameters: LevelledParameters, packing: Packing) -> Callable[[NDArray[Any]], Indices]:
    """Returns polynomials [batch, N] that add numbers [batch] to every sample of a ciphertext."""

    def constants(numbers: NDArray[Any]) -> Indices:
        polynomials = np.zeros((len(numbers), parameters.polynomial_size), dtype=np.int64)
        small = numbers % parameters.plaintext_modulus  # Python's integers are beyond those of 64 bits
        polynomials[:, slice(None) if packing == "coefficients" else slice(1)] = small[:, None]
        return polynomials

    return constants


# Computes the answers of a model for batches in an audit file again; nothing of them is random.


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
