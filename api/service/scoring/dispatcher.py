"""Hands waiting work to the engines, as much as they have workers for, and work that a dying one dropped to the next.

Tenants share the engines by the seconds that their runs take, whether somebody waits for the answer or it is a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cloakwork.api.engine.messages import Cancel, Done, EngineOptions, Event, Failed, Lost, Progressed
from cloakwork.api.errors import EngineLostError
from cloakwork.api.service.scoring.engine_link import Patience
from cloakwork.api.service.scoring.engines import Engine, Engines, Events, Run
from cloakwork.api.service.scoring.waiting import RequestLine, ahead_of, wait_seconds
from cloakwork.api.service.scoring.work import FairQueue, Work, together
from cloakwork.api.settings import Settings
from cloakwork.models.audit.audit_key import AuditKey

_log = logging.getLogger("cloakwork.dispatcher")


class Dispatcher(RequestLine):
    def __init__(self, settings: Settings, options: EngineOptions, audit_key: AuditKey) -> None:
        self._settings = settings
        self._queue: FairQueue[Work] = FairQueue()
        self._in_flight: dict[str, tuple[Work, Run]] = {}
        self._claims: set[asyncio.Task[None]] = set()
        self.hung: Callable[[set[str]], None] = lambda _: None  # these wait again, and no engine is left
        events = Events(self._pump, self._heard, self._lost)
        self.engines = Engines(settings.named_devices, options, audit_key, events, Patience.of(settings))

    # --- from the services ---

    def _rows_waiting(self, tenant: str) -> tuple[int, int]:
        return len(self._queue), self._queue.waiting_of(tenant)

    def submit(self, work: Work) -> None:
        self._queue.push(work)
        self._pump()

    def cancel(self, identity: str) -> bool:
        """Drops waiting work and says whether it was there; running work ends with the engine's message."""
        if self._queue.remove(lambda work: work.id == identity) is not None:
            return True
        _, run = self._in_flight.get(identity, (None, None))
        if run is not None and run.engine.link.up:
            run.engine.link.send(Cancel(identity))
        return False

    def abandon(self, identity: str, never_begun: Callable[[], None]) -> None:
        if self.cancel(identity):
            never_begun()

    def backlog_seconds(self) -> float:
        left = sum(place.seconds for place in self.engines.each_place) + sum(work.seconds for work in self._queue)
        return left / self.workers

    def wait_seconds(self, tenant: str, seconds: float) -> float:
        long = seconds > self._settings.synchronous_seconds
        return wait_seconds(self.workers, self.engines.each_place, ahead_of(tenant, seconds, self._queue), long)

    def knows(self, identity: str) -> bool:
        return identity in self._in_flight or any(work.id == identity for work in self._queue)

    def jobs(self) -> list[str]:
        """Returns those that wait or run, which are rows in the database."""
        return [work.id for work in self._accepted() if work.claim is not None]

    def _accepted(self) -> list[Work]:
        return [*self._queue, *self.in_flight()]

    def in_flight(self) -> list[Work]:
        """Lists what the engines have, each in at most one run more than it has workers."""
        return [work for work, _ in self._in_flight.values()]

    def waiting_of(self, tenant: str) -> int:
        return self._queue.waiting_of(tenant)

    @property
    def workers(self) -> int:
        return self.engines.workers

    @property
    def places(self) -> int:
        """Runs that the engines that are up may have."""
        return self.engines.places

    @property
    def beside_long(self) -> bool:
        """Whether its only worker has a long run, beside which a short one may begin."""
        return any(engine.beside_long for engine in self.engines.ready)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def requests_waiting(self) -> int:
        """Requests that wait, without jobs."""
        return sum(work.claim is None for work in self._queue)

    @property
    def long_waiting(self) -> int:
        """Long works that no engine has."""
        return sum(work.long for work in self._queue)

    @property
    def running(self) -> int:
        """Runs: what is computed as one counts once."""
        return len(self.engines.runs)

    # --- to and from the engines ---

    def _pump(self) -> None:
        while (turn := self._next()) is not None:
            first, engine = turn
            works = together(first, self._queue.behind(first), self.engines.spread_for(first, engine))
            for work in works[1:]:
                self._queue.take(work)
            run = Run({work.id: work for work in works}, engine)
            engine.add(run)
            engine.keys.add(first.key.name)
            self._in_flight |= {work.id: (work, run) for work in works}
            if all(work.claim is None for work in works):
                run.send()
            else:
                task = asyncio.create_task(self._claim(run))
                self._claims.add(task)
                task.add_done_callback(self._claims.discard)

    def _next(self) -> tuple[Work, Engine] | None:
        """Returns the work whose turn it is, and where it goes.

        Places ahead of the workers are for tenants that have no run, and not before one whose turn it is: who sends much that is joined would
        have them all the time. Long runs leave one worker to short ones, where there are two; one by itself takes a short run beside a long one.
        """
        if not any(engine.has_place for engine in self.engines.ready):
            return None
        runs, waiting, turn = self.engines.runs, len(self._queue), True
        tenants, long_ones = {run.tenant for run in runs}, sum(run.long for run in runs)
        chosen: dict[Work, Engine] = {}

        def allowed(work: Work) -> bool:
            nonlocal turn
            if work.long and long_ones >= max(1, self.workers - 1):
                return False
            engine = self.engines.best_for(work, waiting)
            if engine is None:
                return False
            if not engine.has_worker:
                turn = turn and work.tenant not in tenants
                if not turn:
                    return False
            chosen[work] = engine
            return True

        work = self._queue.pop(allowed)
        return None if work is None else (work, chosen[work])

    async def _claim(self, run: Run) -> None:
        """Asks for each work whether it is wanted; the others go on without those that are not."""
        works = list(run.works.values())
        answers = await asyncio.gather(*map(_is_wanted, works))
        up = run.engine.link.up
        for work, is_wanted in reversed(list(zip(works, answers, strict=True))):
            # One that the run has no more waits again: its engine was lost meanwhile.
            if work.id in run.works and not (is_wanted and up):
                self._release(work, run)
                self._queue.charge(work, -work.seconds)
                if is_wanted:
                    self._queue.push(work, first=True)
        if run.works:
            run.send()
        self._pump()

    def _release(self, work: Work, run: Run) -> None:
        del self._in_flight[work.id]
        del run.works[work.id]
        if not run.works:
            run.engine.remove(run)

    def _heard(self, engine: Engine, event: Event) -> None:
        work, run = self._in_flight.get(event.id, (None, None))
        if work is None or run is None or run.engine is not engine:
            return  # cancelled before it was sent
        match event:
            case Progressed(done=done, total=total) if total:
                run.progress = done / total
            case Done() | Failed():
                self._release(work, run)
                self._queue.charge(work, event.beyond(work.seconds))
                self._pump()
        work.listen(event)

    def _lost(self, engine: Engine) -> None:
        """It died: what it had goes to another or the next one, before everything else of its priority. Works of one run go there one after
        another, so that one which kills engines takes the others with it once."""
        dropped = [(work, run) for work, run in self._in_flight.values() if run.engine is engine]
        engine.runs.clear()
        again: set[str] = set()
        for work, run in reversed(dropped):
            run.works.clear()
            del self._in_flight[work.id]
            work.losses += 1
            work.alone, work.lost_with = True, run
            self._queue.charge(work, -work.seconds)
            if work.losses < self._settings.max_attempts:
                work.listen(Lost(work.id))
                self._queue.push(work, first=True)
                again.add(work.id)
                continue
            text = f"the engine process died {work.losses} times while it ran this request; tell the operator"
            work.listen(Failed(work.id, EngineLostError.code, EngineLostError.http_status, text))
        self._pump()
        if engine.hung and not self.engines.up:
            self.hung(again)


async def _is_wanted(work: Work) -> bool:
    try:
        return work.claim is None or await work.claim()
    except Exception:
        _log.exception("run %s could not be claimed; it stays in the database", work.id)
        return False
