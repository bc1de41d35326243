"""Requests to compiled programs."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from typing import Final

from cloakwork.api.engine.requests import ModelPlace, Outcome, Progress, Request
from cloakwork.api.engine.residency import LeastRecentlyUsed, Residency
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.models.audit.audit_key import AuditKey, Transcript
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import load_program

_PROGRAM_BYTES: Final = 1 << 30
_PARALLEL_BOOTSTRAPS: Final = 4  # per thread; with fewer, more threads cost more than they bring


class ProgramScorer:
    def __init__(self, residency: Residency) -> None:
        self._residency = residency
        self._programs: LeastRecentlyUsed[Program] = LeastRecentlyUsed(_PROGRAM_BYTES)
        self.audit_key: AuditKey | None = None  # the web process says it before anything is run

    def read(self, request: Request) -> SeededPackedCiphertexts:
        program = self._program(request.model)
        return SeededPackedCiphertexts.from_bytes(request.body, parameters=program.parameters)

    def is_large(self, request: Request, threads: int) -> bool:
        return self._program(request.model).bootstraps * request.samples >= _PARALLEL_BOOTSTRAPS * threads

    def answer(
        self, request: Request, query: SeededPackedCiphertexts, device: str, threads: int, progress: Progress | None
    ) -> Outcome:
        assert self.audit_key is not None
        program = self._program(request.model)
        key = self._residency.expanded(request.key, device)
        transcript = Transcript(program.digest, key.sha256, hashlib.sha256(request.body).digest())
        with key.runtime(request.model.digest, program, threads) as runtime:
            start = time.perf_counter()
            result = runtime.answer(query, progress, seed=partial(self.audit_key.seed, transcript))
            seconds = time.perf_counter() - start
        return Outcome(result.to_bytes(), seconds, device)

    def _program(self, place: ModelPlace) -> Program:
        return self._programs.get(
            place.digest, lambda: load_program(place.path), lambda program: 9 * place.path.stat().st_size
        )
