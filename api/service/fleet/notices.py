"""Messages among the processes of a fleet: requests as rows and how they end; notices, which may be lost with their connection."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.database.connection import Database
from cloakwork.api.engine.messages import Done, End, Failed
from cloakwork.api.service.jobs.store import JobProgress

WORK: Final = "cloakwork_work"  # something waits, for workers
DROPPED: Final = "cloakwork_dropped"  # the id of a call or job that nobody wants any more, for workers
JOBS: Final = "cloakwork_jobs"  # progress and changes of jobs, for web processes
_LOOK_SECONDS: Final = 5.0  # whether the connection still is one
_RETRY_SECONDS: Final = (0.1, 0.5, 1.0, 3.0)
Heard = Callable[[str], None]
_log = logging.getLogger("cloakwork.fleet")


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
        return cls(**{each.name: row._mapping[each.name] for each in fields(cls)})


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


@dataclass(frozen=True)
class JobNotice:
    """A job's progress at a node, or a change of its state."""

    node: str
    job: str
    progress: JobProgress | None

    def to_text(self) -> str:
        progress = () if self.progress is None else (self.progress.done, self.progress.total, self.progress.eta_seconds)
        return json.dumps([self.node, self.job, *progress])

    @classmethod
    def from_text(cls, text: str) -> JobNotice:
        node, job, *progress = json.loads(text)
        return cls(node, job, JobProgress(*progress) if progress else None)


def answers(node: str) -> str:
    """Returns the channel of a web process: ids of calls that have ended."""
    return f"cloakwork_answers_{node}"


async def notify(connection: AsyncConnection, channel: str, payload: str = "") -> None:
    """Sends a notice when the transaction is committed."""
    await connection.execute(text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": payload})


class Notices:
    """One connection, made again when it breaks; `missed` is called each time, because notices may have been."""

    def __init__(self, database: Database, channels: dict[str, Heard], missed: Callable[[], None]) -> None:
        self._database, self._channels, self._missed = database, channels, missed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name="notices")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                async with self._database.listening() as connection:
                    for channel, heard in self._channels.items():
                        await connection.add_listener(channel, lambda _c, _p, _n, payload, heard=heard: heard(payload))
                    failures = 0
                    self._missed()
                    while True:
                        await asyncio.sleep(_LOOK_SECONDS)
                        await connection.fetchval("SELECT 1", timeout=_LOOK_SECONDS)
            except Exception as error:
                if not failures:
                    _log.warning("notices of the database are lost until it answers (%s)", type(error).__name__)
                await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
                failures += 1
