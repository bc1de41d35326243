"""The engine process as the web process sees it: started, watched, killed when it hangs, started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cloakwork.api.engine.messages import (
    AuditKeySecret,
    Done,
    EngineOptions,
    Event,
    Failed,
    Hello,
    Message,
    Ping,
    Pong,
    Progressed,
    Started,
    receive,
)
from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.clock import new_id
from cloakwork.api.settings import Settings
from cloakwork.fhe_core.machine import memory_kills
from cloakwork.models.audit.audit_key import AuditKey

RESTART_SECONDS: Final = (0.0, 0.2, 1.0, 5.0)
_STOP_SECONDS: Final = 5.0

_log = logging.getLogger("cloakwork.engine")
START_SECONDS: Final = 300.0  # from the start of the process to its first word
_SILENT_PINGS: Final = 2  # after which it gets nothing new
_ESTIMATES: Final = 3  # times that for which a run may be still before its first report; some have none


class EngineLink:
    """`on_message(event)` for what the engine says of runs, `on_up(hello)` when one is ready, `on_lost()` when it has died."""

    def __init__(
        self,
        options: EngineOptions,
        audit_key: AuditKey,
        on_message: Callable[[Event], None],
        on_up: Callable[[Hello], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._options, self._audit_key = options, audit_key
        self._on_message, self._on_up, self._on_lost = on_message, on_up, on_lost
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._pings: dict[str, asyncio.Future[Pong]] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._began = 0.0  # the process, by the monotonic clock
        self.facts: Pong | None = None  # as it last answered
        self.restarts = 0
        self.memory_kills = 0  # processes that the kernel ended for want of memory
        self._killed = False  # this process, by us
        self.words = 0  # messages that came: signs of life

    @property
    def up(self) -> bool:
        return self._writer is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.up else None

    @property
    def device_key_bytes(self) -> int:
        return self._options.device_key_bytes

    @property
    def starting_seconds(self) -> float:
        """Seconds that the process which has not answered yet has had."""
        return 0.0 if self.up or self._transport is None else time.monotonic() - self._began

    def kill(self) -> None:
        """Kills an engine that hangs. Its connection is given up, so that nothing waits for a process that no signal ends."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._transport is not None:
            self._transport.abort()

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name="engine")

    async def stop(self) -> None:
        """Stops it; what it has is not lost, but left as it is for the next start."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def send(self, message: Message) -> None:
        if self._writer is None:
            raise UnavailableError("the engine is starting; try again", retry_after=1)
        self._writer.write(message.to_bytes())

    async def ping(self, timeout: float) -> Pong:
        """Returns what the engine holds resident. UnavailableError when it does not answer in time."""
        identity, future = new_id(), asyncio.get_running_loop().create_future()
        self._pings[identity] = future
        try:
            self.send(Ping(identity))
            pong: Pong = await asyncio.wait_for(future, timeout)
            self.facts = pong
            return pong
        except TimeoutError:
            raise UnavailableError("the engine does not answer", retry_after=5) from None
        finally:
            del self._pings[identity]

    # --- inside ---

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(RESTART_SECONDS[min(failures, len(RESTART_SECONDS) - 1)])
            kills, self._killed = memory_kills(), False
            answered = await self._run_once()
            failures = 0 if answered else failures + 1
            self.restarts += 1
            _log.warning(
                "the engine process ended and is started again",
                extra={"restarts": self.restarts, **self._ending(kills)},
            )

    def _ending(self, kills: int) -> dict[str, object]:
        """Returns how the process ended, with what to do about it. `kills`: of the kernel in this cgroup, when it began."""
        status = None if self._process is None else self._process.returncode
        if status is None or status >= 0:
            return {"status": status}
        number = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        if status != -signal.SIGKILL or self._killed:
            return {"signal": number}
        if memory_kills() > kills:
            self.memory_kills += 1
            hint = "the kernel ended it because memory was at an end: lower device_key_bytes, memory_key_bytes or max_samples, or give more memory"
            return {"signal": number, "out_of_memory": True, "hint": hint}
        return {
            "signal": number,
            "hint": "somebody killed it, or the kernel did for want of memory: see the kernel's log",
        }

    async def _run_once(self) -> bool:
        """Until the process is gone; whether it said hello."""
        ours, theirs = socket.socketpair()
        answered, opened = False, None
        self._began = time.monotonic()
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "cloakwork.api.engine",
                    str(theirs.fileno()),
                    self._options.to_json(),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**os.environ, **_one_thread_each()},
                )
            reader, writer = await asyncio.open_connection(sock=ours)
            opened, self._transport = writer, writer.transport
            writer.write(AuditKeySecret(self._audit_key.secret).to_bytes())  # the list of processes shows arguments
            while True:
                message = await receive(reader)
                answered = True
                self._take(message, writer)
        except (asyncio.IncompleteReadError, OSError):
            return answered
        finally:
            was_up, self._writer, self._transport, self.facts = self.up, None, None, None
            if opened is None:
                ours.close()
            else:
                opened.transport.abort()
            if was_up and not self._stopping:
                self._on_lost()
            await _end(self._process)

    def _take(self, message: Message, writer: asyncio.StreamWriter) -> None:
        self.words += 1
        match message:
            case Hello():
                self._writer = writer
                _log.info("engine ready", extra={"pid": message.pid, "device": message.device})
                self._on_up(message)
            case Pong():
                future = self._pings.get(message.id)
                if future is not None and not future.done():
                    future.set_result(message)
            case Started() | Progressed() | Done() | Failed():
                self._on_message(message)


async def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is None or process.returncode is not None:
        return
    try:
        await asyncio.wait_for(asyncio.shield(process.wait()), _STOP_SECONDS)
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), _STOP_SECONDS)
        except TimeoutError:  # in the kernel, for a device that does not answer
            _log.error("the engine process does not end although it was killed", extra={"pid": process.pid})


def _one_thread_each() -> dict[str, str]:
    """The engine has threads of its own; numpy's BLAS must not add one per core to each."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {name: os.environ.get(name, "1") for name in names}


