"""Periodic tasks: heartbeats, counters to the database, deadlines, retention, orphaned files and jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.clock import retention
from cloakwork.api.service.fleet.fleet import Chore, Fleet
from cloakwork.api.service.jobs.jobs import Jobs
from cloakwork.api.service.jobs.runs import JobRuns
from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.keys.uploads import Uploads
from cloakwork.api.service.scoring.engines import Engines
from cloakwork.api.service.storage.disk import Disk, is_away, is_full
from cloakwork.api.service.storage.objects import UPLOADS, Storage
from cloakwork.api.service.storage.pairing import ORPHAN_SECONDS, Folder, Pairing, Sweeper
from cloakwork.api.service.tenants.usage import Usage
from cloakwork.api.settings import Settings

Ask: TypeAlias = Callable[[list[str]], Awaitable[set[str]]]
"""Which of these identities are still needed."""
_COUNTERS_SECONDS: Final = 1.0
_ROOM_SECONDS: Final = 0.5
_DEADLINES_SECONDS: Final = 1.0
_OWED_SECONDS: Final = 5.0
_END_SECONDS: Final = 5.0  # for the last counters, when the service ends
_REPORT_SECONDS: Final = 60.0  # between two lines about one chore
_GONE_SECONDS: Final = 2.0  # until every service on a database has dropped a key that one of them deleted: below five
_PING_SECONDS: Final = 1.0
_log = logging.getLogger("cloakwork.housekeeping")


def object_folders(storage: Storage, store: JobStore, keys: Keys, calls: Ask | None) -> list[Folder]:
    """Returns objects that are named after a job, a call or a key. `calls`: those that are rows, in a fleet."""
    needed: dict[str, Ask] = {
        "inputs": _either(store.unfinished, calls),
        "results": _either(store.known, calls),
        UPLOADS: keys.known,
        "keys": keys.known,
    }
    return [
        Folder(name, partial(storage.names, name), partial(_known, ask), storage.delete) for name, ask in needed.items()
    ]


def _either(ask: Ask, calls: Ask | None) -> Ask:
    if calls is None:
        return ask

    async def ask_both(identities: list[str]) -> set[str]:
        return await ask(identities) | await calls(identities)

    return ask_both


async def _known(ask: Ask, names: list[str]) -> set[str]:
    owners = await ask([owner(name) for name in names])
    return {name for name in names if owner(name) in owners}


def owner(name: str) -> str:
    """Returns the owner of an object: a job, a call or a key."""
    return name.partition("/")[2].partition("-")[0]


class Housekeeping:
    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        jobs: Jobs,
        runs: JobRuns,
        keys: Keys,
        uploads: Uploads,
        usage: Usage,
        storage: Storage,
        disk: Disk,
        engines: Engines,
        pairing: Pairing,
        fleet: Fleet,
        published: Sequence[Folder],
    ) -> None:
        self._settings = settings
        self._store, self._jobs, self._runs, self._keys = store, jobs, runs, keys
        self._uploads, self._usage, self._storage, self._disk, self._engines = uploads, usage, storage, disk, engines
        self._fleet, self._pairing = fleet, pairing
        self._folders = object_folders(storage, store, keys, fleet.existing_calls)
        every = [*self._folders, *uploads.parts.folders(), *published]
        self._sweeper = Sweeper(every, settings.adopt_storage)
        self._ending = False
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Begins after a restart: every job that this service had accepted and not finished is queued again."""
        last = await self._store.last_heartbeat()
        if last is not None:
            retention.remember(last)
        await self._fleet.begin(self._runs)
        chores: tuple[Chore, ...] = (
            (self._counters, _COUNTERS_SECONDS),
            (self._room, _ROOM_SECONDS),
            (self._deadlines, _DEADLINES_SECONDS),
            (self._owed, _OWED_SECONDS),
            (self._gone, _GONE_SECONDS),
            *self._fleet.chores(),
            (self._retention, self._settings.retention_check_seconds),
        )
        self._tasks = [asyncio.create_task(self._every(seconds, chore)) for chore, seconds in chores]

    @property
    def unknown_objects(self) -> int:
        """Objects without a row, at the last look."""
        return self._sweeper.unknown

    async def end(self) -> None:
        self._ending = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_SECONDS)
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._counters()
        except Exception as error:  # the rest of the service ends all the same
            _log.warning("what was counted last is not in the database (%s)", type(error).__name__)

    async def _counters(self) -> None:
        await self._usage.flush()
        await self._keys.flush_used()

    async def _room(self) -> None:
        self._disk.restore()

    async def _owed(self) -> None:
        """Objects that the storage did not delete when it was told to, unless they have come to be needed."""
        owed = self._storage.owed
        for folder in self._folders:
            mine = [name for name in owed if name.partition("/")[0] == folder.name]
            known = await folder.known(mine) if mine else set()
            for name in mine:
                if name in known:
                    self._storage.excuse(name)
                else:
                    await self._storage.settle(name)

    async def _deadlines(self) -> None:
        for job in await self._store.past_deadline():
            await self._jobs.expire(job)

    async def _gone(self) -> None:
        """What another process deleted, a service on the same database or the command line, leaves this one's memory, devices and disk."""
        await self._runs.abandon()
        await self._uploads.parts.abandon()
        with contextlib.suppress(UnavailableError):  # an engine that does not answer has its turn later
            await self._engines.ping(_PING_SECONDS)
            resident = sorted(self._engines.resident_keys)
            for key in set(resident) - await self._keys.ready(resident):
                self._uploads.forget(key)
        for folder in self._folders:
            if folder.name == "keys":
                await self._drop_copies(folder)

    async def _drop_copies(self, folder: Folder, older_than: float = 0.0) -> None:
        """Local files of objects that another service has deleted."""
        names = await asyncio.to_thread(self._storage.copies, folder.name, older_than)
        known = await folder.known(names) if names else set()
        for name in names:
            if name not in known:
                await self._storage.drop_copy(name)

    async def _retention(self) -> None:
        for job in await self._store.past_retention(self._settings.result_retention_seconds):
            await self._jobs.forget(job)
        for key in await self._keys.expired(
            self._settings.key_retention_seconds, self._settings.upload_retention_seconds
        ):
            await self._uploads.discard(key)
        await self._orphans()
        await self._usage.forget_old()
        await self._fleet.sweep()

    async def _orphans(self) -> None:
        """Objects of requests that ended between writing the object and writing the row, or between the end of a job and the end of its objects."""
        await self._pairing.look()
        if self._pairing.differs:
            return
        await self._sweeper.sweep()
        for folder in self._folders:
            if folder.name in ("results", "inputs"):
                await self._drop_copies(folder, ORPHAN_SECONDS if folder.name == "inputs" else 0.0)
        await asyncio.to_thread(self._storage.sweep, ORPHAN_SECONDS)

    async def _every(self, seconds: float, chore: Callable[[], Awaitable[None]]) -> None:
        reported = -_REPORT_SECONDS
        while not self._ending:  # asyncio.wait_for of Python 3.11 may swallow a cancellation
            await asyncio.sleep(seconds)
            try:
                await chore()
            except Exception as error:
                if is_full(error):
                    self._disk.report(error)
                    continue
                name = getattr(chore, "__name__", "a chore")
                if not is_away(error):
                    _log.exception("%s failed and is tried again", name)
                elif time.monotonic() - reported >= _REPORT_SECONDS:
                    reported = time.monotonic()
                    _log.warning("%s failed and is tried again (%s: %s)", name, type(error).__name__, error)
