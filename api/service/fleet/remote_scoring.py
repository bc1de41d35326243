"""Checks of requests whose runs are a worker's: no key comes to this process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from cloakwork.api.errors import KeyRequiredError
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.scoring.scoring import Scoring

_ANSWER_SECONDS: Final = 2.0  # that a request waits for the storage to say so
_AWAY_SECONDS: Final = 10.0  # until it is asked again
_REMEMBER_SECONDS: Final = 60.0  # that an object is there; a worker that does not find it says so


class RemoteScoring(Scoring):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._seen: dict[str, float] = {}

    async def _key_file(self, key: KeyRecord) -> Path:
        moment = time.monotonic()
        if self._seen.get(key.id, 0.0) < moment:
            remember = _REMEMBER_SECONDS
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    held = await self._storage.holds(key.name, key.bytes)
            except OSError:  # whose worker may have it
                held, remember = True, _AWAY_SECONDS
            if not held:
                await self._uploads.lost(key)
                raise KeyRequiredError(f"the file of key '{key.id}' is lost; upload the key again: POST /v2/keys")
            self._seen = {name: until for name, until in self._seen.items() if until > moment}
            self._seen[key.id] = time.monotonic() + remember
        return self._storage.place(key.name)
