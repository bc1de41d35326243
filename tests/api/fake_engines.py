"""A dispatcher whose engines are lists: they take what is sent, and end it when a test says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cloakwork.api.engine.messages import (
    Cancel,
    Done,
    EngineOptions,
    Event,
    Failed,
    ForgetKey,
    Hello,
    KeyPlace,
    Message,
    ModelPlace,
    StartRun,
)
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.engines import Engine
from cloakwork.api.service.scoring.work import SYNCHRONOUS_PRIORITY, Work
from cloakwork.api.settings import load_settings
from cloakwork.models.audit.audit_key import AuditKey


class FakeLink:
    """`runs`: the ids of each that was sent."""

    restarts = 0

    def __init__(self, engine: Engine, hello: Hello) -> None:
        self.engine, self.hello = engine, hello
        self.up = False
        self.facts = None
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

    def send(self, message: Message) -> None:
        assert self.up
        match message:
            case Cancel(identity):
                self.cancelled.append(identity)
            case ForgetKey(key):
                self.forgotten.append(key)
            case StartRun():
                self.runs.append([part.id for part in message.parts])
                self.bodies.append(message.body)
                self.beside.append(message.beside)


class FakeEngines:
    """`heard`: what each work was told."""

    def __init__(self, workers: int = 2, spread: int = 2, devices: tuple[str, ...] = ("cpu",), **settings: Any) -> None:
        self.heard: dict[str, list[str]] = {}
        settings = {"devices": " ".join(devices), **settings}
        self.dispatcher = Dispatcher(load_settings(**settings), EngineOptions(), AuditKey(bytes(32)))
        self.dispatcher.engines.make(devices)
        self.links: list[FakeLink] = []
        for engine in self.dispatcher.engines.all:
            hello = Hello(1, engine.device, workers, spread, {})
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
        places = ModelPlace("program", model, Path(model)), KeyPlace(key, Path(key))
        facts = {"largest": 1000, **facts}

        def listen(event: Event) -> None:
            self.heard[identity].append(type(event).__name__.lower())

        self.heard[identity] = []
        self.dispatcher.submit(Work(identity, tenant, priority, *places, listen, seconds, claim=claim, **facts))
        return identity

    def end(self, identity: str, event: str = "done", busy_seconds: float | None = None) -> None:
        done = Done(identity, 0.0, "cpu", 0, busy_seconds=busy_seconds)
        for link in self.links:
            if identity in link.sent:
                self.dispatcher._heard(link.engine, done if event == "done" else Failed(identity, "code", 500, ""))

    def where(self, identity: str) -> list[int]:
        """Which engines got it."""
        return [number for number, link in enumerate(self.links) if identity in link.sent]
