"""`python -m cloakwork.api.engine SOCKET_DESCRIPTOR OPTIONS`: started by the web process, ends when that is gone."""

from __future__ import annotations

import os
import signal
import socket
import sys

from cloakwork.api import logs
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.engine.process import EngineProcess


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the web process decides
    options = EngineOptions.from_json(sys.argv[2])
    logs.set_up(options.log_level)
    connection = socket.socket(fileno=int(sys.argv[1]))
    EngineProcess(connection, options).serve()
    # Runs in progress belong to requests that nobody waits for, or to jobs that will be run again.
    os._exit(0)


if __name__ == "__main__":
    main()
