"""The engine processes of a service, one for each device: a crash, or a key that is being expanded, holds up one of them alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cloakwork.api.engine.messages import EngineOptions, Event, ForgetKey, Hello, Pong
from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.scoring.engine_link import RESTART_SECONDS, EngineLink, Patience, Watch
from cloakwork.api.service.scoring.waiting import WorkerPlace
from cloakwork.api.service.scoring.work import Work, run_message
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.models.audit.audit_key import AuditKey

_AHEAD: Final = 1  # runs sent beyond the workers, so that none waits for a message
_LOOK_SECONDS: Final = 60.0  # that looking for GPUs may take
_KILL_SECONDS: Final = 5.0  # until what was killed is gone, or is left to the kernel

_log = logging.getLogger("cloakwork.engine")


@dataclass(eq=False)
class Run:
    """Works that an engine computes as one; those that it has not ended."""

    works: dict[str, Work]
    engine: Engine
    began: float | None = None  # by the monotonic clock; None: it is ahead of the workers
    progress: float = 0.0  # of its whole
    beside: bool = False  # a long run, on a thread of its own

    @property
    def estimated(self) -> float:
        """Seconds, before it began."""
        return sum(work.seconds for work in self.works.values())

    @property
    def seconds(self) -> float:
        """Estimates the seconds of its whole: from its progress, as far as it has reported some."""
        if self.progress and self.began is not None:
            return (time.monotonic() - self.began) / self.progress
        return self.estimated

    @property
    def place(self) -> WorkerPlace:
        return WorkerPlace.of_run(self.seconds, 0.0 if self.began is None else time.monotonic() - self.began, self.long)

    @property
    def tenant(self) -> str:
        return next(iter(self.works.values())).tenant

    @property
    def long(self) -> bool:
        return any(work.long for work in self.works.values())

    def send(self) -> None:
        self.engine.link.send(run_message(list(self.works.values()), self.beside))


@dataclass(frozen=True)
class Events:
    """Callbacks for an engine that is ready, reports on a run, or has died."""

    up: Callable[[], None]
    heard: Callable[[Engine, Event], None]
    lost: Callable[[Engine], None]


class Engine:
    """One process: what it computes now, and which keys it is likely to hold."""

    def __init__(self, name: str, options: EngineOptions, audit_key: AuditKey, events: Events, single: bool) -> None:
        """`single`: the only engine of its process."""
        self.name, self._events, self._single = name, events, single
        self.link = EngineLink(options, audit_key, partial(events.heard, self), self.greeted, self.died)
        self.device = options.device
        self.workers, self.spread = 1, 1
        self.build: dict[str, str] = {}  # what it was built with, since it first answered
        self.runs: list[Run] = []  # in the order in which they were sent
        self.silent = False  # it does not answer, and gets nothing new until it does
        self.hangs = 0
        self.hung = False  # its last process
        self.keys: set[str] = set()

    @property
    def beside_long(self) -> bool:
        """Whether a long run has the only worker: a short one is computed beside it, and the two share its processor."""
        return self._single and self.workers == 1 and bool(self.runs) and self.runs[0].long

    @property
    def has_worker(self) -> bool:
        return len(self.runs) < self.workers + self.beside_long

    @property
    def places(self) -> int:
        """Runs that it may have: on workers, and ahead of them, but not behind long ones only."""
        behind_long = len(self.runs) >= self.workers and all(run.long for run in self.runs[: self.workers])
        return self.workers + (self.beside_long if behind_long else _AHEAD)

    @property
    def has_place(self) -> bool:
        return len(self.runs) < self.places

    def add(self, run: Run) -> None:
        run.beside = self.beside_long
        self.runs.append(run)
        self._begin()

    def remove(self, run: Run) -> None:
        if run in self.runs:
            self.runs.remove(run)
        self._begin()

    def _begin(self) -> None:
        for run in self.runs[: self.workers + self.beside_long]:
            run.began = run.began or time.monotonic()

    def greeted(self, hello: Hello) -> None:
        self.workers, self.spread, self.build, self.hung = hello.workers, hello.spread, hello.build, False
        self._events.up()

    def died(self) -> None:
        self.keys.clear()
        self._events.lost(self)

    def may_have(self, work: Work) -> bool:
        """Whether an engine may have this run: not beside another of a run with which an engine died: one of them may have been the reason."""
        if work.lost_with is None:
            return True
        return all(other.lost_with is not work.lost_with for run in self.runs for other in run.works.values())

    async def ping(self, timeout: float) -> Pong:
        facts = await self.link.ping(timeout)
        self.keys = set(facts.keys) | {work.key.name for run in self.runs for work in run.works.values()}
        return facts


class Engines:
    def __init__(
        self,
        devices: tuple[str, ...],
        options: EngineOptions,
        audit_key: AuditKey,
        events: Events,
        patience: Patience | None = None,
    ) -> None:
        """`devices`: none: which there are is asked when they are started. `options`: of all together."""
        self._devices, self._patience = devices, patience or Patience()
        self._options, self._audit_key, self._events = options, audit_key, events
        self.all: list[Engine] = []
        self._starting: asyncio.Task[None] | None = None
        self._watches: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._starting = asyncio.create_task(self._start(), name="engines")

    async def _start(self) -> None:
        self.make(self._devices or await _usable_devices())
        for engine in self.all:
            engine.link.start()
            if self._patience.missed_pings:
                watch = Watch(engine, self._patience, self._events.up)
                self._watches.append(asyncio.create_task(watch.keep(), name="watch"))

    def make(self, devices: tuple[str, ...]) -> None:
        """Makes one for each; what is the process's own, memory and CPU threads, is shared among them."""
        processors, given = max(1, devices.count("cpu")), self._options
        cpu_key_bytes = given.device_key_bytes if given.cpu_key_bytes is None else given.cpu_key_bytes // processors
        for number, device in enumerate(devices):
            options = replace(
                self._options,
                device=device,
                threads=max(1, self._options.threads // (processors if device == "cpu" else 1)),
                memory_key_bytes=self._options.memory_key_bytes // len(devices),
                device_key_bytes=cpu_key_bytes if device == "cpu" else given.device_key_bytes,
                program_bytes=given.program_bytes // len(devices),
                data_bytes=given.data_bytes // processors if device == "cpu" else 0,
            )
            name = device if devices.count(device) == 1 else f"{device}#{number}"
            self.all.append(Engine(name, options, self._audit_key, self._events, single=len(devices) == 1))

    async def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await asyncio.gather(*(engine.link.stop() for engine in self.all))

    # --- all of them ---

    @property
    def ready(self) -> list[Engine]:
        return [engine for engine in self.all if engine.link.up and not engine.silent]

    @property
    def silent(self) -> int:
        return sum(engine.silent for engine in self.all)

    @property
    def up(self) -> bool:
        return bool(self.ready)

    @property
    def workers(self) -> int:
        """Runs at a time, of those that are up, or else of all as they last said."""
        return max(1, sum(engine.workers for engine in self.ready or self.all))

    @property
    def places(self) -> int:
        """Runs that they may have."""
        return sum(engine.places for engine in self.ready)

    @property
    def each_place(self) -> list[WorkerPlace]:
        """Returns the places of every worker that has a run, then of runs ahead of them."""
        runs = [
            (number >= engine.workers, run)
            for engine in self.ready or self.all
            for number, run in enumerate(engine.runs)
        ]
        return [run.place for _, run in sorted(runs, key=lambda each: each[0])]

    @property
    def runs(self) -> list[Run]:
        return [run for engine in self.all for run in engine.runs]

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(engine.device for engine in self.all)

    @property
    def build(self) -> dict[str, str]:
        """All are of one build."""
        return next((engine.build for engine in self.all if engine.build), {})

    @property
    def restarts(self) -> int:
        return sum(engine.link.restarts for engine in self.all)

    @property
    def memory_kills(self) -> int:
        return sum(engine.link.memory_kills for engine in self.all)

    @property
    def device_key_bytes(self) -> int:
        """Expanded keys that all of them keep, at most."""
        return sum(engine.link.device_key_bytes for engine in self.all)

    @property
    def hangs(self) -> int:
        return sum(engine.hangs for engine in self.all)

    @property
    def resident_keys(self) -> frozenset[str]:
        """Keys that engines had when they were last asked."""
        return frozenset(key for engine in self.all if engine.link.facts for key in engine.link.facts.keys)

    async def ping(self, timeout: float) -> dict[str, Pong]:
        """Returns what they hold resident, of each that answers in time.

        Raises:
            UnavailableError: none does.
        """
        ready = self.ready
        replies = await asyncio.gather(*(engine.ping(timeout) for engine in ready), return_exceptions=True)
        answers = {engine.name: each for engine, each in zip(ready, replies, strict=True) if isinstance(each, Pong)}
        if answers:
            return answers
        for each in replies:
            if isinstance(each, BaseException):
                raise each
        if self.silent:
            raise UnavailableError("the engine does not answer", retry_after=5)
        raise UnavailableError("the engine is starting; try again", retry_after=1)

    def forget(self, key: str) -> None:
        for engine in (each for each in self.all if each.link.up):
            engine.keys.discard(key)
            engine.link.send(ForgetKey(key))

    # --- which of them ---

    def best_for(self, work: Work, waiting: int) -> Engine | None:
        """Finds the engine where a work is done first, if it can go there now: the least busy one, of slow ones only where the others have more to
        do than makes up for it; among equals one that has the key.

        Args:
            waiting: works, which wait for engines that are full.
        """
        able = [engine for engine in self.ready if engine.may_have(work)]
        if not able:
            return None
        slow = _slowness(able, work)

        def rank(engine: Engine) -> tuple[float, bool]:
            before = len(engine.runs) + (0 if engine.has_place else waiting)
            return (2.0 ** slow[engine] * (1 + before / engine.workers), work.key.name not in engine.keys)

        best = min(able, key=rank)
        return best if best.has_place else None

    def spread_for(self, work: Work, engine: Engine) -> int:
        """Counts the runs that are computed at a time as fast as one: what waits is better spread over them than joined to one."""
        slow = _slowness(self.ready, work)
        return sum(other.spread for other, times in slow.items() if times <= slow[engine])


def _slowness(engines: list[Engine], work: Work) -> dict[Engine, int]:
    """Returns how many times twice as slow as the fastest, as far as was measured: what is nearly as fast counts as equal."""
    seconds = {engine: work.seconds_on(engine.device) for engine in engines}
    fastest = min((each for each in seconds.values() if each), default=0.0)
    return {engine: round(math.log2(each / fastest)) if each else 0 for engine, each in seconds.items()}


async def _usable_devices() -> tuple[str, ...]:
    """Returns every usable GPU, or the CPU. Looked for in a process that ends: looking takes memory on a GPU, and a driver may crash."""
    if not has_cuda():
        return ("cpu",)
    failures = 0
    while True:
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(_LOOK_SECONDS):
                return await _look()
        _log.warning("the devices could not be looked up; it is tried again")
        failures = min(failures + 1, len(RESTART_SECONDS) - 1)
        await asyncio.sleep(RESTART_SECONDS[failures])


async def _look() -> tuple[str, ...]:
    """Raises: ValueError: the process said something else than JSON, or nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cloakwork.api.engine.devices",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        text, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            with contextlib.suppress(TimeoutError):  # in the kernel, for a driver that does not answer
                await asyncio.wait_for(process.wait(), _KILL_SECONDS)
    return tuple(json.loads(text))
