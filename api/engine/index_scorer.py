"""Requests to indices of nearest neighbours."""

from __future__ import annotations

import time

from cloakwork.api.engine.requests import ModelPlace, Outcome, Progress, Request
from cloakwork.api.engine.residency import Residency, one_device
from cloakwork.api.errors import UnavailableError
from cloakwork.fhe_core.levelled.ciphertexts import SeededLevelledCiphertexts
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import load_index
from cloakwork.models.neighbours.prepared import PreparedTable


class IndexScorer:
    """A table is prepared once for each device, for the keys of all clients; the index itself is not kept."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency

    def read(self, request: Request) -> SeededLevelledCiphertexts:
        return SeededLevelledCiphertexts.from_bytes(request.body)

    def is_large(self, request: Request, threads: int) -> bool:
        return True

    def answer(
        self, request: Request, query: SeededLevelledCiphertexts, device: str, threads: int, progress: Progress | None
    ) -> Outcome:
        def prepare() -> PreparedTable:
            return _index(request.model).prepared(threads, one_device(device), progress)

        table, keys = self._residency.table_and_key(request.model.digest, prepare, request.key, device, threads)
        start = time.perf_counter()
        (answer,) = table.score_all(keys, [query], threads, progress)
        return Outcome(answer.to_bytes(), time.perf_counter() - start, device)


def _index(place: ModelPlace) -> NeighbourIndex:
    try:
        return load_index(place.path)
    except CompileError as error:  # it was read when it was described
        raise UnavailableError(f"the stored index is damaged; tell the operator ({type(error).__name__})") from error
