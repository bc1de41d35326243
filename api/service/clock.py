"""Times and identifiers."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from cloakwork.api.service.steady_clock import DAY, SteadyClock

DEADLINE_STEP: Final = 60.0


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
