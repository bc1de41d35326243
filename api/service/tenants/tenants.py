"""Tenants and their API keys: a key is shown once and stored as its SHA-256."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import answers, api_keys, evaluation_keys, jobs, tenants, usage
from cloakwork.api.errors import ForbiddenError, SuspendedError, UnauthorisedError
from cloakwork.api.service.clock import now, retention
from cloakwork.fhe_core.errors import ParameterError

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
VERSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$"


SCOPES: Final = ("score", "models", "metrics", "priority", "admin")
"""`score`: keys, inference, jobs, usage. `models`: upload, load, unload and retire. `metrics`: /metrics, and nothing about models.
`priority`: jobs before other tenants' work. `admin`: what the owner of the service sees and does (`service/administration`), and nothing of the
others."""

LOCAL_TENANT: Final = "local"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_TOKEN: Final = re.compile(r"cw_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_IDENTITY: Final = re.compile(r"[0-9a-f]{1,16}\Z")
_REMEMBER_SECONDS: Final = (
    3.0  # an API key stops working within five seconds, and streams that it opened look once a second
)
_REMEMBERED: Final = 4096


@dataclass(frozen=True)
class Terms:
    """The terms of a tenant; None is the service's limit, or every model. A suspended tenant is refused; what it stored
    stays, and jobs that were accepted end."""

    max_bytes: int | None = None
    max_bootstraps_per_day: int | None = None
    max_queue: int | None = None
    max_answers_per_day: int | None = None
    models: tuple[str, ...] | None = None
    suspended: bool = False


TERMS: Final = tuple(Terms.__dataclass_fields__)


@dataclass(frozen=True)
class Tenant:
    """A tenant and its permissions; limits of None are the service's, models of None are all."""

    name: str
    scopes: frozenset[str]
    max_bytes: int | None = None
    max_bootstraps_per_day: int | None = None
    max_queue: int | None = None
    max_answers_per_day: int | None = None
    models: frozenset[str] | None = None
    api_key: str | None = None  # its public part

    def require(self, *scopes: str) -> None:
        """Requires one of these scopes."""
        if self.scopes.isdisjoint(scopes):
            names = " or ".join(f"'{scope}'" for scope in scopes)
            raise ForbiddenError(f"this API key does not have the scope {names}; ask the operator for one that has")

    def sees(self, model: str) -> bool:
        """Whether the model exists for this tenant."""
        return self.models is None or model in self.models


