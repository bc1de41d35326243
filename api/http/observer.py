"""Records of a finished request: a line of the log with the client's address, metrics, and the count of the last minutes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from starlette.types import Scope

from cloakwork.api.http.gate import values_of
from cloakwork.api.http.route_names import RouteNames, method_name
from cloakwork.api.metrics import Metrics

_HOPS: Final = 16  # that are followed back
_PATH_CHARACTERS: Final = 256  # of a path in the log
_ADMINISTRATION: Final = "/v2/admin/"  # who looks at the load adds nothing to it
_log = logging.getLogger("cloakwork.access")


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


@dataclass(frozen=True)
class AnsweredRequest:
    """Bytes are those of bodies; `seconds` end with the last byte that went out."""

    status: int
    seconds: float
    received_bytes: int
    sent_bytes: int


class Observer:
    def __init__(self, metrics: Metrics, routes: RouteNames, addresses: ClientAddresses) -> None:
        self._metrics, self._routes, self._addresses = metrics, routes, addresses

    def record(self, scope: Scope, outcome: AnsweredRequest) -> None:
        state: dict[str, Any] = scope["state"]
        model, route = state.get("model", ""), self._routes.of(scope["path"])
        self._metrics.requests.labels(model, str(outcome.status)).inc()
        self._metrics.answered(method_name(scope["method"]), route, outcome.status, outcome.seconds)
        if not scope["path"].startswith(_ADMINISTRATION):
            self._metrics.activity.answered(outcome.status, state.get("code"))
        _log.info(
            "request",
            extra={
                "request_id": state["request_id"],
                "client": self._addresses.of(scope),
                "method": scope["method"],
                "route": route,
                "path": scope["path"][:_PATH_CHARACTERS],
                "status": outcome.status,
                "seconds": round(outcome.seconds, 6),
                "received_bytes": outcome.received_bytes,
                "sent_bytes": outcome.sent_bytes,
                "tenant": state.get("tenant"),
                **({"model": model} if model else {}),
                **({"code": state["code"]} if "code" in state else {}),
            },
        )
