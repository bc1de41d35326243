"""Runs requests: bytes of ciphertexts in, bytes of ciphertexts out."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cloakwork.api.engine.batch_scorer import BatchRequestScorer
from cloakwork.api.engine.devices import run_spread, worker_count
from cloakwork.api.engine.index_scorer import IndexScorer
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.engine.program_scorer import ProgramScorer
from cloakwork.api.engine.requests import Outcome, Progress, RunRequest, Scorer
from cloakwork.api.engine.residency import Residency
from cloakwork.fhe_core.session.evaluation_keys import device_ordinals
from cloakwork.models.audit.audit_key import AuditKey


class Runner:
    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        device_ordinals(options.device)  # DeviceError for a name that is none
        self.workers = worker_count(options.device, options.threads)
        self.spread = run_spread(options.device, options.threads)
        self.residency = Residency(options.device, options.memory_key_bytes, options.device_key_bytes)
        self._programs = ProgramScorer(self.residency, options.program_bytes)
        self._scorers: dict[str, Scorer[Any]] = {
            "program": self._programs,
            "index": IndexScorer(self.residency),
            "batch": BatchRequestScorer(self.residency, self._programs),
        }
        self._active = 0
        self._lock = threading.Lock()

    def take_audit_key(self, key: AuditKey) -> None:
        self._programs.audit_key = key

    def read(self, request: RunRequest) -> Any:
        """Reads the ciphertexts of a request, for `run`."""
        return self._scorers[request.model.kind].read(request)

    def run(self, requests: Sequence[RunRequest], queries: Sequence[Any], progress: Progress | None) -> list[Outcome]:
        """Runs requests of one key to one model, as one. An error is that of them all."""
        model = requests[0].model
        scorer, samples = self._scorers[model.kind], sum(request.samples for request in requests)
        with self._begun() as alone:
            threads = self._threads(alone and scorer.is_large(model, samples, self._options.threads))
            return scorer.answer(requests, queries, threads, progress)

    @contextmanager
    def _begun(self) -> Iterator[bool]:
        """Whether nothing else runs."""
        with self._lock:
            alone = self._active == 0
            self._active += 1
        try:
            yield alone
        finally:
            with self._lock:
                self._active -= 1

    def _threads(self, every: bool) -> int:
        """Returns all threads for a large run on an idle machine, this run's share otherwise."""
        return self._options.threads if every else max(1, self._options.threads // self.workers)
