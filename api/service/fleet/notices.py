"""LISTEN and NOTIFY: what wakes a process. A notice may be lost with its connection; whoever waits for one looks at the database too."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.database.connection import Database
from cloakwork.api.service.jobs.events import JobProgress

WORK: Final = "cloakwork_work"  # something waits, for workers
DROPPED: Final = "cloakwork_dropped"  # the id of a call or job that nobody wants any more, for workers
JOBS: Final = "cloakwork_jobs"  # progress and changes of jobs, for web processes

_LOOK_SECONDS: Final = 5.0  # whether the connection still is one
_RETRY_SECONDS: Final = (0.1, 0.5, 1.0, 3.0)

Heard = Callable[[str], None]
_log = logging.getLogger("cloakwork.fleet")


@dataclass(frozen=True)
class JobNotice:
    """What happened to a job at a node: its progress, or a change of its state."""

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
