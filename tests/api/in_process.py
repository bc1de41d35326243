"""The service in a thread of the test's process: the same `serve`, on a port of its own, its engine another thread.

It starts in a tenth of a second, where a process takes seconds to import what this one has, and its randomness follows from the test's name.
Tests whose subject is a process (signals, memory, crashes) take `scoring_server.running` instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scoring_server import START_SECONDS, Server, eventually, running, with_tables

from cloakwork.api import logs, web_process
from cloakwork.api.engine.messages import AuditKeySecret, EngineOptions, Message, StartRun, receive
from cloakwork.api.engine.process import EngineProcess
from cloakwork.api.errors import MalformedError
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.scoring.engine_link import EngineLink
from cloakwork.api.service.scoring.engines import Engine
from cloakwork.api.service.services import Services
from cloakwork.api.settings import load_settings
from cloakwork.fhe_core.errors import FheError
from cloakwork.models import repository
from cloakwork.models.audit.audit_key import AuditKey

STOP_SECONDS = 60.0
_WHOSE: ContextVar[object] = ContextVar("whose", default=None)  # which server a thread or task belongs to
_ONE_AT_A_TIME = threading.Lock()


class _Engine(EngineProcess):
    """What is a process elsewhere: it must not end this one, and may be held."""

    def __init__(self, connection: socket.socket, options: EngineOptions, owner: object) -> None:
        super().__init__(connection, options)
        self._owner = owner
        self.may_run = threading.Event()
        self.may_run.set()
        self.gone = False

    def _send(self, message: Message) -> None:
        self.may_run.wait()
        with self._send_lock, contextlib.suppress(OSError):
            if not self.gone:
                self._connection.sendall(message.to_bytes())

    def _run(self, run: StartRun) -> None:
        _WHOSE.set(self._owner)
        self.may_run.wait()
        if not self.gone:
            super()._run(run)

    def end(self) -> None:
        """As a process that dies, but for a run that has begun: its threads stop when it reports."""
        self.gone = True
        self._cancelled |= self._accepted
        self.may_run.set()

    def work(self) -> None:
        _WHOSE.set(self._owner)
        with self._connection, contextlib.suppress(OSError):
            self.serve()
        self.end()


class LocalLink(EngineLink):
    """To an engine that is a thread."""

    engine: _Engine | None = None

    async def _run_once(self) -> bool:
        ours, theirs = socket.socketpair()
        self.engine = _Engine(theirs, self._options, _WHOSE.get())
        thread = threading.Thread(target=self.engine.work, name="engine", daemon=True)
        thread.start()
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(AuditKeySecret(self._audit_key.secret).to_bytes())
        try:
            while True:
                self._take(await receive(reader), writer)
        except (asyncio.IncompleteReadError, OSError):
            return True
        finally:
            was_up, self._writer, self.facts = self.up, None, None
            self.engine.end()
            writer.transport.abort()
            await asyncio.to_thread(thread.join)
            if was_up and not self._stopping:
                self._on_lost()


def _in_threads(services: Services, audit_key: AuditKey) -> None:
    """From now on the service makes no processes: not for its engines, and not to describe its models."""
    engines = services.dispatcher.engines
    make = engines.make

    def with_links(devices: tuple[str, ...]) -> None:
        make(devices)
        for engine in engines.all:
            engine.link = LocalLink(
                engine.link._options, audit_key, partial(engine._events.heard, engine), engine.greeted, engine.died
            )

    engines.make = with_links  # type: ignore[method-assign]
    services.models._describe = partial(describe, services.models)  # type: ignore[method-assign]
    services.models.incoming.describe = describe_one  # type: ignore[method-assign]


async def describe(models: Models) -> None:
    """As `python -m cloakwork.models.repository FOLDER`."""
    assert not models._zoo, "compiling it takes a process"

    def call() -> None:
        with _ONE_AT_A_TIME, patch.object(sys, "argv", ["", str(models.repository)]):
            repository.main()

    async with models._describing:
        await asyncio.to_thread(call)


async def describe_one(artefact: Path) -> None:
    """As `python -m cloakwork.models.repository --file ARTEFACT`, without its limits of memory and time, which are those of a process."""
    try:
        await asyncio.to_thread(repository.describe, artefact)
    except FheError as error:
        raise MalformedError(
            f"this is no model that can be served: {str(error).removeprefix(f'{artefact}: ')}"
        ) from None


class _Web(web_process._Server):
    """Tells when it listens, and in which loop."""

    loop: asyncio.AbstractEventLoop
    listens: threading.Event

    def __init__(self, config: Any, settings: Any, connections: Any, services: Services) -> None:
        super().__init__(config, settings, connections, services)
        self.services, self.listens = services, threading.Event()
        _in_threads(services, services.audit_key)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.listens.set()

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])

    @property
    def is_ready(self) -> bool:
        services = self.services
        return services.life.started and (services.dispatcher.engines.up or not services.settings.computes)


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Lines of one server among those that this process has."""

    def __init__(self, file: Any, owner: object) -> None:
        super().__init__(file)
        self._owner = owner
        self.setFormatter(logs.JsonFormatter())

    def filter(self, record: logging.LogRecord) -> bool:
        return _WHOSE.get() is self._owner


