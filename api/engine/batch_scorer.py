"""Requests to models for batches."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cloakwork.api.engine.messages import ModelPlace
from cloakwork.api.engine.program_scorer import ProgramScorer
from cloakwork.api.engine.requests import Outcome, Progress, RunRequest
from cloakwork.api.engine.residency import Residency, one_device
from cloakwork.api.errors import DamagedModelError
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.inner_products import InnerProductTable
from cloakwork.fhe_core.levelled.several import joined_bytes, split_bytes
from cloakwork.models.batches.batch_file import batch_from_bytes
from cloakwork.models.batches.contents import BatchContents
from cloakwork.models.batches.scorer import BatchScorer, prepared_tables

Query = list[SeededLevelledCiphertexts]


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A model where it scores, for the keys of all clients."""

    contents: BatchContents
    tables: list[InnerProductTable]

    @property
    def nbytes(self) -> int:
        formula = self.contents.formula
        arrays = (formula.inner, formula.constant, formula.outer)
        return sum(each.nbytes for each in (*arrays, *self.tables) if each is not None)


class BatchRequestScorer:
    """Scores levelled queries; a model whose packing is a program of look-ups is left to `programs`."""

    def __init__(self, residency: Residency, programs: ProgramScorer) -> None:
        self._residency, self._programs = residency, programs

    def read(self, request: RunRequest) -> Any:
        if not request.body.startswith(wire.MAGIC):
            return self._programs.read(request)
        parts = split_bytes(request.body, wire.Kind.SEEDED_CIPHERTEXTS)
        return [SeededLevelledCiphertexts.from_bytes(each) for each in parts]

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        return True

    def answer(
        self, requests: Sequence[RunRequest], queries: Sequence[Any], threads: int, progress: Progress | None
    ) -> list[Outcome]:
        if not isinstance(queries[0], list):
            return self._programs.answer(requests, queries, threads, progress)
        model, device = requests[0].model, one_device(self._residency.device)

        def prepare() -> PreparedBatch:
            contents = _contents(model)
            return PreparedBatch(contents, prepared_tables(contents.client, contents.formula, threads, device))

        prepared, keys = self._residency.table_and_keys(model.digest, prepare, requests[0].key, threads)
        client, formula = prepared.contents.client, prepared.contents.formula
        used = keys if client.key_shapes.shapes[0].numbers else ()
        scorer = BatchScorer(client, formula, used, threads, device, prepared.tables)
        return [self._scored(scorer, query, progress) for query in queries]

    def _scored(self, scorer: BatchScorer, query: Query, progress: Progress | None) -> Outcome:
        start = time.perf_counter()
        answers = scorer.score(query, progress)
        body = joined_bytes([each.to_bytes() for each in answers])
        return Outcome(body, time.perf_counter() - start, self._residency.device)


def _contents(place: ModelPlace) -> BatchContents:
    """Raises:
    DamagedModelError: the file is gone, or has other bytes than when it was described.
    """
    try:
        data = place.path.read_bytes()
        if hashlib.sha256(data).hexdigest() == place.digest:
            return batch_from_bytes(data)
    except (FheError, FileNotFoundError):
        pass
    raise DamagedModelError("the stored model is damaged; its operator has to repair or remove it", retry_after=30)
