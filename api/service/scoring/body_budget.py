"""Bytes of bodies, of requests and their answers, held in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from cloakwork.api.errors import BusyError


class BodyBudget:
    """A limit for all together, and one for each tenant. The first body may be of any size: its model limits it."""

    def __init__(self, limit: int, tenant_limit: int) -> None:
        self._limit, self._tenant_limit = limit, tenant_limit
        self._held: Counter[str] = Counter()

    def facts(self) -> dict[str, int]:
        return {"held_bytes": self._held.total(), "limit_bytes": self._limit}

    @contextmanager
    def hold(self, tenant: str, count: int) -> Iterator[None]:
        """Holds memory for a body.

        Raises:
            BusyError: there is no room, for this tenant or for anybody.
        """
        every, mine = self._held.total(), self._held[tenant]
        if (every and every + count > self._limit) or (mine and mine + count > self._tenant_limit):
            whose = "requests" if every + count > self._limit else "of your requests"
            raise BusyError(f"too many {whose} are in memory at once; try again", retry_after=1)
        self._held[tenant] += count
        try:
            yield
        finally:
            self._held[tenant] -= count
            if not self._held[tenant]:
                del self._held[tenant]
