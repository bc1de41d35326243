"""Connections and their limits: for all, for one address and for one tenant, and a few kept for health."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

from cloakwork.api.errors import TooManyConnectionsError

SPARE: Final = 64  # beyond the limit: they may ask for health, and everything else gets 503
_IDLE_SECONDS: Final = 1.0  # a younger connection is about to send its request
_RETRY_SECONDS: Final = 5.0
_NETWORK_BITS: Final = 64  # of IPv6: what one customer has


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