class Tenants:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[float, Tenant]] = {}

    async def authenticate(self, token: str) -> Tenant:
        """Finds the tenant of a token.

        Raises:
            UnauthorisedError: whatever is wrong with the token, in the same words.
            SuspendedError: it is valid.
        """
        digest = hashlib.sha256(token.encode()).hexdigest()
        remembered = self._known.get(digest)
        if remembered is not None and remembered[0] > time.monotonic():  # a clock that is set back must not lengthen it
            return remembered[1]
        self._known.pop(digest, None)
        tenant = await self._look_up(token, digest)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[digest] = (time.monotonic() + _REMEMBER_SECONDS, tenant)
        return tenant

    async def _look_up(self, token: str, digest: str) -> Tenant:
        refused = UnauthorisedError(
            "the API key is not known, has expired or was revoked; send a valid one as bearer token"
        )
        match = _TOKEN.match(token)
        if match is None:
            raise refused
        terms = [tenants.c[name] for name in TERMS]
        query = select(api_keys, *terms).join(tenants, tenants.c.id == api_keys.c.tenant)
        async with self._database.read() as connection:
            row = (await connection.execute(query.where(api_keys.c.id == match[1]))).one_or_none()
        if row is None or not hmac.compare_digest(row.token_sha256, digest):
            raise refused
        if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= retention.latest()):
            raise refused
        if row.suspended:
            raise SuspendedError(
                f"tenant '{row.tenant}' is suspended; its keys, jobs and results are kept: ask the operator"
            )
        limits = (row.max_bytes, row.max_bootstraps_per_day, row.max_queue, row.max_answers_per_day)
        models = None if row.models is None else frozenset(row.models.split())
        return Tenant(row.tenant, frozenset(row.scopes.split()), *limits, models, row.id)

    async def local(self) -> Tenant:
        """Returns the only tenant of `--insecure-local`."""
        await self.add(LOCAL_TENANT, exist_ok=True)
        return Tenant(LOCAL_TENANT, frozenset(SCOPES))

    async def add(self, name: str, terms: Terms | None = None, *, exist_ok: bool = False) -> None:
        """Adds a tenant.

        Raises:
            ParameterError: no name of a tenant or of a model, or a tenant that exists already.
        """
        if not _NAME.match(name):
            raise ParameterError(f"tenant: expected a name of a-z, 0-9 and '-', at most 63 characters, got '{name}'")
        values = _columns(vars(terms or Terms()))
        try:
            async with self._database.write() as connection:
                await connection.execute(insert(tenants).values(id=name, created_at=now(), **values))
        except IntegrityError:
            if not exist_ok:
                raise ParameterError(
                    f"tenant: '{name}' exists already; 'cloakwork tenants key {name}' makes another API key for it"
                ) from None

    async def change(self, name: str, terms: Mapping[str, Any]) -> None:
        """Changes some of the `Terms`; a running service knows them within seconds."""
        async with self._database.write() as connection:
            # The id as well: without any change it is still said whether the tenant is there.
            changed = await connection.execute(
                update(tenants).where(tenants.c.id == name).values(id=name, **_columns(terms))
            )
            if not changed.rowcount:
                raise _no_tenant(name)
        self._known.clear()

    async def change_scopes(self, name: str, scopes: tuple[str, ...], identity: str | None = None) -> None:
        """Changes the scopes of every API key of a tenant that is not revoked, or of one."""
        which = (api_keys.c.tenant == name) & api_keys.c.revoked_at.is_(None)
        if identity is not None:
            which &= api_keys.c.id == identity
        async with self._database.write() as connection:
            changed = await connection.execute(update(api_keys).where(which).values(scopes=text_of_scopes(scopes)))
        if not changed.rowcount:
            which_one = "valid one" if identity is None else f"valid one '{identity}'"
            raise ParameterError(f"API key: tenant '{name}' has no {which_one}")

    async def remove(self, name: str) -> list[str]:
        """Ends a tenant with its API keys, keys, jobs and usage; the names of its objects in the storage, which nothing refers to any more."""
        async with self._database.write() as connection:
            removed = await connection.execute(delete(tenants).where(tenants.c.id == name))
            if not removed.rowcount:
                raise _no_tenant(name)
            await connection.execute(delete(api_keys).where(api_keys.c.tenant == name))
            await connection.execute(delete(usage).where(usage.c.tenant == name))
            await connection.execute(delete(answers).where(answers.c.tenant == name))
            its_keys = delete(evaluation_keys).where(evaluation_keys.c.tenant == name).returning(evaluation_keys.c.id)
            keys = [row.id for row in (await connection.execute(its_keys)).all()]
            its_jobs = delete(jobs).where(jobs.c.tenant == name).returning(jobs.c.id, jobs.c.result_name)
            ended = (await connection.execute(its_jobs)).all()
        objects = [f"{folder}/{key}" for key in keys for folder in ("keys", "uploads")]
        objects += [f"inputs/{job.id}" for job in ended]
        return objects + [job.result_name for job in ended if job.result_name is not None]

    async def new_api_key(self, tenant: str, scopes: tuple[str, ...], lifetime_seconds: float | None = None) -> str:
        """Creates an API key and returns its token, which nothing can show again."""
        scope_text = text_of_scopes(scopes)
        identity, moment = secrets.token_hex(8), now()
        token = f"cw_{identity}_{secrets.token_urlsafe(32)}"
        async with self._database.write() as connection:
            if (await connection.execute(select(tenants.c.id).where(tenants.c.id == tenant))).first() is None:
                raise _no_tenant(tenant)
            await connection.execute(
                insert(api_keys).values(
                    id=identity,
                    tenant=tenant,
                    token_sha256=hashlib.sha256(token.encode()).hexdigest(),
                    scopes=scope_text,
                    created_at=moment,
                    expires_at=None if lifetime_seconds is None else moment + lifetime_seconds,
                )
            )
        return token

    async def revoke(self, identity: str) -> None:
        """Takes effect within seconds in a running service. Args: identity: the public part of a token, or the token."""
        identity = public_part(identity)
        async with self._database.write() as connection:
            result = await connection.execute(
                update(api_keys)
                .where(api_keys.c.id == identity, api_keys.c.revoked_at.is_(None))
                .values(revoked_at=now())
            )
        if not result.rowcount:
            raise _no_api_key(identity)
        self._known.clear()

    async def rotate(self, identity: str, grace_seconds: float) -> str:
        """Replaces a valid API key and returns a new token with the same scopes; the old one stays valid for the grace period, or until it expires.
        Args: identity: as of `revoke`."""
        identity = public_part(identity)
        async with self._database.read() as connection:
            row = (await connection.execute(select(api_keys).where(api_keys.c.id == identity))).one_or_none()
        moment = now()
        if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= moment):
            raise _no_api_key(identity)
        end = moment + grace_seconds if row.expires_at is None else min(row.expires_at, moment + grace_seconds)
        token = await self.new_api_key(row.tenant, tuple(row.scopes.split()))
        async with self._database.write() as connection:
            await connection.execute(update(api_keys).where(api_keys.c.id == identity).values(expires_at=end))
        return token

    async def overview(self) -> list[dict[str, Any]]:
        """Lists every tenant with its API keys, without secrets."""
        async with self._database.read() as connection:
            names = (await connection.execute(select(tenants).order_by(tenants.c.id))).all()
            keys = (await connection.execute(select(api_keys).order_by(api_keys.c.created_at))).all()
        return [
            {
                "tenant": tenant.id,
                "max_bytes": tenant.max_bytes,
                "max_bootstraps_per_day": tenant.max_bootstraps_per_day,
                "max_queue": tenant.max_queue,
                "max_answers_per_day": tenant.max_answers_per_day,
                "models": None if tenant.models is None else tenant.models.split(),
                "suspended": tenant.suspended,
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

    async def usage(self, tenant: str | None, since: str | None, until: str | None) -> list[dict[str, Any]]:
        """Returns the usage of one tenant or all, day by day, as it is stored: a running service adds its counters about once a second. Days as
        2026-11-21.

        Raises:
            ParameterError: there is no such tenant.
        """
        query = select(usage).order_by(usage.c.day, usage.c.tenant)
        if tenant is not None:
            query = query.where(usage.c.tenant == tenant)
        if since is not None:
            query = query.where(usage.c.day >= since)
        if until is not None:
            query = query.where(usage.c.day <= until)
        async with self._database.read() as connection:
            if (
                tenant is not None
                and not (await connection.execute(select(tenants.c.id).where(tenants.c.id == tenant))).first()
            ):
                raise _no_tenant(tenant)
            return [dict(row._mapping) for row in (await connection.execute(query)).all()]

    async def any_api_key(self) -> bool:
        valid = api_keys.c.revoked_at.is_(None) & (api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > now()))
        async with self._database.read() as connection:
            return (await connection.execute(select(api_keys.c.id).where(valid).limit(1))).first() is not None


def _columns(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of the table."""
    columns = dict(terms)
    if columns.get("models") is not None:
        for name in columns["models"]:
            if not re.fullmatch(NAME_PATTERN, name):
                raise ParameterError(
                    f"tenant: expected models' names of letters, digits, '.', '_' and '-', got '{name}'"
                )
        columns["models"] = " ".join(sorted(set(columns["models"])))
    return columns


def text_of_scopes(scopes: tuple[str, ...]) -> str:
    """Returns scopes as a row has them.

    Raises:
        ParameterError: no scope, or one that there is not.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise ParameterError(f"API key: expected scopes from {', '.join(SCOPES)}, got {', '.join(unknown) or 'none'}")
    return " ".join(sorted(set(scopes)))


def public_part(text: str) -> str:
    """Returns what identifies an API key, also of its whole token."""
    token = _TOKEN.match(text)
    return text if token is None else token[1]


def _no_api_key(identity: str) -> ParameterError:
    """An error that repeats no secret: what is no public part is not shown."""
    shown = f" '{identity}'" if _IDENTITY.match(identity) else ""
    return ParameterError(
        f"API key: there is no valid one{shown}; expected its public part, cw_THIS_.., as 'cloakwork tenants list' shows it"
    )


def _no_tenant(name: str) -> ParameterError:
    return ParameterError(f"tenant: there is no '{name}'; 'tenants list' shows all, 'tenants add' adds one")
