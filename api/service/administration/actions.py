"""Actions of an administrator. Each is one line of the log: who, what, and whether it was done."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cloakwork.api.errors import ConflictError, UnknownApiKeyError, UnknownTenantError
from cloakwork.api.logs import AUDIT
from cloakwork.api.service.administration.listings import Listings
from cloakwork.api.service.administration.load import Load
from cloakwork.api.service.jobs.jobs import Jobs
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.keys.uploads import Uploads
from cloakwork.api.service.models.models import Models
from cloakwork.api.service.storage.disk import Disk
from cloakwork.api.service.tenants.tenants import Tenants
from cloakwork.fhe_core.errors import FheError, ParameterError

_log = logging.getLogger(AUDIT)


@dataclass(frozen=True)
class Administrator:
    """The administrator who calls: the tenant, the public part of the API key (None with `insecure_local`), and the request."""

    tenant: str
    api_key: str | None
    request_id: str


@dataclass(frozen=True)
class Actions:
    """Actions of an administrator. None makes an API key: with one of a tenant's, an administrator could fetch the tenant's results. The command
    line makes them."""

    models: Models
    keys: Keys
    uploads: Uploads
    jobs: Jobs
    tenants: Tenants
    disk: Disk

    async def load(self, who: Administrator, model: str) -> list[str]:
        """Loads a model and returns the versions in service afterwards."""
        with _audited(who, "load model", model):
            await self.models.load(model)
            return [each.version for each in self.models.versions(model)]

    async def unload(self, who: Administrator, model: str) -> None:
        with _audited(who, "unload model", model):
            await self.models.unload(model)

    async def cancel_job(self, who: Administrator, identity: str) -> None:
        with _audited(who, "cancel job", identity):
            await self.jobs.cancel(identity)

    async def delete_key(self, who: Administrator, identity: str) -> None:
        """Deletes a key from the disk, the memory and the devices; its tenant can upload it again."""
        with _audited(who, "delete key", identity):
            await self.uploads.discard(await self.keys.find(identity))

    async def revoke(self, who: Administrator, identity: str) -> None:
        """Revokes an API key.

        Raises:
            ConflictError: the API key that asks, so that nobody locks himself out.
            UnknownApiKeyError: there is no valid one of that name.
        """
        with _audited(who, "revoke API key", identity):
            if identity == who.api_key:
                raise ConflictError(
                    "this is the API key that asks; revoke it with another one, or with 'cloakwork tenants revoke'"
                )
            try:
                with self.disk.relieved():
                    await self.tenants.revoke(identity)
            except ParameterError as error:
                raise UnknownApiKeyError(str(error)) from None

    async def change_tenant(self, who: Administrator, name: str, terms: Mapping[str, Any]) -> None:
        """Changes a tenant. `terms` as in `Terms`, those that change.

        Raises:
            ConflictError: the tenant that asks would be suspended, so that nobody locks himself out.
            UnknownTenantError.
        """
        with _audited(who, "change tenant", name, **terms):
            if terms.get("suspended") and name == who.tenant:
                raise ConflictError("this is the tenant that asks; suspend it with 'cloakwork tenants suspend'")
            try:
                await self.tenants.change(name, terms)
            except ParameterError as error:
                raise UnknownTenantError(str(error)) from None


@contextmanager
def _audited(who: Administrator, action: str, target: str, **changes: Any) -> Iterator[None]:
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except FheError as error:
        outcome = error.code
        raise
    finally:
        fields = {"action": action, "target": target, "outcome": outcome, **vars(who)}
        _log.info("administration", extra={**fields, **({"changes": changes} if changes else {})})


@dataclass(frozen=True)
class Administration:
    load: Load
    listings: Listings
    actions: Actions
