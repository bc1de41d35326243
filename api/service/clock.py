"""Times and identifiers, and a wall clock that a step does not carry away: what deletes, and what expires for good, goes by it."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

DAY: Final = 86400.0

_log = logging.getLogger("cloakwork.clock")
DEADLINE_STEP: Final = 60.0


class SteadyClock:
    """Follows steps up to `trusted` seconds at once. A larger one counts when it has lasted as long as it is, or for a day: until then it goes
    on as it did after a step forwards, and follows one backwards, so that nothing is old too early.
    """

    def __init__(self, wall: Callable[[], float], trusted: float, moment: Callable[[], float] = monotonic) -> None:
        self._wall, self._trusted, self._moment = wall, trusted, moment
        self._offset = wall() - moment()  # from the monotonic clock
        self._doubted: tuple[float, float] | None = None  # another offset, and since when
        self._lock = threading.Lock()

    def now(self) -> float:
        moment = self._moment()
        offset = self._wall() - moment
        with self._lock:
            if abs(offset - self._offset) <= self._trusted:
                self._offset, self._doubted = offset, None
            elif self._doubted is None or abs(offset - self._doubted[0]) > self._trusted:
                self._doubted = offset, moment
                _log.warning(
                    "the clock was set, or nobody looked at it for long; nothing is deleted or ended by it until it has lasted",
                    extra={
                        "step_seconds": round(offset - self._offset),
                        "waits_seconds": round(self._patience(offset)),
                    },
                )
            elif moment - self._doubted[1] >= self._patience(offset):
                _log.warning("the clock has kept the time to which it was set, which counts now")
                self._offset, self._doubted = offset, None
            return min(offset, self._offset) + moment

    def latest(self) -> float:
        """Returns the later of both times while a step is doubted: for rights that end, which no clock that is set back gives again."""
        self.now()
        return max(self._wall(), self._offset + self._moment())

    def remember(self, last: float) -> None:
        """Remembers the time when somebody last looked at a clock, before this process began: a time long after it is a step too."""
        with self._lock:
            self._offset = min(self._offset, max(last, 0.0) - self._moment())

    def _patience(self, offset: float) -> float:
        return min(DAY, abs(offset - self._offset))


def now() -> float:
    """Returns seconds since 1970."""
    return time.time()


# What is retained is deleted, and what has a deadline ends, by these: a clock that jumps takes nothing away.
retention = SteadyClock(lambda: now(), DAY)
deadlines = SteadyClock(lambda: now(), DEADLINE_STEP)


def new_id() -> str:
    """Returns 32 hexadecimal digits, random: nothing to guess and nothing to escape in a path."""
    return secrets.token_hex(16)


def today() -> str:
    return day_of(now())


def day_of(moment: float) -> str:
    """Returns the day in UTC, as 2026-11-21."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def seconds_to_midnight() -> float:
    """Returns the seconds until the next day in UTC begins."""
    moment = datetime.now(UTC)
    midnight = datetime.combine(moment.date() + timedelta(days=1), datetime.min.time(), UTC)
    return (midnight - moment).total_seconds()
