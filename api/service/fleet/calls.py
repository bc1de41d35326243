"""Requests whose clients wait, as rows that any worker takes, and how they end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cloakwork.api.engine.messages import Done, End, Failed


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


def outcome_text(end: End) -> str:
    """Writes the column `outcome`: what a web process hears of an end beside the answer. A damaged key was looked after by the worker."""
    if isinstance(end, Failed):
        facts: dict[str, object] = {"code": end.code, "http_status": end.http_status, "message": end.message}
        return json.dumps({"event": "failed", **facts, **({"model_damaged": True} if end.model_damaged else {})})
    facts = {"seconds": end.seconds, "device": end.device, "bytes": end.answer_bytes, "busy_seconds": end.busy_seconds}
    facts |= {"took_seconds": end.took_seconds, "together": end.together}
    return json.dumps({"event": "done", **facts, **({"sha256": end.sha256} if end.sha256 else {})})


def end_of_row(row: Any) -> End:
    """Reads how the call of a row ended. Workers of an earlier release may say less."""
    facts, worker = json.loads(row.outcome), row.worker
    if facts["event"] == "failed":
        code, status, text = facts["code"], facts["http_status"], facts["message"]
        return Failed(row.id, code, status, text, model_damaged=facts.get("model_damaged", False), worker=worker)
    return Done(
        row.id,
        facts["seconds"],
        facts["device"],
        facts["bytes"],
        facts.get("sha256"),
        facts.get("busy_seconds"),
        facts.get("took_seconds"),
        facts.get("together", 1),
        worker,
        row.output or b"",
    )
