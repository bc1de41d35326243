"""A dispatcher whose engines are lists: they take what is sent, and end it when a test says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.engines import Engine
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY, Work
from cloakwork.api.settings import load_settings
from cloakwork.models.audit.audit_key import AuditKey


class FakeLink:
    """`runs`: the ids of each that was sent."""

    restarts = 0

    def __init__(self, engine: Engine, hello: dict[str, Any]) -> None:
        self.engine, self.hello = engine, hello
        self.up = False
        self.facts: dict[str, Any] = {}
        self.runs: list[list[str]] = []
        self.cancelled: list[str] = []
        self.forgotten: list[str] = []
        self.bodies: list[bytes] = []
        self.beside: list[bool] = []

    @property
    def sent(self) -> list[str]:
        return [identity for run in self.runs for identity in run]

    def start(self) -> None:
        self.up = True
        self.engine.greeted(self.hello)

    def die(self) -> None:
        self.up = False
        self.engine.died()

    def send(self, message: dict[str, Any], body: bytes = b"") -> None:
        assert self.up
        match message["op"]:
            case "cancel":
                self.cancelled.append(message["id"])
            case "forget":
                self.forgotten.append(message["key"])
            case "run":
                self.runs.append([part["id"] for part in message["parts"]])
                assert sum(part["bytes"] for part in message["parts"]) == len(body)
                self.bodies.append(body)
                self.beside.append(message["beside"])


class FakeEngines:
    """`heard`: what each work was told."""

    def __init__(self, workers: int = 2, spread: int = 2, devices: tuple[str, ...] = ("cpu",), **settings: Any) -> None:
        self.heard: dict[str, list[str]] = {}
        settings = {"devices": " ".join(devices), **settings}
        self.dispatcher = Dispatcher(load_settings(**settings), EngineOptions(), AuditKey(bytes(32)))
        self.dispatcher.engines.make(devices)
        self.links: list[FakeLink] = []
        for engine in self.dispatcher.engines.all:
            hello = {"workers": workers, "spread": spread, "build": {}}
            self.links.append(FakeLink(engine, hello))
            engine.link = self.links[-1]  # type: ignore[assignment]
        for link in self.links:
            link.start()

    @property
    def only(self) -> FakeLink:
        (link,) = self.links
        return link

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
        for link in self.links:
            if identity in link.sent:
                self.dispatcher._heard(link.engine, {"event": event, "id": identity, **facts}, b"")

    def where(self, identity: str) -> list[int]:
        """Which engines got it."""
        return [number for number, link in enumerate(self.links) if identity in link.sent]
