"""Records of a finished request: a line of the log, metrics, and the count of the last minutes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Scope

from cloakwork.api.http.client_addresses import ClientAddresses
from cloakwork.api.http.route_names import RouteNames, method_name
from cloakwork.api.metrics import Metrics

_PATH_CHARACTERS: Final = 256  # of a path in the log
_ADMINISTRATION: Final = "/v2/admin/"  # who looks at the load adds nothing to it

_log = logging.getLogger("cloakwork.access")


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
