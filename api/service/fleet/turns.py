"""Clocks of tenants in the database: what each has been charged, and from where it goes on (`choice`)."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cloakwork.api.service.fleet.choice import Clocks, Head

_CHARGE = """
INSERT INTO turns (level, tenant, clock) VALUES (:level, :tenant, CAST(:start AS float) + CAST(:seconds AS float))
ON CONFLICT (level, tenant) DO UPDATE SET clock = GREATEST(turns.clock, CAST(:start AS float)) + CAST(:seconds AS float)
"""


def level_of(priority: int) -> int:
    """Works as `Work.level`: jobs above the default priority go before what others have."""
    return priority if 5 < priority < 10 else 0


async def clocks_of(connection: AsyncConnection, heads: list[Head]) -> Clocks:
    tenants = sorted({head.tenant for head in heads} | {""})
    query = "SELECT level, tenant, clock FROM turns WHERE tenant = ANY(:tenants)"
    rows = (await connection.execute(text(query), {"tenants": tenants})).all()
    return {(row.level, row.tenant): row.clock for row in rows}


def with_time(
    charges: dict[tuple[int, str], tuple[float, float]], heads: list[Head], clocks: Clocks
) -> dict[tuple[int, str], tuple[float, float]]:
    """Returns the time of all, the earliest clock of those that wait: nobody who waits falls behind it."""
    times: dict[tuple[int, str], tuple[float, float]] = {}
    for level in {level for level, _ in charges}:
        time = clocks.get((level, ""), 0.0)
        earliest = min(max(clocks.get((level, head.tenant), 0.0), time) for head in heads if head.level == level)
        times[level, ""] = earliest, 0.0
    return {**charges, **times}


async def charge(connection: AsyncConnection, charges: dict[tuple[int, str], tuple[float, float]]) -> None:
    for (level, tenant), (start, seconds) in sorted(charges.items()):  # in one order: no two wait for each other
        values = {"level": level, "tenant": tenant, "start": start, "seconds": seconds}
        await connection.execute(text(_CHARGE), values)
