"""Tenants and their API keys: a key is shown once and stored as its SHA-256."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import api_keys, tenants
from cloakwork.api.errors import ForbiddenError, UnauthorisedError
from cloakwork.api.service.clock import now
from cloakwork.fhe_core.errors import ParameterError

SCOPES: Final = ("score", "models", "metrics", "priority")
"""`score`: keys, inference, jobs, usage. `models`: load and unload. `metrics`: /metrics. `priority`: jobs before other tenants' work."""

LOCAL_TENANT: Final = "local"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_TOKEN: Final = re.compile(r"cw_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_REMEMBER_SECONDS: Final = (
    3.0  # an API key stops working within five seconds, and streams that it opened look once a second
)
_REMEMBERED: Final = 4096


@dataclass(frozen=True)
class Tenant:
    """Who asks, and what they may do; limits of None are the service's."""

    name: str
    scopes: frozenset[str]
    max_bytes: int | None = None
    max_bootstraps_per_day: int | None = None

    def require(self, scope: str) -> None:
        if scope not in self.scopes:
            raise ForbiddenError(f"this API key does not have the scope '{scope}'; ask the operator for one that has")


class Tenants:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[float, Tenant]] = {}

    async def authenticate(self, token: str) -> Tenant:
        """Raises:
        UnauthorisedError: whatever is wrong with the token, in the same words.
        """
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = self._known.get(digest)
        if found is not None and found[0] > now():
            return found[1]
        tenant = await self._look_up(token, digest)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[digest] = (now() + _REMEMBER_SECONDS, tenant)
        return tenant

    async def _look_up(self, token: str, digest: str) -> Tenant:
        refused = UnauthorisedError(
            "the API key is not known, has expired or was revoked; send a valid one as bearer token"
        )
        match = _TOKEN.match(token)
        if match is None:
            raise refused
        query = select(api_keys, tenants.c.max_bytes, tenants.c.max_bootstraps_per_day).join(
            tenants, tenants.c.id == api_keys.c.tenant
        )
        async with self._database.read() as connection:
            row = (await connection.execute(query.where(api_keys.c.id == match[1]))).one_or_none()
        if row is None or not hmac.compare_digest(row.token_sha256, digest):
            raise refused
        if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now()):
            raise refused
        return Tenant(row.tenant, frozenset(row.scopes.split()), row.max_bytes, row.max_bootstraps_per_day)

    async def local(self) -> Tenant:
        """The only tenant of `--insecure-local`."""
        await self.add(LOCAL_TENANT, exist_ok=True)
        return Tenant(LOCAL_TENANT, frozenset(SCOPES))

    async def add(
        self,
        name: str,
        *,
        max_bytes: int | None = None,
        max_bootstraps_per_day: int | None = None,
        exist_ok: bool = False,
    ) -> None:
        if not _NAME.match(name):
            raise ParameterError(f"tenant: expected a name of a-z, 0-9 and '-', at most 63 characters, got '{name}'")
        values = {
            "id": name,
            "created_at": now(),
            "max_bytes": max_bytes,
            "max_bootstraps_per_day": max_bootstraps_per_day,
        }
        try:
            async with self._database.write() as connection:
                await connection.execute(insert(tenants).values(**values))
        except IntegrityError:
            if not exist_ok:
                raise ParameterError(f"tenant: '{name}' exists already") from None

    async def new_api_key(self, tenant: str, scopes: tuple[str, ...], lifetime_seconds: float | None = None) -> str:
        """The token, which nothing can show again."""
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise ParameterError(
                f"API key: expected scopes from {', '.join(SCOPES)}, got {', '.join(unknown) or 'none'}"
            )
        identity, moment = secrets.token_hex(8), now()
        token = f"cw_{identity}_{secrets.token_urlsafe(32)}"
        async with self._database.write() as connection:
            if (await connection.execute(select(tenants.c.id).where(tenants.c.id == tenant))).first() is None:
                raise ParameterError(f"tenant: there is no '{tenant}'; add it first")
            await connection.execute(
                insert(api_keys).values(
                    id=identity,
                    tenant=tenant,
                    token_sha256=hashlib.sha256(token.encode()).hexdigest(),
                    scopes=" ".join(sorted(set(scopes))),
                    created_at=moment,
                    expires_at=None if lifetime_seconds is None else moment + lifetime_seconds,
                )
            )
        return token

    async def revoke(self, identity: str) -> None:
        """Takes effect within seconds in a running service."""
        async with self._database.write() as connection:
            result = await connection.execute(
                update(api_keys)
                .where(api_keys.c.id == identity, api_keys.c.revoked_at.is_(None))
                .values(revoked_at=now())
            )
        if not result.rowcount:
            raise ParameterError(f"API key: there is no valid one '{identity}'")

    async def rotate(self, identity: str, grace_seconds: float) -> str:
        """A new token with the same scopes; the old one stays valid for the grace period."""
        async with self._database.read() as connection:
            row = (await connection.execute(select(api_keys).where(api_keys.c.id == identity))).one_or_none()
        if row is None or row.revoked_at is not None:
            raise ParameterError(f"API key: there is no valid one '{identity}'")
        token = await self.new_api_key(row.tenant, tuple(row.scopes.split()))
        async with self._database.write() as connection:
            await connection.execute(
                update(api_keys).where(api_keys.c.id == identity).values(expires_at=now() + grace_seconds)
            )
        return token

    async def overview(self) -> list[dict[str, object]]:
        """Every tenant with its API keys, without secrets."""
        async with self._database.read() as connection:
            names = (await connection.execute(select(tenants).order_by(tenants.c.id))).all()
            keys = (await connection.execute(select(api_keys).order_by(api_keys.c.created_at))).all()
        return [
            {
                "tenant": tenant.id,
                "max_bytes": tenant.max_bytes,
                "max_bootstraps_per_day": tenant.max_bootstraps_per_day,
                "api_keys": [
                    {
                        "id": key.id,
                        "scopes": key.scopes.split(),
                        "created_at": key.created_at,
                        "expires_at": key.expires_at,
                        "revoked_at": key.revoked_at,
                    }
                    for key in keys
                    if key.tenant == tenant.id
                ],
            }
            for tenant in names
        ]

    async def any_api_key(self) -> bool:
        valid = api_keys.c.revoked_at.is_(None) & (api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > now()))
        async with self._database.read() as connection:
            return (await connection.execute(select(api_keys.c.id).where(valid).limit(1))).first() is not None
