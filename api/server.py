"""The web process: Uvicorn with limits on how slowly a client may speak."""

from __future__ import annotations

import asyncio
import logging
import socket

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cloakwork.api import logs
from cloakwork.api.application import create_app
from cloakwork.api.service.services import Services, prepare
from cloakwork.api.settings import Settings

_KEEP_ALIVE_SECONDS = 15
_STOP_SECONDS = 10
_HEADER_BYTES = 32 << 10

_log = logging.getLogger("cloakwork.server")


def limited_protocol(header_seconds: float) -> type[H11Protocol]:
    """HTTP/1.1 that closes connections whose request header does not arrive in time; Uvicorn would wait for ever."""

    class LimitedProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait_for_header()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._forget_timer()
            elif self._timer is None:
                self._wait_for_header()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_timer()
            super().connection_lost(exc)

        def _wait_for_header(self) -> None:
            self._timer = self.loop.call_later(header_seconds, self._give_up)

        def _forget_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.close()

    return LimitedProtocol


def serve(settings: Settings) -> int:
    """Until a signal; the exit status."""
    logs.set_up(settings.log_level)
    services = Services(settings)
    asyncio.run(prepare(settings, services.node.name))
    config = uvicorn.Config(
        create_app(services),
        host=settings.host,
        port=settings.port,
        http=limited_protocol(settings.header_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        proxy_headers=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    server = _Server(config, settings)
    server.run()
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, settings: Settings) -> None:
        super().__init__(config)
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            scheme = "https" if self._settings.tls_certificate else "http"
            for listening in self.servers:
                for each in listening.sockets:
                    host, port = each.getsockname()[:2]
                    _log.info("listening", extra={"url": f"{scheme}://{host}:{port}"})
