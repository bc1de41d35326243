"""What the engine is asked to run, and how each kind of model is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from cloakwork.api.engine.residency import KeyPlace

Progress: TypeAlias = Callable[[int, int], bool]
Query = TypeVar("Query")


@dataclass(frozen=True)
class ModelPlace:
    """A model's file and its SHA-256."""

    kind: str
    digest: str
    path: Path


@dataclass(frozen=True)
class Request:
    """A model and a key, by name and file, and one object of ciphertexts."""

    model: ModelPlace
    key: KeyPlace
    samples: int
    body: bytes


@dataclass(frozen=True)
class Outcome:
    body: bytes
    seconds: float  # of computing alone, without loading keys
    device: str


class Scorer(Protocol, Generic[Query]):
    """Runs requests to models of one kind."""

    def read(self, request: Request) -> Query:
        """The ciphertexts. Before the key is expanded: bad bytes cost nothing."""

    def is_large(self, request: Request, threads: int) -> bool:
        """Whether so many threads bring more than they cost."""

    def answer(
        self, request: Request, query: Query, device: str, threads: int, progress: Progress | None
    ) -> Outcome: ...
