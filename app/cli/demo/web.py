"""`cloakwork demo web`: the service with the models of the zoo on this machine, and its page in the browser."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from cloakwork.app.cli.shared.console import FailureError, standard_output
from cloakwork.app.cli.shared.interrupts import ends_well
from cloakwork.app.cli.shared.service_extra import require_service

_HOST: Final = "127.0.0.1"
_STOP_SECONDS: Final = 30.0


def web(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Listen on port N; 0 takes a free one.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Keep the service's data here (default: a temporary folder)."),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Open the page with all models of the zoo; Ctrl-C ends it."""
    require_service()
    _require_free(port)
    console = standard_output()
    with ends_well(), _folder(data) as folder, _service(folder, port) as log:
        url = _address(log)
        console.print(f"{url}/ is open to this machine alone. Models come as they are compiled; Ctrl-C ends it.")
        sys.stdout.flush()
        if browser:
            webbrowser.open(f"{url}/")
        for _ in log:  # to its end: a log that nobody reads would stop the service
            pass
        raise FailureError("the service ended by itself; `cloakwork serve --insecure-local` shows its log")


def _require_free(port: int) -> None:
    """Said before a service starts, which would take seconds to find it out.

    Raises:
        FailureError: another process listens on the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise FailureError(f"the service cannot listen on port {port}: {error.strerror}") from error


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="cloakwork-demo-") as folder:
        yield Path(folder)


@contextmanager
def _service(folder: Path, port: int) -> Iterator[IO[str]]:
    """Its log, in a session of its own: Ctrl-C is for this process, which then ends the service."""
    settings = {"INSECURE_LOCAL": "true", "HOST": _HOST, "PORT": port, "DATA_FOLDER": folder, "PAGE": "true"}
    environment = {f"CLOAKWORK_{name}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "cloakwork.api"]
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr
        finally:
            process.terminate()
            process.communicate(timeout=_STOP_SECONDS)


def _address(log: IO[str]) -> str:
    """Raises:
    FailureError: the service ended before it listened; what it said last.
    """
    last = ""
    for line in log:
        last = line.strip()
        try:
            entry = json.loads(last)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("message") == "listening":
            return str(entry["url"])
    raise FailureError(f"the service did not start: {last or 'it said nothing'}")
