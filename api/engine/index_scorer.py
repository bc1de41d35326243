"""Requests to indices of nearest neighbours."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from cloakwork.api.engine.messages import ModelPlace
from cloakwork.api.engine.requests import Outcome, Progress, RunRequest, shares
from cloakwork.api.engine.residency import Residency, one_device
from cloakwork.api.errors import DamagedModelError
from cloakwork.fhe_core.levelled.ciphertexts import SeededLevelledCiphertexts
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import load_index
from cloakwork.models.neighbours.prepared import PreparedTable


class IndexScorer:
    """A table is prepared once for each device, for the keys of all clients; the index itself is not kept."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency

    def read(self, request: RunRequest) -> SeededLevelledCiphertexts:
        return SeededLevelledCiphertexts.from_bytes(request.body)

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        return True

    def answer(
        self,
        requests: Sequence[RunRequest],
        queries: Sequence[SeededLevelledCiphertexts],
        threads: int,
        progress: Progress | None,
    ) -> list[Outcome]:
        model, key = requests[0].model, requests[0].key

        def prepare() -> PreparedTable:
            return _index(model).prepared(threads, one_device(self._residency.device), progress)

        table, (keys,) = self._residency.table_and_keys(model.digest, prepare, key, threads)
        start = time.perf_counter()
        answers = table.score_all(keys, queries, threads, progress)
        seconds = shares(requests, time.perf_counter() - start)
        return [
            Outcome(answer.to_bytes(), share, self._residency.device)
            for answer, share in zip(answers, seconds, strict=True)
        ]


def _index(place: ModelPlace) -> NeighbourIndex:
    """Raises:
    DamagedModelError: the file is gone, or has other bytes than when it was described.
    """
    try:
        with place.path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == place.digest:
                return load_index(place.path)
    except (CompileError, FileNotFoundError):
        pass
    raise DamagedModelError("the stored index is damaged; its operator has to repair or remove it", retry_after=30)
