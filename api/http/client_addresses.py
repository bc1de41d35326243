"""Addresses of clients: the other end of the connection, or the one that a trusted proxy names."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from starlette.types import Scope

from cloakwork.api.http.gate import values_of

_HOPS: Final = 16  # that are followed back


class ClientAddresses:
    """Client addresses for the log only: limits count connections, whichever client they serve.

    Args:
        proxies: addresses and networks whose `X-Forwarded-For` is believed.

    Raises:
        ValueError: one of them is neither.
    """

    def __init__(self, proxies: Iterable[str]) -> None:
        self._networks = [ip_network(each) for each in proxies]

    def of(self, scope: Scope) -> str | None:
        """Returns the last address on the way that is no trusted proxy's: what stands before it may be made up."""
        client = scope.get("client")
        client_address = None if client is None else _address(client[0])
        if client_address is None or not self._trusts(client_address):
            return None if client_address is None else str(client_address)
        forwarded = b",".join(values_of(scope["headers"], b"x-forwarded-for")).rsplit(b",", _HOPS)
        for name in reversed(forwarded[-_HOPS:]):
            address = _address(name.decode("latin-1"))
            if address is None:
                break
            client_address = address
            if not self._trusts(client_address):
                break
        return str(client_address)

    def _trusts(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Reads an address without a port, which some proxies add, and a zone; IPv4 as such where a socket of IPv6 shows it."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
