"""Runs the blocks of a page from top to bottom in an empty folder, as somebody would paste them.

The Python blocks of a page share their names. `cloakwork serve` runs beside what follows it, on a free port in place of 8123, until the page
ends; what asks for 8123 before that asks a service that the pages share. HOME and caches are the page's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from warm_process import WarmPython, clean_environment

from tests.documents.pages import SHELL, Block

TIMEOUT_SECONDS: Final = 300
STOP_SECONDS: Final = 30
PORT: Final = "8123"  # in pages

# The command as pages call it: the warm Python runs it, in a process of its own.
COMMAND: Final = f"""#!{sys.executable} -IS
import json, os, socket, sys
warm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
warm.connect(os.environ["WARM_PYTHON"])
request = {{"folder": os.getcwd(), "environment": dict(os.environ), "arguments": sys.argv[1:]}}
socket.send_fds(warm, [json.dumps(request).encode()], [0, 1, 2])
sys.exit(int(warm.recv(16) or 1) % 256)
"""

# What a block of the shell begins with. The service is ready before the next command; it ends with the page.
PRELUDE: Final = f"""
set -euo pipefail
cloakwork() {{
    if [ "$1" = serve ]; then
        {sys.executable} -m cloakwork.app.cli "$@" 2>> "$READER/log" &
        echo $! >> "$READER/pids"
        for _ in $(seq 900); do
            curl -fsS -o /dev/null "http://127.0.0.1:$CLOAKWORK_PORT/v2/health/ready" 2> /dev/null && return
            kill -0 $! 2> /dev/null || break
            sleep 0.2
        done
        echo 'the service did not start' >&2; tail -5 "$READER/log" >&2; return 1
    elif [ "$1" = batch ]; then
        {sys.executable} -m cloakwork.app.cli "$@"  # a process that was forked is not what Ray starts from
    else
        command cloakwork "$@"
    fi
}}
"""


@dataclass(frozen=True)
class Result:
    failed: bool
    output: str
    errors: str


@dataclass
class Reader:
    """Who pastes the blocks of a page: a folder, a port, what was exported, and one Python."""

    folder: Path
    python: WarmPython
    notebook: bool = False
    shared_port: int | None = None  # of a service that is there before the page starts its own
    variables: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=lambda: free_port())
    exported: dict[str, str] = field(default_factory=dict)
    blocks: socket.socket | None = None  # to the page's Python
    pid: int = 0

    def __post_init__(self) -> None:
        for each in ("here", "notes", "bin", "home"):
            (self.folder / each).mkdir(parents=True)
        command = self.folder / "bin" / "cloakwork"
        command.write_text(COMMAND, encoding="utf-8")
        command.chmod(0o755)
        (self.notes / "pids").touch()

    @property
    def here(self) -> Path:
        return self.folder / "here"

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    @property
    def environment(self) -> dict[str, str]:
        ours = {
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "READER": str(self.notes),
            "WARM_PYTHON": self.python.address,
            "CLOAKWORK_PORT": str(self.port),
            "CLOAKWORK_PASSPHRASE": "of the secret key on this disk",
        }
        return clean_environment() | ours | self.variables | self.exported

    def run(self, block: Block) -> Result:
        serves = block.language in SHELL and "cloakwork serve" in block.text
        if serves:
            self.shared_port = None
        text = block.text.replace(PORT, str(self.shared_port or self.port))
        failed = not (self._shell(text) if block.language in SHELL else self._python(text))
        return Result(failed, *((self.notes / name).read_text(errors="replace") for name in ("output", "errors")))

    def _shell(self, text: str) -> bool:
        script = PRELUDE + text + '\nenv -0 > "$READER/environment"\n'
        # What it prints goes into files: a service that stays would hold a pipe open.
        with (self.notes / "output").open("wb") as output, (self.notes / "errors").open("wb") as errors:
            result = subprocess.run(
                ["bash", "-c", script],
                cwd=self.here,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                timeout=TIMEOUT_SECONDS,
            )
        if result.returncode == 0:
            pairs = (self.notes / "environment").read_text(encoding="utf-8").split("\0")
            variables = dict(pair.partition("=")[::2] for pair in pairs)
            self.exported = {name: value for name, value in variables.items() if name.startswith("CLOAKWORK_")}
        return result.returncode == 0

    def _python(self, text: str) -> bool:
        if self.blocks is None:
            self.blocks = self._begin_python()
        paths = {name: str(self.notes / name) for name in ("code", "output", "errors")}
        Path(paths["code"]).write_text(text, encoding="utf-8")
        self.blocks.send(json.dumps(paths).encode())
        return self.blocks.recv(16) == b"done"

    def _begin_python(self) -> socket.socket:
        connection = self.python.connect()
        connection.settimeout(TIMEOUT_SECONDS)
        request = {"folder": str(self.here), "environment": self.environment, "notebook": self.notebook}
        with Path(os.devnull).open("r+b") as nothing:
            socket.send_fds(connection, [json.dumps(request).encode()], [nothing.fileno()] * 3)
        self.pid = int(connection.recv(16))
        return connection

    def leave(self) -> None:
        if self.blocks is not None:
            self.blocks.close()
            _end(self.pid, signal.SIGKILL)
        for pid in (self.notes / "pids").read_text().split():
            _end(int(pid), signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)  # keys and data folders are large


def _end(pid: int, by: signal.Signals) -> None:
    """Waits until it has ended."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, by)
            if not select.select([process], [], [], STOP_SECONDS)[0]:
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
