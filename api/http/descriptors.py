"""Open files: how many connections the system lets the process have, and what is said when there are no more."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import time
from dataclasses import dataclass
from typing import Any, Final

from cloakwork.api.http.connections import SPARE
from cloakwork.fhe_core.errors import ParameterError

OTHER_FILES: Final = 256  # beside connections: libraries, database, uploads, results, connections that ask for health
_LEAST_OTHER: Final = 128
_LEAST_CONNECTIONS: Final = 8
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
_REPORT_SECONDS: Final = 60.0

_log = logging.getLogger("cloakwork.server")


@dataclass(frozen=True)
class Room:
    """Connections at a time, each with a file that it writes, and how many may be accepted before the first of them is looked at."""

    connections: int
    backlog: int = 2048


def allow_connections(connections: int) -> Room:
    """Raises the limit of open files as far as the system lets it, and returns what fits.

    Raises:
        ParameterError: too few for any service.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    required = 2 * connections + OTHER_FILES
    if soft == resource.RLIM_INFINITY:
        return Room(connections)
    if soft >= required:
        return _room(soft, connections)
    allowed = required if hard == resource.RLIM_INFINITY else min(required, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == required:
        return _room(allowed, connections)
    fit = min(connections, (allowed - _LEAST_OTHER) // 2)
    if fit < _LEAST_CONNECTIONS:
        raise ParameterError(
            f"open files: the system allows {allowed}, and a service needs {_LEAST_OTHER + 2 * _LEAST_CONNECTIONS} at least; raise the hard limit "
            "(ulimit -Hn, LimitNOFILE)"
        )
    _log.warning(
        "the system allows fewer open files than max_connections needs: there will be fewer connections",
        extra={"allowed": allowed, "wanted": required, "max_connections": fit},
    )
    return _room(allowed, fit)


def _room(allowed: int, connections: int) -> Room:
    return Room(connections, min(Room.backlog, max(_LEAST_CONNECTIONS, allowed - _LEAST_OTHER - connections - SPARE)))


class Exhaustion:
    """Says once a minute that no file can be opened: asyncio would say it thousands of times a second."""

    def __init__(self) -> None:
        self._reported = -_REPORT_SECONDS

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handles exceptions of a loop."""
        if not self.report(context.get("exception")):
            loop.default_exception_handler(context)

    def report(self, error: object) -> bool:
        """Whether it is that error."""
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            return False
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            _log.error("the system allows no more open files", extra={"error": errno.errorcode[error.errno]})
        return True
