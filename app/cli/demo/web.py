"""`cloakwork demo web`: the service with the models of the zoo on this machine, and its page in the browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, Final, NoReturn

import typer

from cloakwork.app.cli.shared.console import FailureError, standard_output
from cloakwork.app.cli.shared.service_extra import require_service

_STOP_SECONDS: Final = 30.0


def web(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: a free one.")] = 0,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of what the service keeps; without it, one that goes.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Serve the zoo's models and the page on this machine, and open it; Ctrl-C ends it."""
    require_service()
    console = standard_output()
    with _ended_by_signals(), _folder(data) as folder, _service(folder, port) as log:
        url = _address(log)
        console.print(f"{url}/ is open to this machine alone. Models come as they are compiled; Ctrl-C ends it.")
        sys.stdout.flush()
        if browser:
            webbrowser.open(f"{url}/")
        for _ in log:  # to its end: a log that nobody reads would stop the service
            pass
        raise FailureError("the service ended by itself; `cloakwork serve --insecure-local` shows its log")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how this ends, and no failure."""

    def stop(_: int, __: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


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
    settings = {"INSECURE_LOCAL": "true", "HOST": "127.0.0.1", "PORT": port, "DATA_FOLDER": folder, "PAGE": "true"}
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
        if entry.get("message") == "listening":
            return str(entry["url"])
    raise FailureError(f"the service did not start: {last or 'it said nothing'}")
