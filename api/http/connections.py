"""Connections and their limits: as many as the system has open files for, for one address and for one tenant, and how slow each may be."""

from __future__ import annotations

import asyncio
import errno
import http
import json
import logging
import resource
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Protocol
from uuid import uuid4

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cloakwork.api.errors import TooManyConnectionsError
from cloakwork.api.http.route_names import NO_ROUTE
from cloakwork.fhe_core.errors import ParameterError

OTHER_FILES: Final = 256  # beside connections: libraries, database, uploads, results, connections that ask for health
_LEAST_OTHER: Final = 128
_LEAST_CONNECTIONS: Final = 8
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
_REPORT_SECONDS: Final = 60.0

_log = logging.getLogger("cloakwork.server")
SPARE: Final = 64  # beyond the limit: they may ask for health, and everything else gets 503
_IDLE_SECONDS: Final = 1.0  # a younger connection is about to send its request
_RETRY_SECONDS: Final = 5.0
_NETWORK_BITS: Final = 64  # of IPv6: what one customer has
_SPARE_HEADER_SECONDS: Final = 2.0
_LINGER_SECONDS: Final = 0.5
_LEAST_BYTES_PER_SECOND: Final = 4096  # that a client reads, on the average
_REASONS: Final = {
    400: ("bad_request", "this is no HTTP/1.1 request"),
    431: ("header_too_large", "the request's header is too large"),
    501: ("not_implemented", "the request's transfer coding is not supported; send a Content-Length"),
}
_access_log = logging.getLogger("cloakwork.access")


@dataclass(frozen=True)
class Room:
    """Connections at a time, each with a file that it writes, and how many may be accepted before the first of them is looked at."""

    connections: int
    backlog: int = 2048


def allow_connections(connections: int) -> Room:
    """Raises the limit of open files as far as the system lets it, and returns what fits.

    Raises:
        ParameterError: too few for any service.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    required = 2 * connections + OTHER_FILES
    if soft == resource.RLIM_INFINITY:
        return Room(connections)
    if soft >= required:
        return _room(soft, connections)
    allowed = required if hard == resource.RLIM_INFINITY else min(required, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == required:
        return _room(allowed, connections)
    fit = min(connections, (allowed - _LEAST_OTHER) // 2)
    if fit < _LEAST_CONNECTIONS:
        raise ParameterError(
            f"open files: the system allows {allowed}, and a service needs {_LEAST_OTHER + 2 * _LEAST_CONNECTIONS} at least; raise the hard limit "
            "(ulimit -Hn, LimitNOFILE)"
        )
    _log.warning(
        "the system allows fewer open files than max_connections needs: there will be fewer connections",
        extra={"allowed": allowed, "wanted": required, "max_connections": fit},
    )
    return _room(allowed, fit)


def _room(allowed: int, connections: int) -> Room:
    return Room(connections, min(Room.backlog, max(_LEAST_CONNECTIONS, allowed - _LEAST_OTHER - connections - SPARE)))


class Exhaustion:
    """Says once a minute that no file can be opened: asyncio would say it thousands of times a second."""

    def __init__(self) -> None:
        self._reported = -_REPORT_SECONDS

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handles exceptions of a loop."""
        if not self.report(context.get("exception")):
            loop.default_exception_handler(context)

    def report(self, error: object) -> bool:
        """Whether it is that error."""
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            return False
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            _log.error("the system allows no more open files", extra={"error": errno.errorcode[error.errno]})
        return True


class Owner(Protocol):
    """The protocol of a connection."""

    def close_idle(self) -> None: ...

    def look(self, now: float) -> None:
        """Watches the connection once a second: ends the connection if its client has stopped reading."""


