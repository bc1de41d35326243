"""The web process: Uvicorn with limits on connections and on how slowly a client may speak and read; what it says on a terminal."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import platform
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from cloakwork.api import logs
from cloakwork.api.application import create_app
from cloakwork.api.http.connections import Connections, Exhaustion, allow_connections, limited_protocol
from cloakwork.api.http.gate import HEADER_BYTES
from cloakwork.api.http.page_content import read_content
from cloakwork.api.service.services import Services, wire
from cloakwork.api.settings import Settings, is_loopback, release
from cloakwork.api.start_checks import prepare, require_certificate, require_places, require_port
from cloakwork.models.repository_files import FACTS, ZOO_FOLDER, by_model

_LOOK_SECONDS: Final = 0.5
_BAR_COLUMNS: Final = 20
_GONE: Final = ("retired", "removed")
_REASONS: Final = {
    "structured_refused": "its parameter set has structured secrets; start with --structured",
    "unloaded": "unloaded; POST /v2/repository/models/NAME/load loads it",
    "missing": "its file is missing",
}
_KEEP_ALIVE_SECONDS = 15
_STOP_SECONDS = 10
_LOOK_TICKS = 10  # of a tenth of a second
_log = logging.getLogger("cloakwork.server")


def is_terminal() -> bool:
    return sys.stderr.isatty()


def models_by_state(services: Services) -> tuple[list[str], dict[str, str]]:
    """Names with versions: those in service, and the others with the reason."""
    entries = [entry for entry in services.models.index() if entry["reason"] not in _GONE]
    ready = [_name(entry) for entry in entries if entry["state"] == "READY"]
    refused = {_name(entry): _REASONS.get(entry["reason"], entry["reason"]) for entry in entries if entry["reason"]}
    return ready, refused


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['name']}/{entry['version']}"


def listening(urls: list[str]) -> str:
    return f"cloakwork {release()} listens on {' '.join(urls)} and reads its models; Ctrl-C ends it."


def ready(services: Services, urls: list[str], has_page: bool) -> str:
    models, refused = models_by_state(services)
    lines = [f"ready: {', '.join(models) or 'no model; put one into ' + str(services.models.repository)}"]
    lines += [f"refused: {name}: {reason}" for name, reason in refused.items()]
    settings = services.settings
    if settings.page and settings.serves:
        where = ", ".join(f"{urls[0]}{path}" for path in ("/", "/docs", "/admin")[: 3 if settings.admin_page else 2])
        lines.append(f"page: {where}" if has_page else f"page: not built; {urls[0]}/ says how")
    return "\n".join(lines)


def prepared(repository: Path, zoo: bool) -> tuple[int, int]:
    """Counts the models that are compiled and described, and all: the first start compiles those of the zoo."""
    versions = [each for model in by_model(repository) for each in model]
    names = {path.stem for path in ZOO_FOLDER.glob("*.json") if "." not in path.stem} if zoo else set()
    missing = names - {each.parent.name for each in versions}
    described = sum(each.with_suffix(FACTS).is_file() for each in versions)
    return len(versions) + described, 2 * (len(versions) + len(missing))


async def show_preparing(services: Services) -> None:
    """Draw a progress bar until it is cancelled; the cursor stays at its beginning, where the next line of the log goes."""
    try:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            done, total = await asyncio.to_thread(prepared, services.models.repository, services.settings.zoo)
            filled = _BAR_COLUMNS * done // max(1, total)
            bar = "#" * filled + "." * (_BAR_COLUMNS - filled)
            _draw(f"preparing models [{bar}] {100 * done // max(1, total)} %")
    finally:
        _draw("")


def _draw(text: str) -> None:
    print(f"\r\x1b[K{text}\r", end="", file=sys.stderr, flush=True)  # noqa: T201


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


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
        on_terminal = is_terminal()
        if on_terminal:
            say(listening(urls))
        bar = asyncio.create_task(show_preparing(self._services)) if on_terminal else None
        try:
            await self._services.life.opened()
        except Exception:
            return  # the log says why
        finally:
            if bar is not None:
                bar.cancel()
                await asyncio.gather(bar, return_exceptions=True)
        models, refused = models_by_state(self._services)
        if on_terminal:
            say(ready(self._services, urls, bool(read_content())))
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
