"""Bytes of request bodies held in memory, all together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cloakwork.api.errors import BusyError


class BodyBudget:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @contextmanager
    def hold(self, count: int) -> Iterator[None]:
        if self._held and self._held + count > self._limit:
            raise BusyError("too many requests are being read at once; try again", retry_after=1)
        self._held += count
        try:
            yield
        finally:
            self._held -= count
