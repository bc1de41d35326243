"""Processes that have imported what they need when they begin: one process imports it, and forks them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import warm_python

START_SECONDS: Final = 300


@dataclass
class WarmPython:
    """The process that forks. It ends with the one that made it."""

    modules: Sequence[str] = ()
    folder: tempfile.TemporaryDirectory[str] = field(default_factory=lambda: tempfile.TemporaryDirectory(prefix="warm"))

    def __post_init__(self) -> None:
        command = [sys.executable, warm_python.__file__, self.address, *self.modules]
        self.process = subprocess.Popen(command, env=clean_environment(), stdin=subprocess.PIPE, start_new_session=True)

    @property
    def address(self) -> str:
        return f"{self.folder.name}/socket"

    def connect(self) -> socket.socket:
        """Waits until it has imported all."""
        end = time.monotonic() + START_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                connection.connect(self.address)
                return connection
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                assert self.process.poll() is None and time.monotonic() < end, "the warm Python did not start"
                time.sleep(0.05)

    def start(self, module: str, environment: Mapping[str, str], errors: int, umask: int) -> Forked:
        """`python -m MODULE` with standard error into a descriptor. `umask` as of `subprocess.Popen`."""
        sys.audit("subprocess.Popen", sys.executable, [sys.executable, "-m", module], None, None)  # entropy.py watches
        request = {"folder": str(Path.cwd()), "environment": dict(environment), "module": module, "umask": umask}
        connection = self.connect()
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, errors])
        return Forked(connection, int(connection.recv(16)))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with what it has forked and what these left running
        self.process.communicate()
        self.folder.cleanup()


@dataclass
class Forked:
    """What `subprocess.Popen` tells of a process and does with it."""

    connection: socket.socket
    pid: int
    returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Raises: subprocess.TimeoutExpired: as that of a process."""
        if self.returncode is None:
            if not select.select([self.connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self.returncode = int(self.connection.recv(16) or -signal.SIGKILL)  # nothing: the warm Python was ended
            self.connection.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def warm(*modules: str) -> Iterator[WarmPython]:
    python = WarmPython(modules)
    try:
        python.connect().close()
        yield python
    finally:
        python.end()


def clean_environment() -> dict[str, str]:
    left_out = ("CLOAKWORK_", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
