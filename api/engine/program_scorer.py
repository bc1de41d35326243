"""Requests to compiled programs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from cloakwork.api.engine.messages import ModelPlace
from cloakwork.api.engine.requests import Outcome, Progress, RunRequest, shares
from cloakwork.api.engine.residency import LeastRecentlyUsed, Residency
from cloakwork.api.errors import DamagedModelError, UnavailableError
from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
from cloakwork.models.audit.audit_key import AuditKey, Transcript
from cloakwork.models.batches.batch_file import embedded_program
from cloakwork.models.batches.batch_format import MAGIC
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import program_from_bytes

_PARALLEL_BOOTSTRAPS: Final = 4  # per thread; with fewer, more threads cost more than they bring


class ProgramScorer:
    def __init__(self, residency: Residency, program_bytes: int) -> None:
        self._residency = residency
        self._programs: LeastRecentlyUsed[Program] = LeastRecentlyUsed(program_bytes, residency.forget_program)
        self.audit_key: AuditKey | None = None  # the web process says it before anything is run

    def read(self, request: RunRequest) -> SeededPackedCiphertexts:
        program = self._program(request.model)
        return SeededPackedCiphertexts.from_bytes(request.body, parameters=program.parameters)

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        return self._program(model).bootstraps * samples >= _PARALLEL_BOOTSTRAPS * threads

    def answer(
        self,
        requests: Sequence[RunRequest],
        queries: Sequence[SeededPackedCiphertexts],
        threads: int,
        progress: Progress | None,
    ) -> list[Outcome]:
        model = requests[0].model
        program = self._program(model)
        key = self._residency.expanded(requests[0].key)
        seeds = [self._seed(program, key.sha256, request) for request in requests]
        with key.runtime(model.digest, program, threads) as runtime:
            start = time.perf_counter()
            answers = runtime.answer_parts(queries, progress, seeds=seeds)
            seconds = shares(requests, time.perf_counter() - start)
        return [
            Outcome(answer.to_bytes(), share, self._residency.device)
            for answer, share in zip(answers, seconds, strict=True)
        ]

    def _seed(self, program: Program, keys_sha256: bytes, request: RunRequest) -> Callable[[Ciphertexts], bytes]:
        """From the request's own bytes: its answer is the same whatever was computed beside it."""
        assert self.audit_key is not None
        transcript = Transcript(program.digest, keys_sha256, hashlib.sha256(request.body).digest())
        return partial(self.audit_key.seed, transcript)

    def _program(self, place: ModelPlace) -> Program:
        return self._programs.get(place.digest, lambda: _load(place), lambda program: 9 * place.path.stat().st_size)


def _load(place: ModelPlace) -> Program:
    """Raises:
    DamagedModelError: the file is gone, or has other bytes than when it was described.
    UnavailableError: it does not fit memory.
    """
    try:
        data = place.path.read_bytes()
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != place.digest:
        raise DamagedModelError("the model's file is damaged; its operator has to repair or remove it", retry_after=30)
    try:
        return program_from_bytes(embedded_program(data) if data.startswith(MAGIC) else data)
    except MemoryError:
        raise UnavailableError(
            f"the engine has not enough memory to read this model of {len(data) >> 20} MiB; its operator has to give the service more",
            retry_after=60,
        ) from None
