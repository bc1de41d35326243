"""Hands waiting work to the engine, as much as it has workers for, and work that a dying engine dropped to the next one.

Tenants share the engine by the seconds that their runs take, whether somebody waits for the answer or it is a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from cloakwork.api.engine.messages import Message
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.errors import BusyError, EngineLostError
from cloakwork.api.service.scoring.engine_link import EngineLink
from cloakwork.api.service.scoring.queue import FairQueue
from cloakwork.api.service.scoring.work import Run, Work, run_message, together
from cloakwork.api.settings import Settings
from cloakwork.models.audit.audit_key import AuditKey

_AHEAD: Final = 1  # requests sent beyond the workers, so that none waits for a message

_log = logging.getLogger("cloakwork.dispatcher")


class Dispatcher:
    def __init__(self, settings: Settings, options: EngineOptions, audit_key: AuditKey) -> None:
        self._settings = settings
        self._workers = 1
        self._spread = 1
        self._queue: FairQueue[Work] = FairQueue()
        self._in_flight: dict[str, tuple[Work, Run]] = {}
        self._runs: set[Run] = set()
        self._claims: set[asyncio.Task[None]] = set()
        self.devices: tuple[str, ...] = ()
        self.link = EngineLink(options, audit_key, self._heard, self._up, self._lost)

    # --- from the services ---

    def require_room(self, tenant: str, most: int) -> None:
        """BusyError when the queue is full, for all or for this tenant, which may have so many waiting."""
        waiting, mine = len(self._queue), self._queue.waiting_of(tenant)
        if waiting < self._settings.max_queue and mine < most:
            return
        whose = "the queue" if waiting >= self._settings.max_queue else "your part of the queue"
        raise BusyError(f"{whose} is full; try again later", retry_after=max(1.0, min(60.0, self.backlog_seconds())))

    def submit(self, work: Work) -> None:
        self._queue.push(work)
        self._pump()

    def cancel(self, identity: str) -> bool:
        """Waiting work is dropped without a word, which is said; running work ends with the engine's message."""
        if self._queue.remove(lambda work: work.id == identity) is not None:
            return True
        if identity in self._in_flight and self.link.up:
            self.link.send({"op": "cancel", "id": identity})
        return False

    def forget_key(self, key: str) -> None:
        if self.link.up:
            self.link.send({"op": "forget", "key": key})

    def backlog_seconds(self) -> float:
        """Until the engine is free, about."""
        return sum(work.seconds for work in self._accepted()) / self._workers

    def wait_seconds(self, tenant: str, seconds: float) -> float:
        """Until a run of so many seconds of this tenant can begin, about: others that wait take their turns, and no more, before it."""
        ahead: dict[str, float] = defaultdict(float)
        first = sum(work.seconds for work in self.in_flight())
        for work in self._queue:
            if work.level:
                first += work.seconds
            else:
                ahead[work.tenant] += work.seconds
        mine = ahead.pop(tenant, 0.0)
        return (first + mine + sum(min(mine + seconds, other) for other in ahead.values())) / self._workers

    def knows(self, identity: str) -> bool:
        return identity in self._in_flight or any(work.id == identity for work in self._queue)

    def jobs(self) -> list[str]:
        """Those that wait or run, which are rows in the database."""
        return [work.id for work in self._accepted() if work.claim is not None]

    def _accepted(self) -> list[Work]:
        return [*self._queue, *self.in_flight()]

    def in_flight(self) -> list[Work]:
        """What the engine has, in at most one run more than it has workers."""
        return [work for work, _ in self._in_flight.values()]

    def waiting_of(self, tenant: str) -> int:
        return self._queue.waiting_of(tenant)

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        """Runs: what is computed as one counts once."""
        return len(self._runs)

    # --- to and from the engine ---

    def _up(self, hello: Message) -> None:
        self._workers, self._spread = hello["workers"], hello["spread"]
        self.devices = tuple(hello["devices"])
        self._pump()

    def _pump(self) -> None:
        while self.link.up and len(self._runs) < self._workers + _AHEAD:
            first = self._queue.pop(self._allowed())
            if first is None:
                return
            works = together(first, self._queue.behind(first), self._spread)
            for work in works[1:]:
                self._queue.take(work)
            run = Run({work.id: work for work in works})
            self._runs.add(run)
            self._in_flight |= {work.id: (work, run) for work in works}
            if all(work.claim is None for work in works):
                self._send(run)
            else:
                task = asyncio.create_task(self._claim(run))
                self._claims.add(task)
                task.add_done_callback(self._claims.discard)

    def _allowed(self) -> Callable[[Work], bool]:
        """Asked of the first works of tenants in turn. The place ahead is for a tenant that has no run, and not before one whose turn it is: who
        sends much that is joined would have it all the time."""
        ahead, tenants, turn = len(self._runs) >= self._workers, {run.tenant for run in self._runs}, True

        def allowed(work: Work) -> bool:
            nonlocal turn
            turn = turn and not (ahead and work.tenant in tenants)
            return turn and self._may_begin(work)

        return allowed

    def _may_begin(self, work: Work) -> bool:
        """Long runs leave one worker to short ones, where there are two."""
        if work.lost_with is not None and any(each.lost_with is work.lost_with for each in self.in_flight()):
            return False
        if not work.long:
            return True
        long_ones = sum(run.long for run in self._runs)
        return long_ones < max(1, self._workers - 1)

    async def _claim(self, run: Run) -> None:
        """Asks for each work whether it is wanted; the others go on without those that are not."""
        works = list(run.works.values())
        for work, wanted in zip(works, await asyncio.gather(*map(_is_wanted, works)), strict=True):
            if not self._has(work, run) or (wanted and self.link.up):
                continue
            self._release(work, run)
            self._queue.charge(work, -work.seconds)
            if wanted:
                self._queue.push(work, first=True)
        if run.works and self.link.up:
            self._send(run)
        self._pump()

    def _has(self, work: Work, run: Run) -> bool:
        """Not where the engine was lost meanwhile."""
        return self._in_flight.get(work.id, (None, None))[1] is run

    def _release(self, work: Work, run: Run) -> None:
        del self._in_flight[work.id]
        del run.works[work.id]
        if not run.works:
            self._runs.discard(run)

    def _send(self, run: Run) -> None:
        self.link.send(*run_message(list(run.works.values())))

    def _heard(self, message: Message, body: bytes) -> None:
        work, run = self._in_flight.get(message["id"], (None, None))
        if work is None or run is None:
            return  # cancelled before it was sent, or of an engine that is gone
        if message["event"] in ("done", "failed"):
            self._release(work, run)
            self._queue.charge(work, message.get("busy_seconds", work.seconds) - work.seconds)
            self._pump()
        work.listen(message, body)

    def _lost(self) -> None:
        """The engine died: what it had goes to the next one, before everything else of its priority. Works of one run go there one after
        another, so that one which kills engines takes the others with it once."""
        dropped = list(self._in_flight.values())
        self._in_flight, self._runs = {}, set()
        for work, run in reversed(dropped):
            work.losses += 1
            work.alone, work.lost_with = True, run
            self._queue.charge(work, -work.seconds)
            if work.losses < self._settings.max_attempts:
                work.listen({"event": "lost", "id": work.id}, b"")
                self._queue.push(work, first=True)
                continue
            message = {
                "event": "failed",
                "id": work.id,
                "code": EngineLostError.code,
                "http_status": EngineLostError.http_status,
                "message": f"the engine process died {work.losses} times while it ran this request; tell the operator",
            }
            work.listen(message, b"")


async def _is_wanted(work: Work) -> bool:
    try:
        return work.claim is None or await work.claim()
    except Exception:
        _log.exception("run %s could not be claimed; it stays in the database", work.id)
        return False
