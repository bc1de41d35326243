"""The web process: Uvicorn with limits on connections and on how slowly a client may speak and read."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import platform
import signal
import socket
import time
from types import FrameType

import uvicorn

from cloakwork.api import logs, terminal
from cloakwork.api.application import create_app
from cloakwork.api.http.connections import Connections
from cloakwork.api.http.descriptors import Exhaustion, allow_connections
from cloakwork.api.http.gate import HEADER_BYTES
from cloakwork.api.http.limited_protocol import limited_protocol
from cloakwork.api.http.page_content import read_content
from cloakwork.api.release import release
from cloakwork.api.service.services import Services, wire
from cloakwork.api.settings import Settings, is_loopback
from cloakwork.api.start_checks import prepare, require_certificate, require_places, require_port

_KEEP_ALIVE_SECONDS = 15
_STOP_SECONDS = 10
_LOOK_TICKS = 10  # of a tenth of a second

_log = logging.getLogger("cloakwork.server")


def serve(settings: Settings) -> int:
    """Serves until a signal, and returns the exit status."""
    logs.set_up(settings.log_level)
    _log.info("starting", extra=_about(settings))
    require_places(settings)
    require_certificate(settings)
    require_port(settings.host, settings.port)
    room = allow_connections(settings.max_connections)
    services = wire(settings)
    services.budgets.tell()
    asyncio.run(prepare(settings, services.node.name, services.storage))
    connections = Connections(room.connections, settings.max_address_connections, settings.max_tenant_connections)
    config = uvicorn.Config(
        create_app(services),
        host=settings.host,
        port=settings.port,
        backlog=room.backlog,
        http=limited_protocol(connections, settings.header_seconds, settings.body_idle_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds) if settings.shared else _STOP_SECONDS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        proxy_headers=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    server = _Server(config, settings, connections, services)
    server.run()
    return 0 if server.started else 1


def _about(settings: Settings) -> dict[str, object]:
    """Returns what runs, and how it is set: without secrets."""
    return {
        "version": release(),
        "python": platform.python_version(),
        "pid": os.getpid(),
        "settings": settings.facts(),
    }


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, settings: Settings, connections: Connections, services: Services
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._connections = connections
        self._services = services
        self._began = time.monotonic()
        self._signal: int | None = None
        self._cut_off = 0
        self._telling: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles signals; the second signal, of either kind, waits for nobody."""
        self._signal = sig
        self._services.life.stop_soon()
        super().handle_exit(signal.SIGINT if self.should_exit else sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._settings.tls_certificate:
            # Uvicorn has no option for it; a connection counts from the end of its handshake.
            loop = asyncio.get_running_loop()
            patient = functools.partial(loop.create_server, ssl_handshake_timeout=self._settings.header_seconds)
            loop.create_server = patient  # type: ignore[method-assign]
        asyncio.get_running_loop().set_exception_handler(Exhaustion().handle)
        await super().startup(sockets)
        if self.started:
            urls = self._urls()
            for url in urls:
                _log.info("listening", extra={"url": url})
            if not self._settings.tls_certificate and not is_loopback(self._settings.host):
                _log.warning("API keys are sent in clear: set tls_certificate, or put a proxy with TLS in front")
            self._telling = asyncio.create_task(self._tell(urls))

    def _urls(self) -> list[str]:
        scheme = "https" if self._settings.tls_certificate else "http"
        names = [each.getsockname() for listening in self.servers for each in listening.sockets]
        return [f"{scheme}://{f'[{name[0]}]' if len(name) > 2 else name[0]}:{name[1]}" for name in names]

    async def _tell(self, urls: list[str]) -> None:
        """Which models are served, and which are not: to whoever looks at a terminal, or to the log."""
        on_terminal = terminal.is_terminal()
        if on_terminal:
            terminal.say(terminal.listening(urls))
        bar = asyncio.create_task(terminal.show_preparing(self._services)) if on_terminal else None
        try:
            await self._services.life.opened()
        except Exception:
            return  # the log says why
        finally:
            if bar is not None:
                bar.cancel()
                await asyncio.gather(bar, return_exceptions=True)
        models, refused = terminal.models_by_state(self._services)
        if on_terminal:
            terminal.say(terminal.ready(self._services, urls, bool(read_content())))
        else:
            _log.info("models", extra={"ready": models, "refused": refused})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shuts down; the last line is written here: Uvicorn ends the process by the signal that it got."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        await super().shutdown(sockets)
        services = self._services
        unfinished = max(services.life.unfinished_runs, services.dispatcher.running)
        _log.info(
            "ended",
            extra={
                "signal": None if self._signal is None else signal.Signals(self._signal).name,
                "uptime_seconds": round(time.monotonic() - self._began, 3),
                "requests": services.metrics.requests_answered,
                "drained": not (self._cut_off or unfinished),
                "requests_cut_off": self._cut_off,
                "runs_unfinished": unfinished,
            },
        )

    async def _wait_tasks_to_complete(self) -> None:
        """Those that are left when the time is over are cancelled."""
        try:
            await super()._wait_tasks_to_complete()
        finally:
            self._cut_off = len(self.server_state.tasks)

    async def on_tick(self, counter: int) -> bool:
        if counter % _LOOK_TICKS == 0:
            self._connections.look()
        return await super().on_tick(counter)
