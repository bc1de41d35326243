"""`python -m cloakwork.api.engine SOCKET_DESCRIPTOR OPTIONS`: started by the web process, ends when that is gone."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from cloakwork.api import logs
from cloakwork.api.engine.messages import EngineOptions
from cloakwork.api.engine.process import EngineProcess


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the web process decides
    options = EngineOptions.from_json(sys.argv[2])
    logs.set_up(options.log_level)
    _limit_memory(options)
    connection = socket.socket(fileno=int(sys.argv[1]))
    EngineProcess(connection, options).serve()
    # Runs in progress belong to requests that nobody waits for, or to jobs that will be run again.
    os._exit(0)


def _limit_memory(options: EngineOptions) -> None:
    """A run too large for a limited cgroup is refused memory, and answered with an error, before the kernel kills for it; and the kernel takes the
    engine, which is started again, before the web process, which has everybody's connections."""
    if options.data_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = options.data_bytes if hard == resource.RLIM_INFINITY else min(options.data_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")


if __name__ == "__main__":
    main()
