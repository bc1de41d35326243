"""Notices an engine that hangs: one that does not answer, or whose run stands still. It is killed, and its link starts the next."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cloakwork.api.engine.messages import Pong
from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.scoring.engine_link import EngineLink
from cloakwork.api.settings import Settings

START_SECONDS: Final = 300.0  # from the start of the process to its first word
_SILENT_PINGS: Final = 2  # after which it gets nothing new
_ESTIMATES: Final = 3  # times that for which a run may be still before its first report; some have none

_log = logging.getLogger("cloakwork.engine")


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
