"""Work that waits for an engine, one request or job each, and the batch that is sent to it as one run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from cloakwork.api.engine.messages import Event, KeyPlace, ModelPlace, RequestPart, StartRun

DEFAULT_PRIORITY: Final = 5
SYNCHRONOUS_PRIORITY: Final = 10  # before the tenant's own jobs

MOST_TOGETHER: Final = 16  # works of one run
MOST_SECONDS: Final = 1.0  # of them together, estimated: nobody waits longer for a turn because of it


@dataclass(frozen=True)
class Subject:
    """The model and key of a run, for status pages."""

    model: str
    version: str
    parameter_set: str
    samples: int


def level_of(priority: int) -> int:
    """Jobs above the default priority go before what others have."""
    return priority if DEFAULT_PRIORITY < priority < SYNCHRONOUS_PRIORITY else 0


@dataclass(eq=False)
class Work:
    """One request. `listen` gets the engine's messages; `claim`, where given, says whether it is still wanted."""

    id: str
    tenant: str
    priority: int
    model: ModelPlace
    key: KeyPlace
    listen: Callable[[Event], None]
    seconds: float  # estimated
    long: bool = False
    body: bytes = b""
    input: str | None = None  # a file, in place of `body`
    output: str | None = None  # a file for the answer
    progress: bool = False  # reports are wanted
    claim: Callable[[], Awaitable[bool]] | None = None
    subject: Subject | None = None
    samples: int = 1
    largest: int = 1  # samples of one run
    alone: bool = False  # engines or processes died with it
    losses: int = 0  # engines that died while they had it
    lost_with: object = None  # the run in which the last one did: its works are tried again after one another
    seconds_on: Callable[[str], float | None] = lambda _: None  # measured, by device
    queued_at: float = field(default_factory=time.monotonic)

    @property
    def level(self) -> int:
        """Jobs above the default priority, which need a scope, go before what others have; nothing else does."""
        return level_of(self.priority)

    @property
    def kin(self) -> tuple[str, str]:
        """Returns what works of one tenant have in common that one run can answer."""
        return self.model.digest, self.key.name

    @property
    def part(self) -> RequestPart:
        return RequestPart(self.id, self.samples, self.body, self.input, self.output, self.progress)


def together(first: Work, behind: Sequence[Work], runs: int) -> list[Work]:
    """Chooses works for one run: the first, and of those behind it as many as are better computed with it than after it.

    Args:
        behind: what waits of the same tenant and priority, in its order, which nothing overtakes.
        runs: that an engine computes at a time as fast as one: work for one of them is not taken from another.
    """
    kin = list(takewhile(lambda work: work.kin == first.kin and not work.alone, () if first.alone else behind))
    share = min(MOST_TOGETHER, -(-(1 + len(kin)) // runs))
    chosen, seconds, samples = [first], first.seconds, first.samples
    for work in kin[: share - 1]:
        seconds, samples = seconds + work.seconds, samples + work.samples
        if seconds > MOST_SECONDS or samples > first.largest:
            break
        chosen.append(work)
    return chosen


def run_message(works: Sequence[Work], beside: bool = False) -> StartRun:
    """Writes the message of a run; `beside`: a long one, on a thread of its own."""
    return StartRun(beside, works[0].model, works[0].key, tuple(work.part for work in works))
