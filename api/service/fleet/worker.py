"""A worker: takes work from the database as far as its engine has room, has its dispatcher run it, records the ends."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from cloakwork.api.engine.messages import Done, End, Event, Failed
from cloakwork.api.errors import AWAY, GoneError, UnavailableError
from cloakwork.api.service.fleet.front import ROW_BYTES
from cloakwork.api.service.fleet.members import Members
from cloakwork.api.service.fleet.notices import Call
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.fleet.turns import Head, LongRuns
from cloakwork.api.service.jobs.runs import JobRuns
from cloakwork.api.service.jobs.store import Job
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.scoring import Scoring, ScoringRequest
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY
from cloakwork.api.service.storage.data_folder import write_file
from cloakwork.api.service.storage.disk import is_away
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.tenants.tenants import Tenant
from cloakwork.api.settings import Settings
from cloakwork.fhe_core.errors import FheError

_POLL_SECONDS: Final = 1.0  # for work whose notice was lost
_PATIENT_SECONDS: Final = 0.1  # while something waits that is left to the worker which has its key
_RETRY_SECONDS: Final = (0.1, 0.5, 1.0, 3.0)
_PAUSE_SECONDS: Final = 3.0  # after something that could not be begun
_REMEMBERED: Final = 1000
_RECORD_SECONDS: Final = 60.0  # that the end of a call is tried to be written
_PING_SECONDS: Final = 2.0
_COMING_SECONDS: Final = 10.0  # that a key of work which was taken counts as one that the engine has

_log = logging.getLogger("cloakwork.fleet")


class Worker:
    def __init__(
        self,
        settings: Settings,
        queue: WorkQueue,
        members: Members,
        dispatcher: Dispatcher,
        scoring: Scoring,
        models: Models,
        keys: Keys,
        storage: Storage,
        runs: JobRuns,
    ) -> None:
        self._settings, self._queue, self._members = settings, queue, members
        self._dispatcher, self._scoring, self._runs = dispatcher, scoring, runs
        self._models, self._keys, self._storage = models, keys, storage
        self._calls: dict[str, Call] = {}
        self._starting: dict[str, Job] = {}  # taken and not yet at the dispatcher
        self._ended_calls: set[str] = set()  # whose ends are being recorded
        self._coming: dict[str, float] = {}  # keys of what was taken, which the engine may not have yet
        self._passed_on: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self.draining = False
        self._releasing = False
        self._short_until = 0.0  # the storage did not give something: what has its key here goes on
        dispatcher.hung = self._hung

    def start(self) -> None:
        self._loop = asyncio.create_task(self._leasing(), name="leases")

    def wake(self, _: str = "") -> None:
        self._bell.set()

    def dropped(self, identity: str) -> None:
        """Reports that nobody wants this call or job any more."""
        call = self._calls.get(identity)
        if self._dispatcher.cancel(identity) and call is not None:
            self._calls.pop(identity, None)
        self.wake()

    # --- taking ---

    async def _leasing(self) -> None:
        failures = 0
        while not self.draining:
            seconds = _POLL_SECONDS
            try:
                slots = self._slots()
                if slots > 0 and not await self._left_to_others():
                    took = await self._take(slots)
                    if took >= slots:  # more may wait
                        self._bell.set()
                    elif not took and await self._queue.anything_waits():
                        seconds = _PATIENT_SECONDS
                failures = 0
            except Exception as error:
                if not failures:
                    _log.warning("no work can be taken until the database answers (%s)", type(error).__name__)
                seconds = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                self._bell.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._bell.wait()
            self._bell.clear()

    def _slots(self) -> int:
        """Returns the slots of runs that may be taken. A call on its last attempt has the engines for itself; behind a long run there is no place."""
        if self._releasing or any(self._is_last(call) for call in self._calls.values()):
            return 0
        return self._dispatcher.places - self._in_hand() - self._long_coming()

    def _long_coming(self) -> int:
        """Returns long runs that no engine has begun."""
        rows: tuple[Call | Job, ...] = (*self._calls.values(), *self._starting.values())
        coming = [row.id for row in rows if self._is_long(row.seconds) and row.id not in self._ended_calls]
        return self._dispatcher.long_waiting + sum(not self._dispatcher.knows(each) for each in coming)

    def _is_long(self, seconds: float) -> bool:
        return seconds > self._settings.synchronous_seconds

    def _long_slots(self) -> LongRuns:
        """Where it has two workers, one is left to short runs."""
        running = sum(run.long for run in self._dispatcher.engines.runs)
        most = max(1, self._dispatcher.workers - 1)
        return LongRuns(self._settings.synchronous_seconds, most - running - self._long_coming())

    async def _left_to_others(self) -> bool:
        """What comes now, because its only worker has a long run, and another worker has none."""
        return self._dispatcher.beside_long and await self._queue.short_workers(self._settings.synchronous_seconds)

    def _in_hand(self) -> int:
        """Runs, not rows: what is joined counts once."""
        at_dispatcher = self._dispatcher.running + self._dispatcher.waiting
        starting = sum(not self._dispatcher.knows(each) for each in [*self._calls, *self._starting])
        return at_dispatcher + starting

    def _is_last(self, call: Call) -> bool:
        return call.attempts > 1 and call.attempts >= self._settings.max_attempts

    async def _take(self, slots: int) -> int:
        taken = await self._queue.take(
            self._digests(), slots, self._in_hand() == 0, self._long_slots(), self._may_begin
        )
        moment = time.monotonic()
        keys = {call.evaluation_key for call in taken.calls} | {job.evaluation_key for job in taken.jobs}
        self._coming |= dict.fromkeys(keys, moment)
        for call in taken.calls:
            self._calls[call.id] = call
            self._background(self._start_call(call))
        for job in taken.jobs:
            self._starting[job.id] = job
            self._background(self._start_job(job))
        return len(taken)

    def _digests(self) -> list[str]:
        """Returns the digests of every program that this worker has, also of versions that were retired since a job was accepted."""
        return sorted({model.digest for model, _ in self._models.every()})

    def _may_begin(self, head: Head) -> bool:
        """Not, for a moment after something could not be had, what needs an object that is not here."""
        if time.monotonic() >= self._short_until:
            return True
        return not head.is_job and self._storage.place(f"keys/{head.evaluation_key}").is_file()

    def starts(self, job: str) -> bool:
        """Whether it is taken and on its way to the dispatcher."""
        return job in self._starting

    def _background(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start_job(self, job: Job) -> None:
        try:
            await self._runs.resume(job)
        except Exception as error:
            if is_away(error):
                _log.warning("job %s could not be begun; it goes back (%s: %s)", job.id, type(error).__name__, error)
            else:
                _log.exception("job %s could not be begun; it goes back", job.id)
            self._short_until = time.monotonic() + _PAUSE_SECONDS
            with contextlib.suppress(Exception):
                await self._queue.give_back([], [job.id])
        finally:
            self._starting.pop(job.id, None)
            self.wake()

    async def _start_call(self, call: Call) -> None:
        try:
            model = self._models.accepted(call.model, call.version)
            if model.digest != call.program_digest:
                raise GoneError(f"version '{call.version}' of model '{call.model}' is another program now")
            key = await self._keys.get(call.tenant, call.evaluation_key)
            request = ScoringRequest(Tenant(call.tenant, frozenset()), model, key, call.samples)
            work = await self._scoring.work(request, call.id, SYNCHRONOUS_PRIORITY, self._listener(call, request))
            work.alone = call.attempts > 1
            work.body = call.input if call.input is not None else await self._read(call.input_name)
        except FheError as error:
            await self._record(call, Failed(call.id, error.code, error.http_status, str(error)))
        except FileNotFoundError:
            await self._record(call, Failed(call.id, "input_lost", 503, "the input is not in the storage any more"))
        except (OSError, SQLAlchemyError) as error:
            _log.warning("call %s could not be begun (%s: %s)", call.id, type(error).__name__, error)
            self._short_until = time.monotonic() + _PAUSE_SECONDS
            if not await self._left_to_another(call):
                away = Failed(call.id, UnavailableError.code, UnavailableError.http_status, AWAY)
                await self._record(call, away)
        except Exception as error:
            _log.exception("call %s could not be begun", call.id)
            text = f"a worker failed with {type(error).__name__}; the operator's log has the rest"
            await self._record(call, Failed(call.id, "internal_error", 500, text))
        else:
            if call.id in self._calls and not self.draining:
                self._dispatcher.submit(work)

    async def _left_to_another(self, call: Call) -> bool:
        """One that has its key needs no storage; each worker passes a call on once."""
        if call.id in self._passed_on or call.input is None:
            return False
        with contextlib.suppress(Exception):
            if await self._queue.key_elsewhere(call.evaluation_key):
                self._passed_on = {call.id: None, **dict(list(self._passed_on.items())[:_REMEMBERED])}
                await self._queue.give_back([call], [])
                self._calls.pop(call.id, None)
                return True
        return False

    async def _read(self, name: str) -> bytes:
        body = await asyncio.to_thread((await self._storage.local(name)).read_bytes)
        await self._storage.drop_copy(name)
        return body

    # --- ending ---

    def _listener(self, call: Call, request: ScoringRequest) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            if isinstance(event, Done | Failed):
                self._ended_calls.add(call.id)
                self._background(self._ended(call, request, event))
                self.wake()

        return listen

    async def _ended(self, call: Call, request: ScoringRequest, end: End) -> None:
        if isinstance(end, Done):
            self._scoring.learn(request, end)
        else:
            with contextlib.suppress(Exception):
                await self._scoring.look_after(request.key, end)
        await self._record(call, end)

    async def _record(self, call: Call, end: End) -> None:
        """Tried again while the database is away: the client waits for it."""
        until, failures = time.monotonic() + _RECORD_SECONDS, 0
        try:
            if isinstance(end, Done) and len(end.body) > ROW_BYTES:
                name = call.result_name(self._members.node)
                await asyncio.to_thread(write_file, self._storage.place(name), end.body)
                await self._storage.keep(name)
                await self._storage.drop_copy(name)
                end = replace(end, sha256=hashlib.sha256(end.body).hexdigest(), body=b"")
            while True:
                try:
                    await self._queue.end(call, end)
                    return
                except Exception:
                    if time.monotonic() > until:
                        raise
                    await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
                    failures += 1
        except Exception as error:
            _log.error("the end of call %s could not be recorded (%s)", call.id, type(error).__name__)
        finally:
            self._ended_calls.discard(call.id)
            self._calls.pop(call.id, None)
            self.wake()

    # --- over time ---

    async def abandon(self) -> None:
        """Calls that are not this worker's any more: their client has gone, or this one was taken for dead."""
        here = list(self._calls)
        for identity in set(here) - await self._queue.held(here) if here else ():
            if self._dispatcher.cancel(identity) or not self._dispatcher.knows(identity):
                self._calls.pop(identity, None)
        self.wake()

    async def publish(self) -> None:
        """Publishes which keys the engines hold."""
        with contextlib.suppress(UnavailableError):
            await self._dispatcher.engines.ping(_PING_SECONDS)
            late = time.monotonic() - _COMING_SECONDS
            self._coming = {key: moment for key, moment in self._coming.items() if moment > late}
            await self._members.publish(set(self._dispatcher.engines.resident_keys) | self._coming.keys())

    def _hung(self, lost: set[str]) -> None:
        if not self.draining:
            self._background(self._release(lost))

    async def _release(self, lost: set[str]) -> None:
        """The engine hung with these, and no other is here: others take them, and what had not begun."""
        self._releasing = True
        try:
            calls = [call for call in self._calls.values() if call.id not in self._ended_calls]
            jobs = [*self._dispatcher.jobs(), *self._starting]
            failed = await self._queue.lose(lost)
            await self._queue.give_back([call for call in calls if call.id not in lost], jobs)
            self._coming.clear()
            await self._members.publish(set())
        except Exception as error:  # it stays here, for the next engine
            _log.warning("what a hung engine had cannot be given back (%s)", type(error).__name__)
            return
        finally:
            self._releasing = False
        for identity in [*(call.id for call in calls), *jobs]:
            self._dispatcher.cancel(identity)
            self._calls.pop(identity, None)
        self._runs.let_go(jobs)
        for job in failed:
            await self._runs.gave_up(job)
        _log.warning("the engine hung, and others take its work", extra={"calls": len(calls), "jobs": len(jobs)})

    def stop_taking(self) -> None:
        self.draining = True
        self.wake()

    async def drain(self, enough: Callable[[], bool]) -> None:
        """Gives back what has not begun, and waits for what has, until it is `enough`."""
        self.stop_taking()
        if self._loop is not None:
            await asyncio.gather(self._loop, return_exceptions=True)
        await self._give_back()
        while (self._calls or self._dispatcher.running or self._tasks) and not enough():
            await asyncio.sleep(0.05)
        for task in list(self._tasks):
            task.cancel()

    async def _give_back(self) -> None:
        sent = {work.id for work in self._dispatcher.in_flight()}
        calls = [call for call in self._calls.values() if call.id not in sent]
        jobs = [each for each in self._dispatcher.jobs() if each not in sent]
        for identity in [*(call.id for call in calls), *jobs]:
            self._dispatcher.cancel(identity)
        for call in calls:
            self._calls.pop(call.id, None)
        with contextlib.suppress(Exception):  # others take it over when this one is silent
            await self._queue.give_back(calls, [*jobs, *self._starting])
