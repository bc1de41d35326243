"""Requests whose clients wait, as rows that any worker takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    id: str
    tenant: str
    web: str
    model: str
    version: str
    program_digest: str
    evaluation_key: str
    samples: int
    seconds: float
    input: bytes | None = None  # None: in the storage, under `input_name`
    attempts: int = 0

    @property
    def input_name(self) -> str:
        return f"inputs/{self.id}"

    def result_name(self, worker: str) -> str:
        return result_name(self.id, worker)

    @classmethod
    def of_row(cls, row: Any) -> Call:
        """Returns a row of the table `calls`."""
        return cls(
            row.id,
            row.tenant,
            row.web,
            row.model,
            row.version,
            row.program_digest,
            row.evaluation_key,
            row.samples,
            row.seconds,
            row.input,
            row.attempts,
        )


def result_name(call: str, worker: str) -> str:
    """Names the object of a large answer in the storage."""
    return f"results/{call}-{worker[:8]}"
