"""A dispatcher whose engine is a list: it takes what is sent, and ends it when a test says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY, Work
from cloakwork.api.settings import load_settings
from cloakwork.models.audit.audit_key import AuditKey


class FakeEngine:
    """`runs`: the ids of each that was sent, `heard`: what each work was told."""

    def __init__(self, workers: int = 2, spread: int = 2, **settings: Any) -> None:
        self.up = True
        self.runs: list[list[str]] = []
        self.cancelled: list[str] = []
        self.heard: dict[str, list[str]] = {}
        self.bodies: list[bytes] = []
        self._hello = {"workers": workers, "spread": spread, "devices": ["cpu"]}
        options = EngineOptions((), 2, 0, 0, "info")
        self.dispatcher = Dispatcher(load_settings(**settings), options, AuditKey(bytes(32)))
        self.dispatcher.link = self  # type: ignore[assignment]
        self.start()

    @property
    def sent(self) -> list[str]:
        return [identity for run in self.runs for identity in run]

    def start(self) -> None:
        self.up = True
        self.dispatcher._up(self._hello)

    def die(self) -> None:
        self.up = False
        self.dispatcher._lost()

    def send(self, message: dict[str, Any], body: bytes = b"") -> None:
        if message["op"] == "cancel":
            self.cancelled.append(message["id"])
        else:
            self.runs.append([part["id"] for part in message["parts"]])
            assert sum(part["bytes"] for part in message["parts"]) == len(body)
            self.bodies.append(body)

    def submit(
        self,
        tenant: str = "a",
        priority: int = SYNCHRONOUS_PRIORITY,
        *,
        key: str = "key",
        model: str = "model",
        seconds: float = 0.01,
        claim: Callable[[], Awaitable[bool]] | None = None,
        **facts: Any,
    ) -> str:
        identity = f"{tenant}{len(self.heard)}"
        message = {"model": {"digest": model}, "key": {"name": key}}
        facts = {"largest": 1000, **facts}

        def listen(message: dict[str, Any], body: bytes) -> None:
            self.heard[identity].append(message["event"])

        self.heard[identity] = []
        self.dispatcher.submit(Work(identity, tenant, priority, message, listen, seconds, claim=claim, **facts))
        return identity

    def end(self, identity: str, event: str = "done", **facts: Any) -> None:
        self.dispatcher._heard({"event": event, "id": identity, **facts}, b"")
