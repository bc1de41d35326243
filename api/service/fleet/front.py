"""Requests as rows: what routes call in place of a dispatcher where several processes share the work."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cloakwork.api.engine.messages import Done, End, Failed
from cloakwork.api.errors import KeyRequiredError, UnavailableError
from cloakwork.api.service.fleet.backlog import Backlog
from cloakwork.api.service.fleet.members import Members
from cloakwork.api.service.fleet.notices import Call, result_name
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.scoring.scoring import Scoring
from cloakwork.api.service.scoring.waiting import RequestLine
from cloakwork.api.service.scoring.work import Work
from cloakwork.api.service.storage.data_folder import write_file
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.settings import Settings

_ANSWER_SECONDS: Final = 2.0  # that a request waits for the storage to say so
_AWAY_SECONDS: Final = 10.0  # until it is asked again
_REMEMBER_SECONDS: Final = 60.0  # that an object is there; a worker that does not find it says so
ROW_BYTES: Final = 1 << 20  # larger inputs and outputs go through the object storage
_LOOK_SECONDS: Final = 1.0  # for ends whose notice was lost
_RESTART_SECONDS: Final = 15.0  # that a worker which is started again may take, at least
_SNAPSHOT_SECONDS: Final = 0.5  # that what waits is remembered
_POST_SECONDS: Final = 30.0  # that a row may take to be written before whoever gave it up does not wait for it
_log = logging.getLogger("cloakwork.fleet")


class RemoteScoring(Scoring):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._seen: dict[str, float] = {}

    async def _key_file(self, key: KeyRecord) -> Path:
        moment = time.monotonic()
        if self._seen.get(key.id, 0.0) < moment:
            remember = _REMEMBER_SECONDS
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    held = await self._storage.holds(key.name, key.bytes)
            except OSError:  # whose worker may have it
                held, remember = True, _AWAY_SECONDS
            if not held:
                await self._uploads.lost(key)
                raise KeyRequiredError(f"the file of key '{key.id}' is lost; upload the key again: POST /v2/keys")
            self._seen = {name: until for name, until in self._seen.items() if until > moment}
            self._seen[key.id] = time.monotonic() + remember
        return self._storage.place(key.name)


class Front(RequestLine):
    def __init__(
        self,
        settings: Settings,
        queue: WorkQueue,
        members: Members,
        storage: Storage,
        digest_of: Callable[[str, str], str],
    ) -> None:
        """`digest_of`: the program of a model's version."""
        self._settings, self._queue, self._members, self._storage = settings, queue, members, storage
        self._digest_of = digest_of
        self._works: dict[str, Work] = {}
        self._ended: set[str] = set()  # told by notices, not yet collected
        self._bell = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._posting: dict[str, asyncio.Task[None]] = {}  # on their way to the database
        self._loops: list[asyncio.Task[None]] = []
        self._backlog = Backlog()
        self._blind = False
        self._posted: Counter[str] = Counter()  # since it was seen
        self._without_worker: float | None = None  # since when

    async def start(self) -> None:
        """Returns when it knows who is there: a process that is ready makes no request a job for want of workers."""
        await self._look_around()
        self._loops = [
            asyncio.create_task(self._collecting(), name="answers"),
            asyncio.create_task(self._looking(), name="snapshot"),
        ]

    async def stop(self) -> None:
        for task in [*self._loops, *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._loops, *self._tasks, return_exceptions=True)

    def heard(self, identity: str) -> None:
        """Handles a notice that this call has ended."""
        self._ended.add(identity)
        self._bell.set()

    def look(self) -> None:
        """Notices may have been lost."""
        self._ended |= self._works.keys()
        self._bell.set()

    # --- as a dispatcher ---

    def _rows_waiting(self, tenant: str) -> tuple[int, int]:
        """Returns the rows as of half a second ago, and what came here since."""
        seen, posted = self._backlog, self._posted
        return seen.waiting + posted.total(), seen.waiting_of(tenant) + posted[tenant]

    def backlog_seconds(self) -> float:
        return self._backlog.seconds(self._settings.synchronous_seconds)

    def wait_seconds(self, tenant: str, seconds: float) -> float:
        return self._backlog.wait_seconds(tenant, seconds, self._settings.synchronous_seconds)

    def submit(self, work: Work) -> None:
        self._works[work.id] = work
        self._posted[work.tenant] += 1
        self._bell.set()  # whose waiting had no end while nothing was under way
        posting = self._background(self._post(work))
        self._posting[work.id] = posting
        posting.add_done_callback(lambda _: self._posting.pop(work.id, None))

    def abandon(self, identity: str, never_begun: Callable[[], None]) -> None:
        """Abandons a call: the database says whether a worker had it."""
        if self._works.pop(identity, None) is not None:
            self._background(self._withdraw(identity, never_begun))

    @property
    def workers(self) -> int:
        """Runs at a time, of all processes that take work."""
        return self._backlog.workers

    @property
    def waiting(self) -> int:
        return self._backlog.waiting

    # --- inside ---

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _post(self, work: Work) -> None:
        assert work.subject is not None
        call = Call(
            id=work.id,
            tenant=work.tenant,
            web=self._members.node,
            model=work.subject.model,
            version=work.subject.version,
            program_digest=self._digest_of(work.subject.model, work.subject.version),
            evaluation_key=work.key.name,
            samples=work.subject.samples,
            seconds=work.seconds,
            input=work.body if len(work.body) <= ROW_BYTES else None,
        )
        try:
            if call.input is None:
                await asyncio.to_thread(write_file, self._storage.place(call.input_name), work.body)
                await self._storage.keep(call.input_name)
                await self._storage.drop_copy(call.input_name)
            await self._queue.post(call)
        except Exception as error:
            _log.warning("a request could not be stored (%s)", type(error).__name__)
            self._fail(work.id, "the request could not be handed to a worker; try again")

    async def _withdraw(self, identity: str, never_begun: Callable[[], None] = lambda: None) -> None:
        if identity in self._posting:  # else its row would come after it was looked for
            await self._posted_or_not(self._posting[identity])
        with contextlib.suppress(Exception):  # its row goes with this process, at the latest
            if await self._queue.withdraw(identity):
                never_begun()
        await self._storage.delete(f"inputs/{identity}")

    async def _posted_or_not(self, posting: asyncio.Task[None]) -> None:
        """What hangs is cancelled: a row that it was about to write is not written."""
        await asyncio.wait({posting}, timeout=_POST_SECONDS)
        posting.cancel()
        await asyncio.wait({posting}, timeout=_POST_SECONDS)

    def _fail(self, identity: str, text: str) -> None:
        work = self._works.pop(identity, None)
        if work is not None:
            work.listen(Failed(identity, UnavailableError.code, UnavailableError.http_status, text))

    async def _collecting(self) -> None:
        failed = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if self._works else None):
                    await self._bell.wait()
            heard = self._bell.is_set()
            self._bell.clear()
            identities = [*self._ended] if heard else [*self._works]
            self._ended.clear()
            identities = [identity for identity in identities if identity in self._works]
            if not identities:
                continue
            try:
                for end in await self._queue.collect(identities):
                    self._background(self._answer(end))
                if not heard:
                    await self._vanished(identities)
                failed = False
            except Exception as error:
                if not failed:
                    _log.warning("answers cannot be read from the database (%s)", type(error).__name__)
                failed = True
                await asyncio.sleep(_LOOK_SECONDS)

    async def _vanished(self, identities: list[str]) -> None:
        """Rows that the database lost: it crashed."""
        old = [
            identity
            for identity in identities
            if identity in self._works and time.monotonic() - self._works[identity].queued_at > 2 * _LOOK_SECONDS
        ]
        for identity in set(old) - await self._queue.existing(old) if old else ():
            self._fail(identity, "the database lost the request; send it again")

    async def _answer(self, end: End) -> None:
        work = self._works.get(end.id)
        if work is None:
            return
        try:
            if isinstance(end, Done) and not end.body:
                name = result_name(end.id, end.worker)
                body = await asyncio.to_thread((await self._storage.local(name)).read_bytes)
                # A worker of an earlier release says no digest.
                if end.sha256 not in (None, hashlib.sha256(body).hexdigest()):
                    raise OSError("the object is not the one that the worker wrote")
                await self._storage.delete(name)
                end = replace(end, body=body)
            if len(work.body) > ROW_BYTES:
                await self._storage.delete(f"inputs/{end.id}")
        except Exception as error:
            _log.warning("an answer could not be read from the storage (%s)", type(error).__name__)
            self._fail(end.id, "the answer could not be read from the storage; send the request again")
            return
        if self._works.pop(end.id, None) is not None:
            work.listen(end)

    async def _looking(self) -> None:
        while True:
            await asyncio.sleep(_SNAPSHOT_SECONDS)
            await self._look_around()

    async def _look_around(self) -> None:
        try:
            self._posted.clear()
            rows = await self._queue.waiting(self._settings.synchronous_seconds)
            self._backlog = self._backlog.after(*rows, await self._members.alive())
            self._look_for_workers()
            self._blind = False
        except Exception as error:
            if not self._blind:
                _log.warning("what waits cannot be read from the database (%s)", type(error).__name__)
            self._blind = True

    def _look_for_workers(self) -> None:
        """Without any for longer than a worker may be silent, or needs to come back, nobody waits in vain."""
        if self.workers:
            self._without_worker = None
            return
        if self._without_worker is None:
            self._without_worker = time.monotonic()
        if time.monotonic() - self._without_worker > max(self._settings.takeover_seconds, _RESTART_SECONDS):
            for identity in list(self._works):
                self.cancel_for(identity)

    def cancel_for(self, identity: str) -> None:
        self._fail(identity, "no worker is there to run the request; try again")
        self._background(self._withdraw(identity))
