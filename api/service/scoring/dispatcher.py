"""Hands waiting work to the engine, as much as it has workers for, and work that a dying engine dropped to the next one.

Tenants share the engine by the seconds that their runs take, whether somebody waits for the answer or it is a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from cloakwork.api.engine.messages import Message
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.errors import BusyError, EngineLostError
from cloakwork.api.service.clock import now
from cloakwork.api.service.scoring.engine_link import EngineLink
from cloakwork.api.service.scoring.queue import FairQueue
from cloakwork.api.settings import Settings
from cloakwork.models.audit.audit_key import AuditKey

DEFAULT_PRIORITY: Final = 5
SYNCHRONOUS_PRIORITY: Final = 10  # before the tenant's own jobs

_AHEAD: Final = 1  # requests sent beyond the workers, so that none waits for a message

_log = logging.getLogger("cloakwork.dispatcher")


@dataclass(frozen=True)
class Subject:
    """What a run computes, for those who look."""

    model: str
    version: str
    parameter_set: str
    samples: int


@dataclass(eq=False)
class Work:
    """One run. `listen` gets the engine's messages; `claim`, where given, says whether it is still wanted."""

    id: str
    tenant: str
    priority: int
    message: Message
    listen: Callable[[Message, bytes], None]
    seconds: float  # estimated
    long: bool = False
    body: bytes = b""
    claim: Callable[[], Awaitable[bool]] | None = None
    subject: Subject | None = None
    losses: int = 0  # engines that died while they had it
    queued_at: float = field(default_factory=now)

    @property
    def level(self) -> int:
        """Jobs above the default priority, which need a scope, go before what others have; nothing else does."""
        return self.priority if DEFAULT_PRIORITY < self.priority < SYNCHRONOUS_PRIORITY else 0


class Dispatcher:
    def __init__(self, settings: Settings, options: EngineOptions, audit_key: AuditKey) -> None:
        self._settings = settings
        self._workers = 1
        self._queue: FairQueue[Work] = FairQueue()
        self._in_flight: dict[str, Work] = {}
        self._claims: set[asyncio.Task[None]] = set()
        self.devices: tuple[str, ...] = ()
        self.build: dict[str, str] = {}  # of the engine, since it first answered
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
        first = sum(work.seconds for work in self._in_flight.values())
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
        return [*self._queue, *self._in_flight.values()]

    def in_flight(self) -> list[Work]:
        """What the engine has, at most one more than it has workers."""
        return list(self._in_flight.values())

    def waiting_of(self, tenant: str) -> int:
        return self._queue.waiting_of(tenant)

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def requests_waiting(self) -> int:
        """Without jobs."""
        return sum(work.claim is None for work in self._queue)

    @property
    def running(self) -> int:
        return len(self._in_flight)

    # --- to and from the engine ---

    def _up(self, hello: Message) -> None:
        self._workers = hello["workers"]
        self.devices = tuple(hello["devices"])
        self.build = hello["build"]
        self._pump()

    def _pump(self) -> None:
        while self.link.up and len(self._in_flight) < self._workers + _AHEAD:
            work = self._queue.pop(self._allowed)
            if work is None:
                return
            self._in_flight[work.id] = work
            if work.claim is None:
                self._send(work)
            else:
                task = asyncio.create_task(self._claim(work, work.claim))
                self._claims.add(task)
                task.add_done_callback(self._claims.discard)

    def _allowed(self, work: Work) -> bool:
        """The place ahead is for a tenant that has no run; long runs leave one worker to short ones, where there are two."""
        if len(self._in_flight) >= self._workers and any(o.tenant == work.tenant for o in self._in_flight.values()):
            return False
        if not work.long:
            return True
        long_ones = sum(other.long for other in self._in_flight.values())
        return long_ones < max(1, self._workers - 1)

    async def _claim(self, work: Work, claim: Callable[[], Awaitable[bool]]) -> None:
        try:
            wanted = await claim()
        except Exception:
            _log.exception("run %s could not be claimed; it stays in the database", work.id)
            wanted = False
        if wanted and self.link.up and self._in_flight.get(work.id) is work:
            self._send(work)
            return
        if self._in_flight.get(work.id) is work:
            del self._in_flight[work.id]
            self._queue.charge(work, -work.seconds)
            if wanted:
                self._queue.push(work, first=True)
        self._pump()

    def _send(self, work: Work) -> None:
        self.link.send(work.message, work.body)

    def _heard(self, message: Message, body: bytes) -> None:
        work = self._in_flight.get(message["id"])
        if work is None:
            return  # cancelled before it was sent, or of an engine that is gone
        if message["event"] in ("done", "failed"):
            del self._in_flight[work.id]
            self._queue.charge(work, message.get("busy_seconds", work.seconds) - work.seconds)
            self._pump()
        work.listen(message, body)

    def _lost(self) -> None:
        """The engine died: what it had goes to the next one, before everything else of its priority."""
        dropped, self._in_flight = list(self._in_flight.values()), {}
        for work in reversed(dropped):
            work.losses += 1
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