@dataclass(frozen=True)
class Patience:
    """Limits of an engine's silence and of a run's standstill. Without a number of pings it is not watched."""

    ping_seconds: float = 1.0
    missed_pings: int = 0
    stall_seconds: float = 600.0

    @classmethod
    def of(cls, settings: Settings) -> Patience:
        """Returns the patience of the settings: in a fleet an engine has no longer than a process, whose work others take then."""
        seconds, missed = settings.engine_ping_seconds, settings.engine_missed_pings
        if settings.shared:
            seconds = min(seconds, settings.takeover_seconds / (missed + 1))
        return cls(seconds, missed, settings.engine_stall_seconds)


class WatchedRun(Protocol):
    """The protocol of a run of a watched engine (`engines.Run`)."""

    @property
    def works(self) -> Mapping[str, object]: ...
    @property
    def estimated(self) -> float:
        """Seconds."""

    @property
    def progress(self) -> float:
        """Returns the part of its whole that it has reported."""


class WatchedEngine(Protocol):
    """The protocol of a watched engine (`engines.Engine`)."""

    name: str
    silent: bool
    hangs: int
    hung: bool

    @property
    def link(self) -> EngineLink: ...
    @property
    def runs(self) -> Sequence[WatchedRun]: ...
    async def ping(self, timeout: float) -> Pong: ...


class Watch:
    """The watch over one engine. It counts missed pings and not seconds: if this process itself was stopped, at most one is."""

    def __init__(self, engine: WatchedEngine, patience: Patience, changed: Callable[[], None]) -> None:
        """`changed`: an engine that was silent answers again."""
        self._engine, self._patience, self._changed = engine, patience, changed
        self._missed = 0

    async def keep(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except Exception:
                _log.exception("an engine could not be looked at")
            await asyncio.sleep(max(0.0, self._patience.ping_seconds - (time.monotonic() - began)))

    async def look(self) -> None:
        """Sends one ping, or a look at an engine that starts."""
        link, seconds = self._engine.link, self._patience.ping_seconds
        if not link.up:
            self._missed, self._engine.silent = 0, False
            if link.starting_seconds > START_SECONDS:
                self._kill("it does not start")
            return
        words = link.words
        try:
            facts = await self._engine.ping(seconds)
            self._answers()
            self._look_for_still(facts.quiet)
        except UnavailableError:
            if link.words != words:
                self._answers()
            elif link.up:
                self._misses()

    def _answers(self) -> None:
        was_silent, self._missed, self._engine.silent = self._engine.silent, 0, False
        if was_silent:
            self._changed()

    def _misses(self) -> None:
        self._missed += 1
        self._engine.silent = self._missed >= min(_SILENT_PINGS, self._patience.missed_pings)
        if self._missed >= self._patience.missed_pings:
            self._kill("it does not answer")

    def _look_for_still(self, quiet: dict[str, float]) -> None:
        for run in self._engine.runs:
            estimates = 0.0 if run.progress else _ESTIMATES * run.estimated
            limit = max(self._patience.stall_seconds, estimates)
            if any(quiet.get(identity, 0.0) > limit for identity in run.works):
                self._kill("a run stands still")
                return

    def _kill(self, reason: str) -> None:
        self._engine.hangs += 1
        self._engine.hung, self._missed = True, 0
        _log.error(
            "the engine process hangs and is killed",
            extra={"engine": self._engine.name, "reason": reason, "runs": len(self._engine.runs)},
        )
        self._engine.link.kill()
