"""Runs requests: bytes of ciphertexts in, bytes of ciphertexts out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cloakwork.api.engine.devices import chosen_devices, run_spread, worker_count
from cloakwork.api.engine.index_scorer import IndexScorer
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.engine.program_scorer import ProgramScorer
from cloakwork.api.engine.requests import Outcome, Progress, Request, Scorer
from cloakwork.api.engine.residency import Residency
from cloakwork.models.audit.audit_key import AuditKey

Placed = Callable[[str], None]
"""Told the device of a run when it begins there."""


class Runner:
    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self.devices = chosen_devices(options.devices)
        self.workers = worker_count(self.devices, options.threads)
        self.spread = run_spread(self.devices, options.threads)
        self.residency = Residency(self.devices, options.memory_key_bytes, options.device_key_bytes)
        self._programs = ProgramScorer(self.residency)
        self._scorers: dict[str, Scorer[Any]] = {"program": self._programs, "index": IndexScorer(self.residency)}
        self._active: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take_audit_key(self, key: AuditKey) -> None:
        self._programs.audit_key = key

    def read(self, request: Request) -> Any:
        """Its ciphertexts, for `run`."""
        return self._scorers[request.model.kind].read(request)

    def run(
        self,
        requests: Sequence[Request],
        queries: Sequence[Any],
        progress: Progress | None,
        placed: Placed | None = None,
    ) -> list[Outcome]:
        """Requests of one key to one model, as one. An error is that of them all."""
        model, key = requests[0].model, requests[0].key
        scorer, samples = self._scorers[model.kind], sum(request.samples for request in requests)
        with self._device(key.name) as (device, alone):
            if placed is not None:
                placed(device)
            threads = self._threads(alone and scorer.is_large(model, samples, self._options.threads))
            return scorer.answer(requests, queries, device, threads, progress)

    @contextmanager
    def _device(self, key: str) -> Iterator[tuple[str, bool]]:
        """The least busy device, among equals one that holds the key; and whether nothing else runs on it."""
        resident = self.residency.devices_with(key)
        with self._lock:
            device = min(self.devices, key=lambda name: (self._active[name], name not in resident))
            alone = self._active[device] == 0
            self._active[device] += 1
        try:
            yield device, alone
        finally:
            with self._lock:
                self._active[device] -= 1

    def _threads(self, every: bool) -> int:
        """All threads for a large run on an idle machine, this run's share otherwise."""
        return self._options.threads if every else max(1, self._options.threads // self.workers)
