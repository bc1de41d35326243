"""The ledger of a batch: the outcome of each input, and the report."""

from __future__ import annotations

import hashlib
from typing import Any, Final

SHOWN_FAILURES: Final = 1000


class Ledger:
    """Outcomes by the name of the input: SHA-256 of its results in order, and of failures the reason, with the row where one of a table failed."""

    def __init__(self) -> None:
        self._digests: dict[str, list[bytes]] = {}
        self._failures: dict[tuple[str, int], str] = {}
        self.samples = 0
        self.skipped = 0  # samples whose results were there

    def done(self, name: str, samples: int, digests: list[bytes], failures: list[tuple[int, str]]) -> None:
        self._digests[name] = digests
        self.samples += samples
        for row, reason in failures:
            self._failures[name, row] = reason

    def failed(self, name: str, reason: str) -> None:
        self._failures.setdefault((name, -1), reason)

    @property
    def files(self) -> int:
        """Inputs with a result."""
        return len(self._digests)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Failures in order of names and rows."""
        every = sorted(self._failures.items())
        return [
            {"input": name, "reason": reason} if row < 0 else {"input": name, "row": row, "reason": reason}
            for (name, row), reason in every
        ]

    def sha256(self) -> str:
        """Returns SHA-256 of the SHA-256 of every result, in order of inputs' names and rows; what failed is left out."""
        whole = hashlib.sha256()
        for name in sorted(self._digests):
            for digest in self._digests[name]:
                whole.update(digest)
        return whole.hexdigest()

    def record(self) -> dict[str, Any]:
        failures = self.failures
        return {
            "samples": self.samples,
            "failed": len(failures),
            "skipped": self.skipped,
            "files": self.files,
            "sha256": self.sha256(),
            "failures": failures[:SHOWN_FAILURES],
        }
