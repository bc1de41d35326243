"""Readiness is looked up once for everybody who asks."""

from __future__ import annotations

import asyncio

from cloakwork.api.errors import UnavailableError
from cloakwork.api.service.life import Readiness


def test_readiness_is_looked_up_once_for_many():
    looked: list[int] = []

    async def check() -> None:
        looked.append(1)
        await asyncio.sleep(0)  # lets the others ask
        if len(looked) > 1:
            raise UnavailableError("gone")

    async def run() -> None:
        readiness = Readiness(check)
        await asyncio.gather(*(readiness.require() for _ in range(50)))
        await readiness.require()
        assert len(looked) == 1
        readiness._until = 0.0
        for outcome in await asyncio.gather(*(readiness.require() for _ in range(50)), return_exceptions=True):
            assert isinstance(outcome, UnavailableError)
        assert len(looked) == 2

    asyncio.run(run())
