"""What a service says when it starts: plain words on a terminal, JSON in a pipe. And what it does with few descriptors."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import pty
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from in_process import serving
from scoring_server import becomes, eventually, toy_model, with_tables
from warm_process import clean_environment

from cloakwork.api import web_process as on_terminal
from cloakwork.api.http import connections as connections_module
from cloakwork.api.http.connections import SPARE
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.models import zoo
from cloakwork.models.repository import describe

FILES = 300  # the hard limit, with which max_connections would want 1280
STRUCTURED = "toy_block"


def folder_of_models(data: Path) -> Path:
    """One that is served, one of a structured set, one that is damaged."""
    for name, model in (("structured", toy_model(set_name=STRUCTURED)), ("damaged", toy_model())):
        (data / "models" / name).mkdir()
        model.save(data / "models" / name / "1.clkm")
    damaged = data / "models" / "damaged" / "1.clkm"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    return data


@dataclass
class OnTerminal:
    """`cloakwork serve` with its standard error on a terminal, and what stands there."""

    data: Path
    said: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "cloakwork.app.cli", "serve", "--insecure-local", "--port", "0"]
        script = f'ulimit -n {FILES}; exec "$@"'
        environment = {**clean_environment(), "CLOAKWORK_ALLOW_TOY": "1", "CLOAKWORK_ZOO": "false"}
        self.process = subprocess.Popen(
            ["sh", "-c", script, "sh", *command, "--data", str(self.data), "--devices", "cpu"],
            env=environment,
            stderr=theirs,
            stdin=subprocess.DEVNULL,
        )
        os.close(theirs)
        self._reading = threading.Thread(target=self._read, args=[ours], daemon=True)
        self._reading.start()

    def _read(self, ours: int) -> None:
        while True:
            try:
                self.said += os.read(ours, 65536)
            except OSError:  # the other side is closed
                os.close(ours)
                return

    def interrupt(self) -> int:
        """Presses Ctrl-C, and returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(30)
        self._reading.join(30)
        return status

    @property
    def text(self) -> str:
        return bytes(self.said).decode().replace("\r\n", "\n")

    @property
    def url(self) -> str:
        found = re.search(r"listens on (\S+)", self.text)
        assert found is not None, self.text
        return found[1]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._reading.join(30)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[OnTerminal]:
    data = folder_of_models(fill(tmp_path_factory.mktemp("terminal") / "data"))
    with_tables(data)
    started = OnTerminal(data)
    try:
        assert eventually(lambda: "\npage: " in started.text or started.process.poll() is not None), started.text
        yield started
    finally:
        started.end()


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_somebody_at_a_terminal_reads_where_it_is_and_what_it_serves(terminal: OnTerminal):
    lines = terminal.text.splitlines()
    assert re.search(r"^cloakwork \S+ listens on http://127\.0\.0\.1:\d+ ", terminal.text, re.MULTILINE)
    assert "ready: toy/1" in lines
    refused = {line.split(": ")[1]: line for line in lines if line.startswith("refused: ")}
    assert set(refused) == {"structured/1", "damaged/1"}
    assert "--structured" in refused["structured/1"] and len(refused["damaged/1"]) > len("refused: damaged/1: ")
    (page,) = [line for line in lines if line.startswith("page: ")]
    assert terminal.url in page
    assert not any(line.startswith("{") for line in lines), "JSON is for pipes"


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_few_descriptors_lock_nobody_out_of_health(terminal: OnTerminal):
    port = int(terminal.url.rpartition(":")[2])
    with ExitStack() as opened:
        for _ in range(2 * FILES):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        assert httpx.get(f"{terminal.url}/v2/health/live", timeout=60, trust_env=False).status_code == 200
    assert "open files" in terminal.text, "which max_connections does not fit"
    assert terminal.text.count("open files") == 1 and "Traceback" not in terminal.text


def test_a_pipe_gets_the_same_in_json(tmp_path: Path, fill: Callable[[Path], Path]):
    with serving(folder_of_models(fill(tmp_path / "data"))) as server:
        assert becomes(
            lambda: [each["ready"] for each in server.log_lines() if each["message"] == "models"], [["toy/1"]]
        )
        (line,) = [each for each in server.log_lines() if each["message"] == "models"]
        assert set(line["refused"]) == {"structured/1", "damaged/1"}


def test_a_bar_counts_what_is_compiled_and_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "toy").mkdir()
    toy_model().save(tmp_path / "toy" / "1.clkm")
    assert on_terminal.prepared(tmp_path, zoo=False) == (1, 2)
    assert on_terminal.prepared(tmp_path, zoo=True) == (1, 2 * (1 + len(zoo.names())))
    describe(tmp_path / "toy" / "1.clkm")
    assert on_terminal.prepared(tmp_path, zoo=False) == (2, 2)
    drawn: list[str] = []

    async def watch() -> None:
        seen = asyncio.Event()
        monkeypatch.setattr(on_terminal, "_draw", lambda text: (drawn.append(text), seen.set()))
        services: Any = SimpleNamespace(
            models=SimpleNamespace(repository=tmp_path), settings=SimpleNamespace(zoo=False)
        )
        bar = asyncio.create_task(on_terminal.show_preparing(services))
        await seen.wait()
        bar.cancel()
        await asyncio.gather(bar, return_exceptions=True)

    monkeypatch.setattr(on_terminal, "_LOOK_SECONDS", 0)
    asyncio.run(watch())
    assert "100 %" in drawn[0] and drawn[-1] == ""


@pytest.mark.parametrize(
    ("hard", "connections"),
    [(resource.RLIM_INFINITY, 512), (4096, 512), (1280, 512), (700, 286), (300, 86), (144, 8)],
)
def test_connections_follow_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch, hard: int, connections: int):
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    room = connections_module.allow_connections(512)
    assert room.connections == connections
    if hard >= 300:
        assert room.connections + room.backlog + SPARE < min(hard, 1280) - 100, "a burst leaves files to the others"
    assert raised == [(1280 if hard == resource.RLIM_INFINITY else min(1280, hard), hard)]


def test_too_few_for_any_service_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(ParameterError, match="open files: the system allows 64"):
        connections_module.allow_connections(512)


def test_exhaustion_is_one_line_a_minute(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    moment = [0.0]
    monkeypatch.setattr(connections_module.time, "monotonic", lambda: moment[0])
    exhaustion, loop = connections_module.Exhaustion(), asyncio.new_event_loop()
    accept = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "too many")}
    try:
        with caplog.at_level(logging.ERROR):
            for second in range(120):
                moment[0] = second
                exhaustion.handle(loop, accept)
            assert len(caplog.records) == 2
            exhaustion.handle(loop, {"message": "another", "exception": ValueError("another")})
            assert len(caplog.records) == 3
    finally:
        loop.close()


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path, fill: Callable[[Path], Path]):
    data = fill(tmp_path / "data")
    with_tables(data)
    started = OnTerminal(data)
    try:
        assert eventually(lambda: "\npage: " in started.text or started.process.poll() is not None), started.text
        assert started.interrupt() == 0, started.text
        assert "ended signal=SIGINT" in started.text and "Traceback" not in started.text
    finally:
        started.end()