@dataclass(eq=False)
class Connection:
    address: str
    owner: Owner
    register: Connections
    spare: bool
    tenant: str | None = None  # who authenticated on it last
    busy: bool = False  # a request is being answered
    healthy: bool = False  # and it asks for health
    since: float = field(default_factory=time.monotonic)  # idle or busy

    def begin(self, *, healthy: bool) -> None:
        """Begins a request."""
        self.busy, self.healthy, self.since = True, healthy, time.monotonic()

    def end(self) -> None:
        self.busy, self.healthy, self.since = False, False, time.monotonic()


class Connections:
    """Connections of the service. `address_limit` 0: none."""

    def __init__(self, limit: int, address_limit: int, tenant_limit: int) -> None:
        self._limit, self._address_limit, self._tenant_limit = limit, address_limit, tenant_limit
        self._admitted: set[Connection] = set()
        self._spare: dict[Connection, None] = {}  # the oldest first

    def admit(self, address: str, owner: Owner) -> Connection | None:
        """Returns a place; a spare one where there is no other, for which the oldest spare one may have to go. None where there is none at all."""
        network = _network(address)
        if self._has_room(network):
            connection = Connection(network, owner, self, spare=False)
            self._admitted.add(connection)
            return connection
        if len(self._spare) >= SPARE:
            oldest = next((each for each in self._spare if not each.healthy), None)
            if oldest is None:
                return None
            self._end(oldest)
        connection = Connection(network, owner, self, spare=True)
        self._spare[connection] = None
        return connection

    def release(self, connection: Connection) -> None:
        self._admitted.discard(connection)
        self._spare.pop(connection, None)

    def claim(self, connection: Connection, tenant: str) -> None:
        """Marks the connection as this tenant's from now on, idle or not.

        Raises:
            TooManyConnectionsError: the tenant has as many as it may, and all are busy.
        """
        if connection.tenant == tenant or connection not in self._admitted:
            return
        mine = [each for each in self._admitted if each.tenant == tenant]
        if len(mine) >= self._tenant_limit and not self._end_longest_idle(mine):
            raise TooManyConnectionsError(
                f"you have {len(mine)} connections, as many as one tenant may; end some, event streams among them, or wait",
                retry_after=_RETRY_SECONDS,
            )
        connection.tenant = tenant

    def facts(self) -> dict[str, int]:
        """Counts the connections that are open, those beyond the limit too, and those of them that ask something."""
        every = [*self._admitted, *self._spare]
        return {"open": len(every), "busy": sum(each.busy for each in every), "limit": self._limit}

    def look(self) -> None:
        now = time.monotonic()
        for connection in [*self._admitted, *self._spare]:
            connection.owner.look(now)

    def _has_room(self, network: str) -> bool:
        """Connections on which nobody asks anything make room for new ones."""
        if self._address_limit:
            same = [each for each in self._admitted if each.address == network]
            if len(same) >= self._address_limit and not self._end_longest_idle(same):
                return False
        return len(self._admitted) < self._limit or self._end_longest_idle(self._admitted)

    def _end_longest_idle(self, connections: Iterable[Connection]) -> bool:
        idle = [each for each in connections if not each.busy and time.monotonic() - each.since >= _IDLE_SECONDS]
        if not idle:
            return False
        self._end(min(idle, key=lambda each: each.since))
        return True

    def _end(self, connection: Connection) -> None:
        self.release(connection)
        connection.owner.close_idle()


def refuse_spare(connection: Connection) -> None:
    """Refuses a request on a spare connection.

    Raises:
        TooManyConnectionsError: the connection is beyond the limit.
    """
    if connection.spare:
        raise TooManyConnectionsError(
            "the service, or your address, has as many connections as it may; try again", retry_after=_RETRY_SECONDS
        )


def _network(address: str) -> str:
    """Returns what is counted as one address."""
    try:
        parsed_address = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed_address, IPv6Address):
        return str(parsed_address)
    if parsed_address.ipv4_mapped is not None:
        return str(parsed_address.ipv4_mapped)
    return str(IPv6Address(int(parsed_address) >> (128 - _NETWORK_BITS) << (128 - _NETWORK_BITS)))


