"""What tenants use: bootstraps and bytes, against their limits."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import func, select

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import evaluation_keys, jobs, usage
from cloakwork.api.errors import QuotaError
from cloakwork.api.service.clock import seconds_to_midnight, today
from cloakwork.api.service.tenants import Tenant
from cloakwork.api.settings import Settings

COUNTERS = ("requests", "samples", "bootstraps", "uploaded_bytes")
_BYTES_RETRY_SECONDS = 3600.0


class Usage:
    """Counts in memory and adds to the database about once a second: short requests need no write of their own.

    A service that is killed forgets at most what the last second counted.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._pending: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTERS, 0))
        self._bootstraps_today: dict[tuple[str, str], int] = {}

    def count(self, tenant: str, **amounts: int) -> None:
        pending = self._pending[tenant]
        for counter, amount in amounts.items():
            pending[counter] += amount
        key = (tenant, today())
        if key in self._bootstraps_today:
            self._bootstraps_today[key] += amounts.get("bootstraps", 0)

    async def flush(self) -> None:
        pending, self._pending = dict(self._pending), defaultdict(lambda: dict.fromkeys(COUNTERS, 0))
        if not pending:
            return
        day = today()
        try:
            async with self._database.write() as connection:
                for tenant, amounts in pending.items():
                    place = (usage.c.tenant == tenant) & (usage.c.day == day)
                    added = {name: usage.c[name] + amount for name, amount in amounts.items()}
                    updated = await connection.execute(usage.update().where(place).values(**added))
                    if not updated.rowcount:
                        await connection.execute(usage.insert().values(tenant=tenant, day=day, **amounts))
        except BaseException:
            for tenant, amounts in pending.items():
                for name, amount in amounts.items():
                    self._pending[tenant][name] += amount
            raise

    # --- limits ---

    def max_bytes(self, tenant: Tenant) -> int:
        return self._settings.tenant_bytes if tenant.max_bytes is None else tenant.max_bytes

    def max_bootstraps(self, tenant: Tenant) -> int:
        own = tenant.max_bootstraps_per_day
        return self._settings.tenant_bootstraps_per_day if own is None else own

    async def require_bootstraps(self, tenant: Tenant, bootstraps: int, pending: int = 0) -> None:
        """`pending` are those of requests that were accepted before and have not run."""
        used, limit = await self._today(tenant.name) + pending, self.max_bootstraps(tenant)
        if used + bootstraps > limit:
            raise QuotaError(
                f"this request needs {bootstraps} bootstraps; {used} of today's {limit} are used or waiting, they begin again at midnight UTC",
                retry_after=seconds_to_midnight(),
            )

    async def require_bytes(self, tenant: Tenant, count: int) -> None:
        stored, limit = sum((await self.stored_bytes(tenant.name)).values()), self.max_bytes(tenant)
        if stored + count > limit:
            raise QuotaError(
                f"this needs {count} bytes; {stored} of {limit} are taken, delete keys or finished jobs first",
                retry_after=_BYTES_RETRY_SECONDS,
            )

    async def _today(self, tenant: str) -> int:
        key = (tenant, today())
        if key not in self._bootstraps_today:
            self._bootstraps_today = {k: v for k, v in self._bootstraps_today.items() if k[1] == key[1]}
            query = select(usage.c.bootstraps).where(usage.c.tenant == tenant, usage.c.day == key[1])
            async with self._database.read() as connection:
                stored = (await connection.execute(query)).scalar() or 0
            self._bootstraps_today.setdefault(key, stored + self._pending[tenant]["bootstraps"])
        return self._bootstraps_today[key]

    async def stored_bytes(self, tenant: str) -> dict[str, int]:
        """Keys count from the moment their upload is opened, inputs while a job waits or runs, results until they are gone."""
        waiting = jobs.c.state.in_(("queued", "running"))
        sums = {
            "keys": select(func.sum(evaluation_keys.c.bytes)).where(evaluation_keys.c.tenant == tenant),
            "inputs": select(func.sum(jobs.c.input_bytes)).where(jobs.c.tenant == tenant, waiting),
            "results": select(func.sum(jobs.c.result_bytes)).where(jobs.c.tenant == tenant),
        }
        async with self._database.read() as connection:
            return {name: int((await connection.execute(query)).scalar() or 0) for name, query in sums.items()}

    async def report(self, tenant: Tenant) -> dict[str, Any]:
        await self.flush()
        stored = await self.stored_bytes(tenant.name)
        days = select(usage).where(usage.c.tenant == tenant.name).order_by(usage.c.day.desc()).limit(31)
        states = select(jobs.c.state, func.count()).where(jobs.c.tenant == tenant.name).group_by(jobs.c.state)
        async with self._database.read() as connection:
            by_day = (await connection.execute(days)).all()
            by_state = (await connection.execute(states)).all()
        return {
            "tenant": tenant.name,
            "bytes_stored": {**stored, "total": sum(stored.values())},
            "bootstraps_today": await self._today(tenant.name),
            "days": [{"day": row.day, **{name: getattr(row, name) for name in COUNTERS}} for row in by_day],
            "jobs": {str(state): int(count) for state, count in by_state},
            "limits": {"bytes": self.max_bytes(tenant), "bootstraps_per_day": self.max_bootstraps(tenant)},
        }
