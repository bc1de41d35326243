"""What happens by itself: heartbeats, counters to the database, deadlines, retention, orphaned files and jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from cloakwork.api.service.clock import now
from cloakwork.api.service.job_store import JobStore
from cloakwork.api.service.jobs import Jobs
from cloakwork.api.service.keys import Keys
from cloakwork.api.service.storage import Storage
from cloakwork.api.service.uploads import Uploads
from cloakwork.api.service.usage import Usage
from cloakwork.api.settings import Settings

_COUNTERS_SECONDS: Final = 1.0
_DEADLINES_SECONDS: Final = 1.0
_HEARTBEATS: Final = 6  # in the time after which a silent service is dead
_LOST_SECONDS: Final = 30.0  # after which an accepted job that is nowhere is queued again
_ORPHAN_SECONDS: Final = 3600.0  # a file without a row that is older belongs to a request that was never accepted

_log = logging.getLogger("cloakwork.housekeeping")


class Housekeeping:
    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        jobs: Jobs,
        keys: Keys,
        uploads: Uploads,
        usage: Usage,
        storage: Storage,
    ) -> None:
        self._settings = settings
        self._store, self._jobs, self._keys = store, jobs, keys
        self._uploads, self._usage, self._storage = uploads, usage, storage
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """After a restart: every job that this service had accepted and not finished is queued again."""
        await self._store.heartbeat()
        for job in await self._store.own_unfinished():
            await self._jobs.resume(job)
        chores: tuple[tuple[Callable[[], Awaitable[None]], float], ...] = (
            (self._counters, _COUNTERS_SECONDS),
            (self._deadlines, _DEADLINES_SECONDS),
            (self._neighbours, self._settings.takeover_seconds / _HEARTBEATS),
            (self._retention, self._settings.retention_check_seconds),
        )
        self._tasks = [asyncio.create_task(_every(seconds, chore)) for chore, seconds in chores]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._counters()

    async def _counters(self) -> None:
        await self._usage.flush()
        await self._keys.flush_used()

    async def _deadlines(self) -> None:
        for job in await self._store.past_deadline():
            await self._jobs.expire(job)

    async def _neighbours(self) -> None:
        await self._store.heartbeat()
        lost = [job for job in await self._store.own_unfinished() if job.created_at < now() - _LOST_SECONDS]
        for job in lost:
            if not self._jobs.in_hand(job):  # the database failed when its end was to be recorded
                await self._jobs.resume(job)
        for job in await self._store.adopt(self._settings.takeover_seconds):
            _log.warning("job taken over from a service that is gone", extra={"job": job.id})
            await self._jobs.resume(job)

    async def _retention(self) -> None:
        for job in await self._store.past_retention(self._settings.result_retention_seconds):
            await self._jobs.forget(job)
        for key in await self._keys.expired(
            self._settings.key_retention_seconds, self._settings.upload_retention_seconds
        ):
            await self._uploads.discard(key)
        await self._orphans()

    async def _orphans(self) -> None:
        """Files of requests that ended between writing the file and writing the row, or between the end of a job and the end of its files."""
        needed: dict[str, Callable[[list[str]], Awaitable[set[str]]]] = {
            "inputs": self._store.unfinished,
            "results": self._store.known,
            "uploads": self._keys.known,
            "keys": self._keys.known,
        }
        for folder, ask in needed.items():
            old = [name for name in await self._storage.names(folder) if self._is_old(name)]
            owners = await ask([_owner(name) for name in old])
            for name in old:
                if _owner(name) not in owners:
                    await self._storage.delete(name)
        await asyncio.to_thread(self._storage.sweep, _ORPHAN_SECONDS)

    def _is_old(self, name: str) -> bool:
        try:
            return self._storage.place(name).stat().st_mtime < now() - _ORPHAN_SECONDS
        except FileNotFoundError:
            return False


def _owner(name: str) -> str:
    """Of a file: a job or a key."""
    return name.partition("/")[2].partition("-")[0]


async def _every(seconds: float, chore: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await chore()
        except Exception:
            _log.exception("%s failed and is tried again", getattr(chore, "__name__", "a chore"))
