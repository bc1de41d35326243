"""Runs requests: bytes of ciphertexts in, bytes of ciphertexts out."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cloakwork.api.engine.devices import chosen_devices, worker_count
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.engine.residency import KeyPlace, KeyResidency, LeastRecentlyUsed
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.models.audit.audit_key import AuditKey, Transcript
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import load_program

Progress = Callable[[int, int], bool]
Placed = Callable[[str], None]
"""Told the device of a run when it begins there."""

_PROGRAM_BYTES = 1 << 30
_PARALLEL_BOOTSTRAPS = 4  # per thread; with fewer, more threads cost more than they bring


@dataclass(frozen=True)
class Request:
    """A program and a key, by name and file, and one object of seeded packed ciphertexts."""

    program_digest: str
    program_path: Path
    key: KeyPlace
    samples: int
    body: bytes


@dataclass(frozen=True)
class Outcome:
    body: bytes
    seconds: float  # of computing alone, without loading keys
    device: str


class Runner:
    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self.devices = chosen_devices(options.devices)
        self.workers = worker_count(self.devices, options.threads)
        self.keys = KeyResidency(self.devices, options.memory_key_bytes, options.device_key_bytes)
        self._programs: LeastRecentlyUsed[Program] = LeastRecentlyUsed(_PROGRAM_BYTES)
        self.audit_key: AuditKey | None = None  # the web process says it before anything is run
        self._active: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self, request: Request, progress: Progress | None, placed: Placed | None = None) -> Outcome:
        assert self.audit_key is not None
        program = self._program(request)
        # Read before the key is expanded: bad bytes cost nothing.
        ciphertexts = SeededPackedCiphertexts.from_bytes(request.body, parameters=program.parameters)
        with self._device(request.key.name) as (device, alone):
            if placed is not None:
                placed(device)
            key = self.keys.expanded(request.key, device)
            transcript = Transcript(program.digest, key.sha256, hashlib.sha256(request.body).digest())
            threads = self._threads(program.bootstraps * request.samples, alone)
            with key.runtime(request.program_digest, program, threads) as runtime:
                start = time.perf_counter()
                result = runtime.answer(ciphertexts, progress, seed=partial(self.audit_key.seed, transcript))
                seconds = time.perf_counter() - start
        return Outcome(result.to_bytes(), seconds, device)

    def _program(self, request: Request) -> Program:
        path = request.program_path
        return self._programs.get(
            request.program_digest, lambda: load_program(path), lambda program: 9 * path.stat().st_size
        )

    @contextmanager
    def _device(self, key: str) -> Iterator[tuple[str, bool]]:
        """The least busy device, among equals one that holds the key; and whether nothing else runs on it."""
        resident = self.keys.devices_with(key)
        with self._lock:
            device = min(self.devices, key=lambda name: (self._active[name], name not in resident))
            alone = self._active[device] == 0
            self._active[device] += 1
        try:
            yield device, alone
        finally:
            with self._lock:
                self._active[device] -= 1

    def _threads(self, bootstraps: int, alone: bool) -> int:
        """All threads for a large run on an idle machine, this run's share otherwise."""
        share = max(1, self._options.threads // self.workers)
        return self._options.threads if alone and bootstraps >= _PARALLEL_BOOTSTRAPS * self._options.threads else share
