"""Events of jobs, for those who watch them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class JobProgress:
    done: int
    total: int
    eta_seconds: float | None


class JobEvents:
    """Latest progress of running jobs in this process, and a bell for each watcher."""

    def __init__(self) -> None:
        self._progress: dict[str, JobProgress] = {}
        self._bells: dict[str, set[asyncio.Event]] = defaultdict(set)

    def progress(self, job: str) -> JobProgress | None:
        return self._progress.get(job)

    def heard(self, job: str, progress: JobProgress | None, *, over: bool = False) -> None:
        """Handles progress of a job, here or at another process, or a change of its state in the database."""
        if progress is not None:
            self._progress[job] = progress
        elif over:
            self._progress.pop(job, None)
        self._ring(job)

    @contextmanager
    def watch(self, job: str) -> Iterator[asyncio.Event]:
        bell = asyncio.Event()
        self._bells[job].add(bell)
        try:
            yield bell
        finally:
            self._bells[job].discard(bell)
            if not self._bells[job]:
                del self._bells[job]

    def _ring(self, job: str) -> None:
        for bell in self._bells.get(job, ()):
            bell.set()
