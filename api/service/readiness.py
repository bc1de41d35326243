"""Readiness of the service, determined once for all who ask at the same time; asking needs no API key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

_REMEMBER_SECONDS = 1.0


class Readiness:
    """`check` raises when the service is not ready; its outcome holds for a second."""

    def __init__(self, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._check = check
        self._looking: asyncio.Task[None] | None = None
        self._until = 0.0

    async def require(self) -> None:
        if self._looking is None or (self._looking.done() and time.monotonic() >= self._until):
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            await self._check()
        finally:
            self._until = time.monotonic() + _REMEMBER_SECONDS
