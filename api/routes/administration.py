"""Routes of administration, all with the scope `admin`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from cloakwork.api.errors import MalformedError
from cloakwork.api.http.connections import Connection
from cloakwork.api.routes.administration_schemas import (
    ApiKeyRows,
    JobRows,
    KeyRows,
    LoadAnswer,
    ModelRows,
    State,
    TenantChange,
    TenantRows,
)
from cloakwork.api.routes.dependencies import AdministratingCaller, AllServices, Identity, ModelName, errors
from cloakwork.api.routes.schemas import RepositoryAnswer
from cloakwork.api.service.tenants.tenants import NAME_PATTERN, VERSION_PATTERN
from cloakwork.api.settings import release

router = APIRouter(prefix="/v2/admin", tags=["administration"])

_TENANT = "^[a-z0-9][a-z0-9-]{0,62}$"
_AFTER = "`next` of the page before."

Limit = Annotated[int, Query(ge=1, le=200, description="Rows of a page.")]
OfTenant = Annotated[str | None, Query(pattern=_TENANT, description="Of this tenant alone.")]
AfterRow = Annotated[str | None, Query(pattern="^[0-9a-f]{48}$", description=_AFTER)]
AfterApiKey = Annotated[str | None, Query(pattern="^[0-9a-f]{32}$", description=_AFTER)]
AfterTenant = Annotated[str | None, Query(pattern=_TENANT, description=_AFTER)]
AfterModel = Annotated[str | None, Query(pattern=f"{NAME_PATTERN[:-1]}/{VERSION_PATTERN[1:]}", description=_AFTER)]
TenantName = Annotated[str, Path(pattern=_TENANT, description="A tenant's name.", examples=["alice"])]
ApiKeyId = Annotated[
    str, Path(pattern="^[0-9a-f]{16}$", description="The public part of an API key.", examples=["5b0e" * 4])
]


@router.get("/load", responses=errors())
async def load(request: Request, services: AllServices, _: AdministratingCaller) -> LoadAnswer:
    """Reports the engine, what runs and waits, keys in memory, connections, the disk, and requests of the last minutes."""
    connection: Connection | None = getattr(request.state, "connection", None)
    report = await services.administration.load.report()
    connections = None if connection is None else connection.register.facts()
    return LoadAnswer.model_validate({"version": release(), "connections": connections, **report})


@router.get("/models", responses=errors())
async def list_models(
    services: AllServices, _: AdministratingCaller, after: AfterModel = None, limit: Limit = 50
) -> ModelRows:
    """Lists every version in the repository's folder, by name and version."""
    page = services.administration.listings.models(after, limit)
    return ModelRows.model_validate({"models": page.rows, "next": page.next})


@router.get("/tenants", responses=errors())
async def list_tenants(
    services: AllServices, _: AdministratingCaller, after: AfterTenant = None, limit: Limit = 50
) -> TenantRows:
    """Lists tenants by name, with their limits and what they have used."""
    page = await services.administration.listings.tenants(after, limit)
    return TenantRows.model_validate({"tenants": page.rows, "next": page.next})


@router.get("/api-keys", responses=errors())
async def list_api_keys(
    services: AllServices,
    _: AdministratingCaller,
    tenant: OfTenant = None,
    after: AfterApiKey = None,
    limit: Limit = 50,
) -> ApiKeyRows:
    """Lists API keys, the newest first, without what authenticates."""
    page = await services.administration.listings.api_keys(tenant, after, limit)
    return ApiKeyRows.model_validate({"api_keys": page.rows, "next": page.next})


@router.get("/keys", responses=errors())
async def list_keys(
    services: AllServices,
    _: AdministratingCaller,
    tenant: OfTenant = None,
    after: AfterRow = None,
    limit: Limit = 50,
) -> KeyRows:
    """Lists evaluation keys, the newest first."""
    page = await services.administration.listings.keys(tenant, after, limit)
    return KeyRows.model_validate({"keys": page.rows, "next": page.next})


@router.get("/jobs", responses=errors())
async def list_jobs(
    services: AllServices,
    _: AdministratingCaller,
    tenant: OfTenant = None,
    state: Annotated[State | None, Query(description="In this state alone.")] = None,
    after: AfterRow = None,
    limit: Limit = 50,
) -> JobRows:
    """Lists jobs, the newest first, without inputs and results."""
    page = await services.administration.listings.jobs(tenant, state, after, limit)
    return JobRows.model_validate({"jobs": page.rows, "next": page.next})


@router.post("/models/{model}/load", responses=errors(404, 409))
async def load_model(model: ModelName, services: AllServices, who: AdministratingCaller) -> RepositoryAnswer:
    """Reads the repository again and puts every version that is not retired into service."""
    return RepositoryAnswer(name=model, versions=await services.administration.actions.load(who, model))


@router.post("/models/{model}/unload", responses=errors(404))
async def unload_model(model: ModelName, services: AllServices, who: AdministratingCaller) -> RepositoryAnswer:
    """Takes every version out of service for every tenant, until it is loaded; accepted jobs end with it."""
    await services.administration.actions.unload(who, model)
    return RepositoryAnswer(name=model, versions=[])


@router.post("/jobs/{job}/cancel", status_code=204, responses=errors(404, 409), response_class=Response)
async def cancel_job(job: Identity, services: AllServices, who: AdministratingCaller) -> Response:
    """Cancels a job; its tenant sees it as cancelled."""
    await services.administration.actions.cancel_job(who, job)
    return Response(status_code=204)


@router.delete("/keys/{key}", status_code=204, responses=errors(404), response_class=Response)
async def delete_key(key: Identity, services: AllServices, who: AdministratingCaller) -> Response:
    """Deletes evaluation keys from the disk, the memory and the devices; jobs that need them fail, and their tenant can upload them again."""
    await services.administration.actions.delete_key(who, key)
    return Response(status_code=204)


@router.post("/api-keys/{api_key}/revoke", status_code=204, responses=errors(404, 409), response_class=Response)
async def revoke_api_key(api_key: ApiKeyId, services: AllServices, who: AdministratingCaller) -> Response:
    """Ends an API key within seconds; the one that asks cannot end itself."""
    await services.administration.actions.revoke(who, api_key)
    return Response(status_code=204)


@router.patch("/tenants/{tenant}", status_code=204, responses=errors(404, 409), response_class=Response)
async def change_tenant(
    tenant: TenantName, change: TenantChange, services: AllServices, who: AdministratingCaller
) -> Response:
    """Changes limits and models, within seconds."""
    terms = change.model_dump(exclude_unset=True)
    if not terms:
        raise MalformedError("expected a limit or models to change, got none")
    await services.administration.actions.change_tenant(who, tenant, terms)
    return Response(status_code=204)
