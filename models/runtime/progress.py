"""Progress of a long run: bootstraps done, of how many."""

from __future__ import annotations

import threading

from cloakwork.fhe_core.words import Progress


class BootstrapCount:
    """One progress(done, total) of the bootstraps of a run, on one device or several at once."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._behind: dict[int, int] = {}  # of the batches that each device has behind it
        self._done: dict[int, int] = {}  # with the present one
        self._lock = threading.Lock()

    def of(self, device: int, batch: int) -> Progress:
        """Returns a callback for the next batch of a device, of which the engine counts in units of its own."""
        if self._progress is None:
            return None
        before = self._behind.get(device, 0)
        self._behind[device] = before + batch

        def report(part: int, whole: int) -> bool:
            assert self._progress is not None
            with self._lock:
                self._done[device] = before + part * batch // whole
                return self._progress(sum(self._done.values()), self._total) is not False

        return report