class LimitedProtocol(H11Protocol):
    """The protocol of one connection. Uvicorn makes them from a class and nothing else, so that what all have in common belongs to a subclass."""

    _register: Connections
    _header_seconds: float  # until a request's header is complete
    _idle_seconds: float  # that an answer may lie unread

    _entry: Connection | None = None
    _timer: asyncio.TimerHandle | None = None
    _refused = False
    _unread: tuple[float, int] | None = None  # since when so many bytes lie here

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._entry = self._register.admit(self.client[0] if self.client else "", self)
        if self._entry is None:
            transport.abort()
            return
        self.app_state = {**self.app_state, "connection": self._entry}
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget_timer()
        elif self._timer is None:
            self._wait_for_header()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0] and self._timer is None:
            self._wait_for_header()  # the beginning of a request that came before this answer

    def connection_lost(self, exc: Exception | None) -> None:
        if self._entry is not None:
            self._register.release(self._entry)
        self._forget_timer()
        super().connection_lost(exc)

    # --- clients that do not speak ---

    def _wait_for_header(self) -> None:
        spare = self._entry is not None and self._entry.spare
        self._timer = self.loop.call_later(
            min(self._header_seconds, _SPARE_HEADER_SECONDS) if spare else self._header_seconds, self._give_up
        )

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.close_idle()

    def close_idle(self) -> None:
        """Closes it; what was answered and not yet read has `idle_seconds` to go out."""
        if not self.transport.is_closing():
            self.transport.close()
            if self.transport.get_write_buffer_size():
                self.loop.call_later(self._idle_seconds, self.transport.abort)

    # --- clients that do not read ---

    def look(self, now: float) -> None:
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None:
            self._unread = (now, left)
        elif now - self._unread[0] >= self._idle_seconds:
            since, before = self._unread
            if before - left < _LEAST_BYTES_PER_SECOND * (now - since):
                self.transport.abort()
            self._unread = (now, left)

    def resume_writing(self) -> None:
        self._unread = None  # nearly all was read
        super().resume_writing()

    # --- requests that are none ---

    def send_400_response(self, msg: str) -> None:
        """Sends the error in the words of every other error. Called while Uvicorn handles h11's exception, which knows the status."""
        self._forget_timer()
        self._refused = True
        begun = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.cycle.disconnected = True  # a body that broke: whoever reads it hears that it ended
            self.cycle.message_event.set()
        if begun:
            self.close_idle()
            return
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        identity = uuid4().hex
        self.transport.write(_answer(status, identity))
        self._say(status, identity)
        # Not at once: a reset on what still comes would take the answer away.
        self.loop.call_later(_LINGER_SECONDS, self.close_idle)

    def _say(self, status: int, identity: str) -> None:
        """In the words of every other request, as far as there are any: it never got a route."""
        client = None if self.client is None else self.client[0]
        code, _ = _reason(status)
        about = {"request_id": identity, "client": client, "method": None, "route": NO_ROUTE, "status": status}
        _access_log.info("request", extra={**about, "code": code})

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to say: the request is answered as if it had not asked to switch."""


def limited_protocol(connections: Connections, header_seconds: float, idle_seconds: float) -> type[H11Protocol]:
    """`header_seconds`: until a request's header is complete; `idle_seconds`: that an answer may lie unread."""
    common = {"_register": connections, "_header_seconds": header_seconds, "_idle_seconds": idle_seconds}
    return type("LimitedProtocol", (LimitedProtocol,), common)


def _reason(status: int) -> tuple[str, str]:
    """Returns the code of the error and its text."""
    return _REASONS.get(status, _REASONS[400])


def _answer(status: int, identity: str) -> bytes:
    code, text = _reason(status)
    body = json.dumps({"error": text, "code": code, "request_id": identity})
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
        f"X-Request-Id: {identity}",
    )
    return "\r\n".join((*head, "", body)).encode()
