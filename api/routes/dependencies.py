"""Dependencies of routes: the services, and the caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer

from cloakwork.api.http.connections import Connection
from cloakwork.api.http.gate import bearer_token
from cloakwork.api.service.administration.actions import Administrator
from cloakwork.api.service.models.models import TenantModels
from cloakwork.api.service.names import NAME_PATTERN, VERSION_PATTERN
from cloakwork.api.service.services import Services
from cloakwork.api.service.tenants.tenants import LOCAL_TENANT, SCOPES, Tenant

_LOCAL = Tenant(LOCAL_TENANT, frozenset(SCOPES))
# For the schema; `authenticated` reads the header.
_bearer = HTTPBearer(auto_error=False, scheme_name="api_key", description="An API key as bearer token.")


async def services_of(request: Request) -> Services:  # async: FastAPI would run it on a thread otherwise
    services: Services = request.app.state.services
    return services


AllServices = Annotated[Services, Depends(services_of)]


async def authenticated(request: Request, services: Services) -> Tenant:
    """Returns the tenant that sends the request; the connection counts as theirs from now on.

    Raises:
        UnauthorisedError, TooManyConnectionsError.
    """
    if services.settings.insecure_local:
        return _LOCAL
    tenant = await services.tenants.authenticate(bearer_token(request.scope["headers"]))
    request.state.tenant = tenant.name
    connection: Connection | None = getattr(request.state, "connection", None)
    if connection is not None:
        connection.register.claim(connection, tenant.name)
    return tenant


async def caller(request: Request, services: AllServices, _: Annotated[object, Depends(_bearer)]) -> Tenant:
    return await authenticated(request, services)


async def scoring_caller(tenant: Annotated[Tenant, Depends(caller)]) -> Tenant:
    tenant.require("score")
    return tenant


async def reading_caller(tenant: Annotated[Tenant, Depends(caller)]) -> Tenant:
    """Returns the caller if they may read models: those who score with them, or manage them."""
    tenant.require("score", "models")
    return tenant


async def visible_models(services: AllServices, tenant: Annotated[Tenant, Depends(reading_caller)]) -> TenantModels:
    return services.models.of(tenant)


async def managing_caller(tenant: Annotated[Tenant, Depends(caller)]) -> Tenant:
    tenant.require("models")
    return tenant


async def administrator(request: Request, tenant: Annotated[Tenant, Depends(caller)]) -> Administrator:
    tenant.require("admin")
    return Administrator(tenant.name, tenant.api_key, request.state.request_id)


ScoringCaller = Annotated[Tenant, Depends(scoring_caller)]
ManagingCaller = Annotated[Tenant, Depends(managing_caller)]
AdministratingCaller = Annotated[Administrator, Depends(administrator)]
VisibleModels = Annotated[TenantModels, Depends(visible_models)]

ModelName = Annotated[str, Path(pattern=NAME_PATTERN, description="A model's name.", examples=["mnist-mlp-1x30"])]
ModelVersion = Annotated[str, Path(pattern=VERSION_PATTERN, description="A version of it.", examples=["1"])]
Identity = Annotated[
    str,
    Path(pattern="^[0-9a-f]{32}$", description="An identifier that the service gave.", examples=["c41d" * 8]),
]