@dataclass(eq=False)
class LocalServer(Server):
    """`Server` without a process of its own."""

    web: _Web | None = None
    failure: BaseException | None = None
    _thread: threading.Thread | None = None
    _ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        assert not self.variables and self.umask == -1, "those of a process"
        settings = load_settings(**{name.lower(): value for name, value in self.settings().items()})
        self.data.mkdir(parents=True, exist_ok=True)
        with_tables(self.data)
        self._write_log(settings.log_level)
        self.failure, made, known = None, threading.Event(), list[_Web]()

        def web(*arguments: Any) -> _Web:
            known.append(_Web(*arguments))
            made.set()
            return known[0]

        def run() -> None:
            _WHOSE.set(self)
            try:
                web_process.serve(settings)
            except BaseException as error:
                self.failure = error
            finally:
                made.set()

        with (
            _ONE_AT_A_TIME,
            patch.object(web_process, "_Server", web),
            patch.object(logs, "set_up", lambda level: None),
        ):
            self._thread = threading.Thread(target=run, name="web process", daemon=True)
            self._thread.start()
            assert made.wait(START_SECONDS)
        if not known:
            self.stop()
            raise self.failure or AssertionError("the server did not start")
        self.web = known[0]
        eventually(lambda: self.web.is_ready or not self._thread.is_alive(), START_SECONDS, every=0.005)  # type: ignore[union-attr]
        assert self._thread.is_alive(), (self.failure, self.log.read_text()[-3000:])
        self.web.listens.wait()
        self.port = self.web.port

    def _write_log(self, level: str) -> None:
        logger = logging.getLogger("cloakwork")
        file = self._ends.enter_context(self.log.open("a", encoding="utf-8"))
        lines = _Lines(file, self)
        for each, severity in ((logger, level.upper()), (logging.getLogger(logs.AUDIT), "INFO")):
            self._ends.callback(each.setLevel, each.level)
            each.setLevel(severity)
        logger.addHandler(lines)
        self._ends.callback(logger.removeHandler, lines)

    def stop(self) -> None:
        """As SIGTERM does it."""
        if self.web is not None and self._thread is not None and self._thread.is_alive():
            self.web.loop.call_soon_threadsafe(self.web.handle_exit, signal.SIGTERM, None)
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            assert not self._thread.is_alive()
        self._ends.close()
        self.web = self._thread = None

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs something in the service's loop."""
        assert self.web is not None
        return asyncio.run_coroutine_threadsafe(work, self.web.loop).result(STOP_SECONDS)

    def kill(self) -> None:
        raise AssertionError("a test that kills its server runs it as a process")

    @property
    def services(self) -> Services:
        assert self.web is not None
        return self.web.services

    @property
    def _engines(self) -> list[Engine]:
        return self.services.dispatcher.engines.all

    def kill_engine(self, by: signal.Signals = signal.SIGKILL) -> None:
        assert by == signal.SIGKILL and self.web is not None
        link: Any = self._engines[-1].link
        link.engine.end()
        self.web.loop.call_soon_threadsafe(link._writer.transport.abort)

    @contextmanager
    def engine_held(self) -> Iterator[None]:
        """Nothing that is sent to an engine is computed, or answered, meanwhile."""
        links: list[Any] = [each.link for each in self._engines]
        held = [link.engine for link in links]
        for engine in held:
            engine.may_run.clear()
        try:
            yield
        finally:
            for engine in held:
                engine.may_run.set()


class Clock:
    """The service's clocks, for which a test has time pass."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def time(self) -> float:
        return time.time() + self._ahead

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def pass_seconds(self, seconds: float) -> None:
        self._ahead += seconds


@contextmanager
def serving(data: Path, **options: Any) -> Iterator[LocalServer]:
    server = LocalServer(data, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass(frozen=True)
class Restarts:
    """How a server ends before it starts again: it is stopped, or its process is killed."""

    are_kills: bool

    def running(self, data: Path, **options: Any) -> AbstractContextManager[Server]:
        return (running if self.are_kills else serving)(data, **options)

    def of(self, server: Server) -> None:
        server.kill() if self.are_kills else server.stop()
        server.start()
