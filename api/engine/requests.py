"""Requests of the engine, and the runner for each kind of model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from cloakwork.api.engine.messages import KeyPlace, ModelPlace

Progress: TypeAlias = Callable[[int, int], bool]
Query = TypeVar("Query")


@dataclass(frozen=True)
class RunRequest:
    """A model and a key, by name and file, and one object of ciphertexts."""

    model: ModelPlace
    key: KeyPlace
    samples: int
    body: bytes


@dataclass(frozen=True)
class Outcome:
    body: bytes
    seconds: float  # of computing alone, without loading keys; its share, where requests were computed as one
    device: str


class Scorer(Protocol, Generic[Query]):
    """Runs requests to models of one kind."""

    def read(self, request: RunRequest) -> Query:
        """Reads the ciphertexts, before the key is expanded, so that bad bytes cost little."""

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        """Whether this many threads bring more than they cost."""

    def answer(
        self,
        requests: Sequence[RunRequest],
        queries: Sequence[Query],
        threads: int,
        progress: Progress | None,
    ) -> list[Outcome]:
        """Answers requests of one key to one model in one evaluation: to each the bytes that it would have alone."""


def shares(requests: Sequence[RunRequest], seconds: float) -> list[float]:
    """Divides the seconds of a run by samples."""
    every = sum(request.samples for request in requests)
    return [seconds * request.samples / every for request in requests]
